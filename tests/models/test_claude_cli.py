"""Claude Code as a model: a program that stands in for it, and the real one from npm."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.agent.events import ToolEnded, ToolStarted
from kept.agent.tools.tool_definitions import TOOLS as CATALOGUE
from kept.base.remote_errors import ContextOverflow, ModelFailed, ModelUnavailable
from kept.config import load_config
from kept.gateway.app import open_model
from kept.models.base import ChatModel, ModelUsage, TextDelta, Turn
from kept.models.claude_cli import TOOLS, render_conversation
from kept.sessions.entries import Text, ToolCall, ToolResult
from tests.support.agents import open_agent, reply
from tests.support.chat_requests import ask, end_of, request, text_of
from tests.support.chat_server import Call, ModelServer, Says
from tests.support.repository import NODE_PROGRAMS
from tests.support.waiting import wait_until

REAL = NODE_PROGRAMS / "claude"

STAND_IN = """#!{python}
import json, os, subprocess, sys, time
told = json.load(open({told!r}))
json.dump({{"argv": sys.argv[1:], "stdin": sys.stdin.read(), "env": dict(os.environ), "cwd": os.getcwd(),
           "files": {{at: open(at).read() for at in sys.argv if os.path.isfile(at) and at != sys.argv[0]}},
           "modes": {{at: os.stat(at).st_mode & 0o777 for arg in sys.argv if os.path.isfile(arg)
                     for at in (arg, os.path.dirname(arg))}}}},
          open({seen!r}, "w"))
for line in told["lines"]:
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
if told.get("sleep"):
    child = subprocess.Popen(["sleep", "600"])
    open({seen!r} + ".child", "w").write(str(child.pid))
    time.sleep(600)
if told.get("flood"):
    while True:
        print("x" * 100_000)
print(told.get("stderr", ""), file=sys.stderr)
sys.exit(told.get("code", 0))
"""


class StandIn:
    """A program that writes what it was told to, and writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "claude"
        self._told, self._seen = folder / "told.json", folder / "seen.json"
        code = STAND_IN.format(python=sys.executable, told=str(self._told), seen=str(self._seen))
        self.program.write_text(code)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def says(self, *lines: Any, **more: Any) -> None:
        self._told.write_text(json.dumps({"lines": lines, **more}))

    @property
    def seen(self) -> Any:
        return json.loads(self._seen.read_text())

    @property
    def child(self) -> int:
        return int(Path(f"{self._seen}.child").read_text())


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    program = StandIn(tmp_path)
    program.says(delta("Fine."), result())
    return program


def delta(text: str, **more: Any) -> Any:
    inner = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": inner, "parent_tool_use_id": None, **more}


def start() -> Any:
    return {"type": "stream_event", "event": {"type": "message_start"}}


def result(text: str = "", **more: Any) -> Any:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 7}
    return {"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": usage, **more}


def model_of(program: Path | str, **settings: Any) -> ChatModel:
    given = {"provider": "claude_cli", "program": str(program), **settings}
    return open_model(load_config(settings={f"model.{name}": value for name, value in given.items()}))


def test_an_answer_is_streamed_with_its_usage(stand_in):
    stand_in.says(
        "not of this format",
        start(),
        delta("The parrot "),
        delta("of a subagent", parent_tool_use_id="x"),
        delta("is green."),
        {"type": "assistant", "message": {"model": "m", "content": [{"type": "text", "text": "The parrot is green."}]}},
        start(),
        delta("Really."),
        result("Really."),
    )
    events = ask(model_of(stand_in.program), "What colour is it?")
    assert text_of(events) == "The parrot is green.\n\nReally."
    assert end_of(events).usage == ModelUsage(100, 7, 90)
    assert end_of(events).reason == "end"
    stand_in.says(result("Green."))
    assert text_of(ask(model_of(stand_in.program), "Well?")) == "Green.", "an answer that comes whole is told once"


def message(role: str, *blocks: Any) -> Any:
    return {"type": role, "message": {"role": role, "content": blocks}, "parent_tool_use_id": None}


