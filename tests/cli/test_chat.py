"""`kept chat` as people use it: once, in a pipe, and at a terminal."""

import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.chat_server import Call, ModelServer, Says, Stalls
from tests.support.commands import KEPT
from tests.support.files import write_file
from tests.support.toy_mcp import SERVER
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def model():
    with ModelServer() as server:
        server.otherwise = Says("Staging is on port 5433.")
        yield server


@pytest.fixture
def options(model) -> list[str]:
    chosen = ("model.provider=openai", "model.name=test", f"model.base_url={model.openai_url}")
    return [part for setting in chosen for part in ("--set", setting)]


def test_without_a_model_it_says_in_one_line_what_to_set(kept):
    got = kept("chat", "-m", "Hello")
    assert got.code == 10
    assert got.err.count("\n") == 1
    assert "model.provider" in got.err


def test_a_message_from_standard_input(kept, options, model):
    assert kept(*options, "chat", stdin="Which port,\nplease?\n").out == "Staging is on port 5433.\n"
    assert kept(*options, "chat", "-m", "-", stdin="Which port?").code == 0
    assert "Which port,\\nplease?" in str(model.chats[0].body)


def test_json_for_a_script_and_a_conversation_that_goes_on(kept, options):
    first = kept(*options, "chat", "--json", "-m", "Which port?").json
    assert first["reply"] == "Staging is on port 5433."
    assert (first["tools"], first["notices"]) == ([], [])
    again = kept(*options, "chat", "--json", "-m", "Sure?").json
    assert again["sessionId"] == first["sessionId"]
    other = kept(*options, "chat", "--json", "--session", "work", "-m", "Sure?").json
    assert other["sessionId"] != first["sessionId"]
    by_id = kept(*options, "chat", "--json", "--session", first["sessionId"], "-m", "Still?").json
    assert by_id["sessionId"] == first["sessionId"]
    by_key = kept(*options, "chat", "--json", "--session", "terminal:work", "-m", "Still?").json
    assert by_key["sessionId"] == other["sessionId"]
    silent = kept(*options, "chat", "--json", "-m", "/new").json
    assert first["sessionId"] in silent["reply"]
    ended = kept(*options, "chat", "--session", first["sessionId"], "-m", "Still?")
    assert (ended.code, "has ended" in ended.err) == (2, True)


@pytest.mark.parametrize("args", [["-m", "  "], ["--json"], []])
def test_nothing_to_say_is_said(kept, options, args):
    got = kept(*options, "chat", *args)
    assert (got.code, "There is no message." in got.err + got.out) == (2, True)


