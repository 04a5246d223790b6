"""The whole of it over real HTTP, in both wire formats, and with a real program: only the model itself is scripted."""

import asyncio
import json
import re

import pytest

from kept.config import load_config
from kept.models.extractive import ExtractiveChat
from tests.support.agents import open_agent, reply
from tests.support.chat_server import Call, Says
from tests.support.remote_agents import remote
from tests.support.repository import ROOT
from tests.support.workspaces import write_note

pytestmark = pytest.mark.slow

FILLER = "It was a long day with many small things to see to, none of which will matter to anybody in a week. "
both = pytest.mark.parametrize("provider", ["anthropic", "openai"])


@both
def test_a_question_is_answered_from_memory_with_a_tool(tmp_path, server, provider):
    server.script(
        Says("Let me look.", Call("memory_search", {"query": "staging database port"}), usage=(900, 20, 0)),
        Says("Port 5433, says memory/servers.md#L1.", usage=(1100, 15, 900)),
    )
    with remote(tmp_path, server, provider, **{"gateway.auto_responder.memory_search_max_results": 0}) as at:
        write_note(at.workspace, "memory/servers.md", "The staging database listens on port 5433.\n")
        events = at.say("Which port is staging on?")
        assert reply(events).text == "Let me look.\n\nPort 5433, says memory/servers.md#L1."
        second = json.dumps(server.chats[1].body)
        assert re.search(r"\\n\| [> ]*The staging database listens on port 5433\.", second)  # in a block
        assert "memory/servers.md#L1" in second
        assert at.session().tokens_in == 2000
        assert at.session().tokens_context == 1115
        assert [message.role for message in at.messages()] == ["user", "assistant", "tool", "assistant"]


def test_without_a_model_a_question_is_answered_with_what_is_found(tmp_path):
    with open_agent(tmp_path, ExtractiveChat(context_window=4_000)) as at:
        write_note(at.workspace, "memory/servers.md", "The staging database listens on port 5433.\n")
        text = reply(at.say("Which port is the staging database on?")).text
        assert "The staging database listens on port 5433." in text
        assert "memory/servers.md" in text
        assert "[data " not in text
        for number in range(12):
            at.say(f"Remember that box {number} holds {number * 3} candles. {FILLER * 8}")
        assert at.compactions()[0].source == "extractive"
        assert at.compactions()[0].receipt["searchable"]
        assert at.flushes()[0]["fallback"] == "extractive"
        assert "box 0 holds 0 candles" in at.today()


def test_a_search_finds_neither_the_question_that_is_being_answered_nor_an_earlier_one(tmp_path):
    with open_agent(tmp_path, ExtractiveChat()) as at:
        assert "Nothing is remembered about that." in reply(at.say("Which port is staging on?")).text
        at.sessions.reset(at.session().id)
        assert "Nothing is remembered about that." in reply(at.say("Which port is staging on?")).text


def test_the_example_in_the_documentation_runs(tmp_path, capsys):
    page = (ROOT / "docs/reference/python.md").read_text()
    (code,) = [
        block for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "async def answer" in block
    ]
    write_note(tmp_path / "workspace", "memory/servers.md", "The staging database listens on port 5433.\n")
    settings = {"model.provider": "extractive"}
    loaded = load_config(home=str(tmp_path / "home"), workspace=str(tmp_path / "workspace"), settings=settings)
    names = {}
    exec(code, names)
    asyncio.run(names["answer"](loaded, "Which port is the staging database on?"))
    assert "port 5433" in capsys.readouterr().out