def test_the_tools_that_it_calls_are_in_the_transcript_and_told_like_those_of_other_models(stand_in, tmp_path):
    call = {"type": "tool_use", "id": "t1", "name": "mcp__kept__memory_search", "input": {"query": "parrot"}}
    found = [{"type": "text", "text": "> The parrot"}, {"type": "text", "text": "> is green."}]
    stand_in.says(
        start(),
        message("assistant", call),
        message("user", {"type": "tool_result", "tool_use_id": "t1", "content": found}),
        message("assistant", {**call, "id": "t2", "name": "mcp__kept__memory_write", "input": {}}),
        message("user", {"type": "tool_result", "tool_use_id": "t2", "content": "No text.", "is_error": True}),
        message("user", {"type": "tool_result", "tool_use_id": "unknown", "content": "x"}, "x"),
        start(),
        delta("It is green."),
        result("It is green."),
    )
    with open_agent(tmp_path, model_of(stand_in.program)) as at:
        events = at.say("What colour is it?")
        written = [block for message in at.messages() for block in message.content]
    assert written[1:] == [
        ToolCall("t1", "memory_search", {"query": "parrot"}),
        ToolResult("t1", "> The parrot\n> is green.", "memory_search"),
        ToolCall("t2", "memory_write", {}),
        ToolResult("t2", "No text.", "memory_write", is_error=True),
        Text("It is green."),
    ]
    told = [event for event in events if isinstance(event, ToolStarted | ToolEnded)]
    assert told == [
        ToolStarted("memory_search", {"query": "parrot"}),
        ToolEnded("memory_search", True),
        ToolStarted("memory_write", {}),
        ToolEnded("memory_write", False),
    ]
    assert reply(events).text == "It is green."


def test_it_is_called_as_a_model_and_nothing_more(stand_in, home, workspace):
    ask(model_of(stand_in.program, name="opus"), request("Hello", "Hi", "Where?", system="--help\nBe kind."))
    argv = stand_in.seen["argv"]
    assert argv[:2] == ["--print", "--output-format"]
    assert stand_in.seen["files"][argv[argv.index("--system-prompt-file") + 1]] == "--help\nBe kind."
    assert argv[argv.index("--tools") + 1] == ""
    assert argv[argv.index("--model") + 1] == "opus"
    assert {"--strict-mcp-config", "--no-session-persistence", "--disable-slash-commands"} < set(argv)
    assert json.loads(argv[argv.index("--settings") + 1]) == {"disableAllHooks": True}
    lines = [json.loads(line) for line in stand_in.seen["stdin"].splitlines() if line.startswith("{")]
    assert lines == [
        {"role": "user", "text": "Hello"},
        {"role": "assistant", "text": "Hi"},
        {"role": "user", "text": "Where?"},
    ]
    assert not Path(stand_in.seen["cwd"]).exists(), "its folder is gone"


def test_it_gets_kepts_own_tools_for_replies_only(stand_in, home, workspace, monkeypatch):
    monkeypatch.setenv("KEPT_WORKSPACE", str(workspace))
    monkeypatch.setenv("KEPT_MEMORY_SEARCH__PROVIDER", "none")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-embeddings-0123456789")
    ask(model_of(stand_in.program), "Hello?")
    argv = stand_in.seen["argv"]
    server = json.loads(stand_in.seen["files"][argv[argv.index("--mcp-config") + 1]])["mcpServers"]["kept"]
    assert server["command"] == sys.executable
    assert server["args"][-1] == "mcp"
    assert server["args"][server["args"].index("--workspace") + 1] == str(workspace)
    assert server["args"][server["args"].index("--home") + 1] == str(home)
    assert server["env"]["KEPT_MEMORY_SEARCH__PROVIDER"] == "none"
    assert server["env"]["OPENAI_API_KEY"] == "sk-embeddings-0123456789"
    assert argv[argv.index("--allowedTools") + 1].split(",") == [f"mcp__kept__{name}" for name in TOOLS]
    assert set(TOOLS) == {tool.name for tool in CATALOGUE}
    assert "sk-embeddings" not in " ".join(argv)
    ask(model_of(stand_in.program), request("Hello?", purpose="flush"))
    assert "--mcp-config" not in stand_in.seen["argv"]
    ask(model_of(stand_in.program, tools=False), "Hello?")
    assert "--mcp-config" not in stand_in.seen["argv"]