class Terminal:
    """The real command at a real terminal."""

    def __init__(self, environment: dict[str, str], *args: str, kind: str = "dumb") -> None:
        self.seen = ""
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.execve(KEPT, [KEPT, *args], {**environment, "TERM": kind, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"})

    def wait_for_input(self) -> None:
        """Wait until the command sleeps. Python notices Ctrl-C late if it comes while a key is being handled."""
        stat = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", "a command that waits for a key")

    def read_until(self, text: str) -> str:
        """Return the output up to a text, from where the last call ended."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            ready, _, _ = select.select([self.handle], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not appear in {self.seen!r}"
            self.seen += os.read(self.handle, 4096).decode()
        shown, _, self.seen = self.seen.partition(text)
        return shown + text

    def type(self, keys: str) -> None:
        os.write(self.handle, keys.encode())

    def ask(self, text: str, *answers: str) -> None:
        """Type a line, and read until these texts and the next prompt."""
        self.type(f"{text}\r")
        for answer in (*answers, "> "):
            self.read_until(answer)

    def leave(self) -> int:
        """Type Ctrl-D at the prompt, and wait for the process to end."""
        self.type("\x04")
        deadline = time.monotonic() + PATIENCE_S
        try:
            while select.select([self.handle], [], [], max(0.0, deadline - time.monotonic()))[0]:
                os.read(self.handle, 4096)
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            pass  # the other side is closed
        _, status = os.waitpid(self.pid, 0)
        os.close(self.handle)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def chat(environment, workspace, options, model, home):
    """Start the command at a terminal of some kind, and wait for its prompt."""

    def start(kind: str = "dumb") -> Terminal:
        terminal = Terminal({**environment, "KEPT_WORKSPACE": str(workspace)}, *options, "chat", kind=kind)
        terminal.read_until("Ctrl-D leaves")
        terminal.read_until("> ")
        return terminal

    return start


def test_a_conversation_at_a_terminal(chat, model):
    model.script(Says("Hello yourself."), Stalls("Well, let me think"), Says("Here I am."))
    terminal = chat()
    terminal.ask("Hello", "Hello yourself.")
    terminal.type("Think\r")
    terminal.read_until("let me think")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.read_until("Stopped.")
    terminal.read_until("> ")
    terminal.ask("Are you there?", "Here I am.")
    terminal.ask("/help", "/remember TEXT")
    terminal.type("\x1b[A\x1b[A\x1b[A")
    terminal.read_until("\r> Think")  # the last of the redraws
    terminal.wait_for_input()
    terminal.type("\x03")
    terminal.read_until("\r\n")
    terminal.read_until("> ")
    assert terminal.leave() == 0


@pytest.mark.parametrize("kind", ["xterm-256color", "dumb"])
def test_the_terminal_asks_before_a_tool_of_a_server_is_called(chat, model, home, kind):
    server = {"command": sys.executable, "args": [SERVER]}
    write_file(home / "config.yaml", json.dumps({"agents": {"defaults": {"mcp_servers": {"toy": server}}}}))
    call = Call("toy__add", {"a": 2, "b": 3})
    model.script(Says("", call), Says("It is five."), Says("", call), Says("As you wish."))
    terminal = chat(kind)
    terminal.type("Add.\r")
    terminal.read_until('The agent wants to call toy__add with {"a": 2, "b": 3}')
    terminal.read_until("Allow it? [y/N] ")
    terminal.wait_for_input()
    terminal.type("y\r")
    assert "thinking" not in terminal.read_until("y\r\n")
    terminal.read_until("It is five.")
    terminal.read_until("> ")
    terminal.type("Again.\r")
    terminal.read_until("Allow it? [y/N] ")
    terminal.ask("", "toy__add was not allowed", "As you wish.")
    assert terminal.leave() == 0
    sent = [json.dumps(request.body) for request in model.chats]
    assert "2 + 3 = 5" in sent[1]
    assert "did not allow this call" in sent[3]


def test_a_pasted_text_of_several_lines_is_one_message(chat, model):
    model.script(Says("A poem."), Says("Goodbye."))
    terminal = chat("xterm-256color")
    terminal.type("\x1b[200~Roses are red\rViolets are blue\r\rWhat is it?\x1b[201~")
    terminal.read_until("What is it?")
    terminal.ask("", "A poem.")
    terminal.ask("Bye", "Goodbye.")
    assert terminal.leave() == 0
    assert len(model.chats) == 2
    assert "Roses are red\nViolets are blue\n\nWhat is it?" in model.chats[0].body["messages"][-1]["content"]


def test_a_sign_of_life_is_there_until_the_first_word_and_leaves_nothing(chat, model):
    model.script(Stalls(), Says("Here I am."))
    terminal = chat("xterm-256color")
    terminal.type("Think\r")
    terminal.read_until("thinking")
    model.wait_for_chats(1)
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.read_until("Stopped.").endswith("\r\x1b[KStopped.")
    terminal.read_until("> ")
    terminal.type("Are you there?\r")
    terminal.read_until("thinking")
    assert terminal.read_until("Here I am.").rpartition("\x1b[K")[2] == "Here I am."
    terminal.read_until("> ")
    assert terminal.leave() == 0
