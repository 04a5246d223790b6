"""Tools of MCP servers, with a real server as a program and over HTTP."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kept.agent.events import Inbound, Notice
from kept.agent.extra_tools import tool_name
from kept.config import load_config
from kept.errors import ConfigError
from kept.models.base import ToolOutput
from kept.testing import ScriptedChat
from tests.support.agents import open_agent, shown
from tests.support.files import write_file
from tests.support.toy_mcp import SERVER, toy, use
from tests.support.waiting import wait_until


class Talk:
    """Conversation in one event loop, as a program has it."""

    def __init__(self, at) -> None:
        self.at = at
        self.events: list = []

    async def say(self, text: str) -> None:
        session = self.at.session().id
        inbound = [Inbound(f"in-{len(self.at.messages())}", text)]
        self.events += [event async for event in self.at.agent.respond(session, inbound)]

    def results(self) -> list:
        return [block for message in self.at.messages() if message.role == "tool" for block in message.content]


def talk(tmp_path, script, *texts, **settings):
    """Say texts one after the other. Return the conversation."""
    model = ScriptedChat(script)
    with open_agent(tmp_path, model, **settings) as at:
        conversation = Talk(at)

        async def scenario() -> None:
            try:
                for text in texts:
                    await conversation.say(text)
            finally:
                await at.agent.close()

        asyncio.run(scenario())
        conversation.found = conversation.results()
        conversation.notices = [event.text for event in conversation.events if isinstance(event, Notice)]
        conversation.requests = model.requests
    return conversation


def test_a_server_is_started_and_its_tools_are_called(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    conversation = talk(
        tmp_path,
        [use("add", a=2, b=3), use("whoami"), use("wrong"), "5"],
        "What is 2 + 3?",
        **toy(env={"TOY_TOKEN": "t0k"}, tools={"crash": "deny", "hang": "deny"}),
    )
    names = [spec.name for spec in conversation.requests[0].tools]
    assert names[-4:] == ["toy__add", "toy__shout", "toy__whoami", "toy__wrong"], "sorted, and without denied ones"
    add, whoami, wrong = conversation.found
    assert (add.text, add.is_error) == ("2 + 3 = 5", False)
    assert whoami.text.endswith("token t0k key None"), "a server gets no keys of this process"
    assert wrong.is_error
    assert "wrong" in wrong.text


def test_a_server_that_dies_is_started_again(tmp_path):
    conversation = talk(tmp_path, [use("whoami"), use("crash"), use("whoami"), "Back."], "Try.", **toy())
    before, crash, after = conversation.found
    assert crash.is_error
    assert "not known whether it was carried out" in crash.text
    assert not after.is_error
    assert re.search(r"pid \d+", before.text)[0] != re.search(r"pid \d+", after.text)[0]


def test_a_server_that_died_between_turns_is_started_again(tmp_path):
    def script(request):
        said = shown(request)
        if request.turns[-1].parts[-1].text == "Again?":
            pid = int(re.findall(r"pid (\d+)", said)[-1])
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: has_ended(pid), "the server is dead")
        return "There." if isinstance(request.turns[-1].parts[0], ToolOutput) else use("whoami")

    conversation = talk(tmp_path, script, "Who?", "Again?", **toy())
    assert len(conversation.found) == 2
    assert conversation.found[0].text != conversation.found[1].text


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or only waits for its parent to notice."""
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return True


def test_a_tool_that_takes_too_long_and_one_that_says_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("kept.agent.extra_tools.MAX_RESULT_CHARS", 1_000)
    conversation = talk(
        tmp_path,
        [use("hang"), use("shout", text="ha", times=100_000), use("add", a="x"), "Well."],
        "Try.",
        **toy(timeout_s=1.0),
    )
    hang, shout, wrong = conversation.found
    assert "took longer than 1 s" in hang.text
    assert len(shout.text) < 1_100
    assert wrong.is_error


def test_a_server_that_cannot_start_is_reported_once_and_the_turn_goes_on(tmp_path):
    conversation = talk(tmp_path, ["Hello.", "Again."], "Hello?", "Again?", **toy("--fail"))
    (notice,) = conversation.notices
    assert notice.startswith("The MCP server 'toy' cannot be used:")
    assert "cannot read the licence file" in notice
    assert not any(spec.name.startswith("toy__") for spec in conversation.requests[0].tools)
    missing = talk(tmp_path / "2", ["Hello."], "Hello?", **{"mcp_servers.toy.command": "no-such-program"})
    assert "no-such-program" in missing.notices[0]


def test_a_server_over_http(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, SERVER, "--http", str(port)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: listens(port), "the server listens")
        settings = {"mcp_servers.toy.url": f"http://127.0.0.1:{port}/mcp", "mcp_servers.toy.permission": "allow"}
        conversation = talk(tmp_path, [use("add", a=20, b=3), "23"], "What is 20 + 3?", **settings)
        assert [result.text for result in conversation.found] == ["20 + 3 = 23"]
    finally:
        process.terminate()
        process.wait()
    gone = talk(tmp_path / "2", ["Hm."], "Hello?", **settings)
    assert gone.notices[0].startswith("The MCP server 'toy' cannot be used:")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_names_are_apart_and_fit_the_providers():
    assert tool_name("github", "create_issue") == "github__create_issue"
    odd = tool_name("my server", "create issue!")
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", odd)
    assert odd != tool_name("my_server", "create_issue_")
    assert len(tool_name("s" * 60, "t" * 60)) == 64


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({}, "a command or a url"),
        ({"command": "npx", "url": "http://x"}, "a command or a url"),
        ({"url": "ftp://x"}, "begins with"),
        ({"command": "npx", "permission": "maybe"}, "not one of the choices"),
        ({"command": "npx", "tools": {"a": "maybe"}}, "not one of the choices"),
    ],
)
def test_wrong_settings_get_a_clear_word(tmp_path, server, message):
    import json

    write_file(tmp_path / "home/config.yaml", json.dumps({"agents": {"defaults": {"mcp_servers": {"x": server}}}}))
    with pytest.raises(ConfigError, match=message):
        load_config(home=str(tmp_path / "home"), environ={})