def test_its_tools_work_for_the_person_that_the_conversation_is_with(stand_in, home):
    workspace = home / "workspace"
    workspace.mkdir(parents=True)
    ask(model_of(stand_in.program), replace(request("Hello?"), conversation="agent:main:http:default:direct:ada"))
    argv = stand_in.seen["argv"]
    server = json.loads(stand_in.seen["files"][argv[argv.index("--mcp-config") + 1]])["mcpServers"]["kept"]
    *before, command, option, value = server["args"]
    assert (command, option) == ("mcp", "--as")
    add = [server["command"], *before, "add", "Ada likes plums.", option, value]
    subprocess.run(add, check=True, env={**os.environ, **server["env"]})
    assert [path.parent.name for path in workspace.rglob("memory/private/*/*.md")] == ["ada@http"]


def test_it_sees_of_the_environment_what_it_needs(stand_in, monkeypatch):
    for name in ("OPENAI_API_KEY", "TELEGRAM_TOKEN", "KEPT_MODEL__NAME", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"):
        monkeypatch.setenv(name, "secret")
    for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "needed")
    ask(model_of(stand_in.program, base_url="http://127.0.0.1:9", api_key="mine"), "Hello?")
    seen = stand_in.seen["env"]
    assert "secret" not in seen.values()
    assert (seen["CLAUDE_CODE_OAUTH_TOKEN"], seen["HTTPS_PROXY"], seen["HOME"]) == (
        "needed",
        "needed",
        os.environ["HOME"],
    )
    assert (seen["ANTHROPIC_API_KEY"], seen["ANTHROPIC_BASE_URL"]) == ("mine", "http://127.0.0.1:9")


@pytest.mark.parametrize("times", [1, 30_000])
def test_nothing_private_stands_on_its_command_line(stand_in, times):
    private = "The salary is 83,000. " * times
    ask(model_of(stand_in.program), request("Who is the therapist?", system=private))
    argv = stand_in.seen["argv"]
    assert not any("salary" in argument or "therapist" in argument for argument in argv)
    path = argv[argv.index("--system-prompt-file") + 1]
    assert stand_in.seen["files"][path] == private
    assert stand_in.seen["modes"][path] == 0o600
    assert stand_in.seen["modes"][os.path.dirname(path)] == 0o700
    assert not os.path.lexists(os.path.dirname(path)), "deleted after the answer"


FAILURES = [
    (result("Prompt is too long", is_error=True), ContextOverflow),
    (result("Too much · reduce it", is_error=True, terminal_reason="prompt_too_long"), ContextOverflow),
    (result("Invalid API key · Please run /login", is_error=True), ModelUnavailable),
    (result("Credit balance is too low", is_error=True), ModelUnavailable),
    (result("API Error: 529 Overloaded.", is_error=True, api_error_status=529), ModelFailed),
    (result("", subtype="error_during_execution", is_error=True), ModelFailed),
]


@pytest.mark.parametrize(("line", "kind"), FAILURES)
def test_what_it_says_when_it_fails_is_understood(stand_in, line, kind):
    stand_in.says(line, code=1)
    with pytest.raises(kind) as caught:
        ask(model_of(stand_in.program), "Hello?")
    assert caught.value.message.count("\n") == 0


def test_a_program_that_ends_without_an_answer_is_a_failure_with_its_words(stand_in):
    stand_in.says(delta("Half an"), stderr="Segmentation fault", code=139)
    with pytest.raises(ModelFailed, match="Segmentation fault"):
        ask(model_of(stand_in.program), "Hello?")
    stand_in.says(stderr="error: unknown option '--tools'", code=1)
    with pytest.raises(ModelUnavailable, match="too old"):
        ask(model_of(stand_in.program), "Hello?")


def test_a_program_that_is_not_there_is_told_in_one_line(tmp_path):
    with pytest.raises(ModelUnavailable, match="was not found") as caught:
        model_of("no-such-claude")
    assert "model.program" in caught.value.hint
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o700)
    with pytest.raises(ModelUnavailable, match="could not be started"):
        ask(model_of(broken), "Hello?")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_silent_program_is_stopped_with_everything_it_started(stand_in):
    stand_in.says(delta("Half an"), sleep=True)
    with pytest.raises(ModelFailed, match="sent nothing for"):
        ask(model_of(stand_in.program, timeout_s=3), "Hello?")
    wait_until(lambda: not is_running(stand_in.child), "the end of the killed program")


def test_whoever_stops_listening_stops_the_program(stand_in):
    stand_in.says(delta("Half an"), sleep=True)

    async def listen():
        async for event in model_of(stand_in.program).stream(request("Hello?")):
            if isinstance(event, TextDelta):
                while not Path(f"{stand_in._seen}.child").exists():
                    await asyncio.sleep(0.01)
                raise KeyError("enough")

    with pytest.raises(KeyError):
        asyncio.run(listen())
    wait_until(lambda: not is_running(stand_in.child), "the end of the killed program")


