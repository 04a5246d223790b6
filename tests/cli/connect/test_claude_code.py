"""The real Claude Code, with an empty environment, a home of its own and a model on loopback."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.chat_server import Call, ModelServer, Says
from tests.support.files import write_file
from tests.support.repository import NODE_PATH

pytestmark = pytest.mark.node

QUESTION = "Which port is staging on?"
NOTE = "# Memory\n\n- Staging is on port 5433.\n"


WAIT = Call("Bash", {"command": "sleep 1", "description": "Wait for the memory"})
"""A server may take its time on a busy machine, and until it is there its tools are not."""


def answer(request):
    """A model that searches its memory before it answers, with what it finds."""
    tools = [tool["name"] for tool in request.body.get("tools", [])]
    search = next((name for name in tools if name.endswith("__memory_search")), None)
    results = [block for block in blocks(request) if block["type"] == "tool_result" and "5433" in json.dumps(block)]
    if results:
        return Says("It is on 5433.")
    waited = sum(block["type"] == "tool_use" for block in blocks(request))
    if search:
        return Says("", Call(search, {"query": QUESTION})) if waited < 60 else Says("I do not know.")
    return Says("", WAIT) if waited < 60 and "Bash" in tools else Says("I have no memory.")


def blocks(request):
    contents = [message["content"] for message in request.body["messages"]]
    return [block for content in contents if isinstance(content, list) for block in content]


@pytest.fixture
def model():
    with ModelServer() as server:
        server.otherwise = answer
        yield server


@pytest.fixture
def claude(model, tmp_path, workspace, home):
    """Runs the program to its end; nothing of the machine's own settings reaches it."""
    project = tmp_path / "project"
    project.mkdir()
    env = {
        "PATH": f"{NODE_PATH}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(Path.home()),
        "ANTHROPIC_BASE_URL": model.anthropic_url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",  # every tool is in the first request, where the script looks for it
        "MCP_CONNECTION_NONBLOCKING": "0",
        "MCP_TIMEOUT": "120000",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["claude", *arguments],
            env=env,
            cwd=project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    return run


def result_of(ended):
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return json.loads(ended.stdout)


def test_the_plugin_brings_context_in_and_takes_what_was_said_along(claude, kept, model, workspace, tmp_path):
    write_file(workspace / "MEMORY.md", NOTE)
    assert kept("connect", "claude-code").code == 0
    allow = ("--allowedTools", "mcp__plugin_kept_kept__memory_search,Bash(sleep 1)", "--output-format", "json")
    first = result_of(claude("-p", QUESTION, *allow))
    assert first["result"] == "It is on 5433."
    assert "Staging is on port 5433." in json.dumps(model.chats[0].body["messages"]), "from the hook, before any search"
    listed = kept("sessions", "list", "--json").json["sessions"]
    assert [session["sessionId"] for session in listed] == [first["session_id"]], "taken in without being asked"
    assert "It is on 5433." in kept("sessions", "show", first["session_id"]).out
    assert listed[0]["title"] == QUESTION
    assert os.path.getsize(listed[0]["transcriptPath"]) < 40_000, "without prompts, requests and lists of tools"

    earlier_chats = len(model.chats)
    model.otherwise = Says("About staging.")
    second = result_of(claude("-p", "What did I ask before?", *allow))
    assert "The end of the last conversation here" in json.dumps(model.chats[earlier_chats].body["messages"])
    listed = kept("sessions", "list", "--json").json["sessions"]
    assert {session["sessionId"] for session in listed} == {first["session_id"], second["session_id"]}


def test_claude_code_finds_nothing_wrong_with_the_plugin(claude, kept, home):
    assert kept("connect", "claude-code").code == 0
    for folder in (home / "claude-code", home / "claude-code/kept"):
        ended = claude("plugin", "validate", "--strict", str(folder))
        assert ended.returncode == 0, ended.stdout
        assert "Validation passed" in ended.stdout
