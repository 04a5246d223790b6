"""The whole of it over real HTTP, in both wire formats, and with a real program: only the model itself is scripted."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys

import pytest

from kept.agent.compaction import verify_receipt
from kept.config import load_config
from kept.llm.extractive import ExtractiveChat
from kept.llm.registry import make_model
from tests.support.agents import open_agent, reply
from tests.support.chat_server import Call, ModelServer, Says
from tests.support.remote_agents import remote
from tests.support.repository import ROOT
from tests.support.workspaces import write_note

pytestmark = pytest.mark.slow

FILLER = "It was a long day with many small things to see to, none of which will matter to anybody in a week. "
both = pytest.mark.parametrize("provider", ["anthropic", "openai"])


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


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


# a program


@pytest.fixture
def claude(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "claude"
    source = (ROOT / "tests/support/fake_claude.py").read_text()
    program.write_text(source.replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
    program.chmod(0o700)
    assert shutil.which(str(program))

    def make(window, chars=None):
        if chars:
            monkeypatch.setenv("ANTHROPIC_STAND_IN_CHARS", str(chars))
        given = {"provider": "claude_cli", "program": str(program), "context_window": window, "tools": False}
        config = load_config(settings={f"model.{name}": value for name, value in given.items()}).config
        return make_model(config.agent.model, config.keys)

    make.heard = lambda: [json.loads(line) for line in (folder / "heard.jsonl").read_text().splitlines()]
    return make


def test_claude_is_given_memories_and_compacted_by_our_own_count(tmp_path, claude):
    with open_agent(tmp_path, claude(4_000)) as at:
        write_note(at.workspace, "memory/servers.md", "The staging database listens on port 5433.\n")
        assert reply(at.say("Which port is the staging database on?")).text == "Yes."
        heard = claude.heard()[0]
        assert "| The staging database listens on port 5433." in heard["stdin"]
        assert "memory_search" not in heard["system"]
        for number in range(12):
            at.say(f"Message {number}. {FILLER * 12}")
        assert at.compactions()
        assert at.session().tokens_context < 4_000  # not the 50,000 that the program speaks of
        assert all(
            verify_receipt(at.memory, at.sessions.folder, compaction.receipt) is None for compaction in at.compactions()
        )


# no model at all


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