def test_a_program_that_never_ends_is_stopped(stand_in, monkeypatch):
    monkeypatch.setattr("kept.models.claude_cli.MAX_OUTPUT_BYTES", 1_000_000)
    stand_in.says(flood=True)
    with pytest.raises(ModelFailed, match="more than can be an answer"):
        ask(model_of(stand_in.program), "Hello?")


# the conversation on standard input


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=80)), max_size=8))
def test_no_text_can_end_its_line_or_mention_a_file(said):
    rendered = render_conversation(Turn.of(role, text) for role, text in said)
    lines = rendered.splitlines()[2:-2]
    assert [(message["role"], message["text"]) for message in map(json.loads, lines)] == said
    assert "@" not in rendered
    rendered.encode()


# the real program


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, server: ModelServer, tmp_path: Path) -> ModelServer:
    """Claude Code on a machine that knows nothing: no settings but the loopback server's address."""
    for name in [*os.environ]:
        if name not in ("HOME", "KEPT_HOME", "PATH"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KEPT_MODEL__BASE_URL", server.anthropic_url)
    monkeypatch.setenv("KEPT_MODEL__API_KEY", "sk-ant-test-0123456789")
    monkeypatch.setenv("KEPT_MODEL__TOOLS", "false")
    return server


def asked(chat: Any) -> str:
    return json.dumps(chat.body["messages"])


@pytest.mark.node
def test_the_real_program_answers(real):
    real.script(Says("The parrot is green.", usage=(120, 30, 100)))
    events = ask(
        model_of(REAL, name="claude-sonnet-4-5"), request("What colour is it?", system="You are Kept, a parrot.")
    )
    assert text_of(events) == "The parrot is green."
    assert len([event for event in events if isinstance(event, TextDelta)]) > 1
    assert end_of(events).usage == ModelUsage(120, 30, 100)
    (chat,) = real.chats
    assert "You are Kept, a parrot." in json.dumps(chat.body["system"])
    assert chat.body["model"] == "claude-sonnet-4-5"
    assert chat.body.get("tools", []) == []


@pytest.mark.node
def test_the_real_program_reads_no_file_and_runs_no_command_for_whoever_writes_to_it(real, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("TOPSECRET")
    claude_md = Path(os.environ["HOME"]) / ".claude" / "CLAUDE.md"
    claude_md.parent.mkdir(parents=True)
    claude_md.write_text("PRIVATE INSTRUCTIONS")
    real.script(Says("No."))
    ask(model_of(REAL), f"@{secret} /help !cat {secret} see @{secret}")
    (chat,) = real.chats
    assert "TOPSECRET" not in json.dumps(chat.body)
    assert "PRIVATE INSTRUCTIONS" not in json.dumps(chat.body)
    assert str(secret) in asked(chat)


@pytest.mark.node
def test_the_real_program_uses_kepts_own_tools_on_the_same_memory(real, workspace, home, monkeypatch):
    """The whole way: Claude Code starts `kept mcp`, searches, writes, and has to ask nobody whether it may."""
    (workspace / "MEMORY.md").write_text("# Memory\n\n- Staging is on port 5433.\n")
    monkeypatch.setenv("KEPT_MODEL__TOOLS", "true")
    monkeypatch.setenv("KEPT_WORKSPACE", str(workspace))
    real.script(
        Says("Looking.", Call("mcp__kept__memory_search", {"query": "Which port is staging on?"})),
        Says("", Call("mcp__kept__memory_write", {"text": "Ada asked about staging."})),
        Says("It is on 5433."),
    )
    assert text_of(ask(model_of(REAL), "Which port is staging on?")) == "Looking.\n\nIt is on 5433."
    offered = {tool["name"] for tool in real.chats[0].body["tools"]}
    assert {f"mcp__kept__{name}" for name in TOOLS} <= offered
    assert "5433" not in asked(real.chats[0])
    assert "Staging is on port 5433." in asked(real.chats[1])
    assert "MEMORY.md#L1-L3" in asked(real.chats[1]), "with its citation"
    (note,) = (workspace / "memory").iterdir()
    assert "Ada asked about staging." in note.read_text()
