"""The worked examples, as they stand, against a model on loopback."""

import json
from pathlib import Path

import pytest

from tests.support.chat_server import Call, ModelServer, Says
from tests.support.commands import run_python
from tests.support.files import write_file
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"


def run(example: str, server: ModelServer, *question: str) -> str:
    write_file(Path.home() / ".kept/workspace/MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n")
    urls = {"ANTHROPIC_BASE_URL": server.anthropic_url, "OPENAI_BASE_URL": server.openai_url}
    env = {"HOME": str(Path.home()), **urls, "ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    ended = run_python((EXAMPLES / example).read_text(), *question, env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.parametrize("example", ["anthropic_tools.py", "openai_tools.py"])
def test_the_example_searches_corrects_a_wrong_call_and_answers(example):
    with ModelServer() as server:
        server.script(
            Says("", Call("memory_search", {"question": "which port is staging on?"}, id="call_1")),
            Says("", Call("memory_search", {"query": "which port is staging on?"}, id="call_2")),
            Says("It is on 5433 (MEMORY.md#L1-L3)."),
        )
        printed = run(example, server, "Which port is staging on?")
        requests = [json.dumps(chat.body) for chat in server.chats]
    assert printed == "It is on 5433 (MEMORY.md#L1-L3).\n"
    assert "sessions_search" in requests[0], "every tool is offered"
    assert "there is no argument 'question'" in requests[1]
    assert "Staging is on port 5433." in requests[2]
