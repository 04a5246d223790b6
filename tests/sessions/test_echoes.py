"""What a conversation repeats from memory is not something said."""

import datetime as dt

import pytest

from kept import TOOLS, Message, SessionStore
from kept.agent.context import RecalledPassage, TurnMaterial, build_context, plan_budget
from kept.agent.recent_context import recent_context
from kept.agent.tools.tool_text import passage_text, search_text
from kept.base.records import Hit, Occurrence, Passage, SearchResult
from kept.config.schema import CompactionSettings
from kept.sessions.echoes import EchoFilter, is_memory_call, is_memory_tool, strip_echoes
from kept.sessions.entries import Text, ToolCall, ToolResult
from tests.support.chat_requests import turn_text
from tests.support.context_strategies import view
from tests.support.workspaces import open_memory, write_note

SECRET = b"s" * 32


@pytest.mark.parametrize("prefix", ["", "mcp__kept__", "mcp__plugin_kept_kept__", "kept.", "kept__", "mcp_server/"])
def test_the_tools_of_kept_are_known_under_any_client_s_name(prefix):
    assert all(is_memory_tool(prefix + tool.name) for tool in TOOLS)


@pytest.mark.parametrize(
    ("name", "is_memory"),
    [
        ("mcp__plugin_claude-mem_mcp-search__search", True),
        ("mcp__basic-memory__read_note", True),
        ("mcp__memory__search_nodes", True),
        ("mcp__memory__create_entities", False),
        ("Read", False),
        ("mcp__github__search_code", False),
        ("Bash", False),
        ("memorise", False),
    ],
)
def test_reading_from_a_similar_program_counts_and_other_tools_do_not(name, is_memory):
    assert is_memory_tool(name) is is_memory


@pytest.mark.parametrize(
    ("command", "is_memory"),
    [
        ("kept search which port", True),
        ("cd /srv && ~/.local/bin/kept --agent main search port", True),
        (["kept", "get", "MEMORY.md"], True),
        ("git kept search", False),
        ("grep kept README.md", False),
        ("kept add 'Staging moved.'", False),
    ],
)
def test_kept_in_a_shell_counts_too(command, is_memory):
    assert is_memory_call(ToolCall("1", "Bash", {"command": command})) is is_memory


def test_a_call_and_its_result_are_left_out_and_everything_else_stays():
    echoes = EchoFilter()
    other = ToolCall("2", "Read", {"path": "a.py"})
    call = ToolCall("1", "mcp__kept__memory_search", {"query": "port"})
    assert echoes.read(Message("assistant", (Text("I look."), call, other))) == ((Text("I look."), other), False)
    result = ToolResult("2", "import os")
    assert echoes.read(Message("tool", (ToolResult("1", "1 result"), result)))[0] == (result,)
    named = ToolResult("3", "1 result", name="memory_search")
    assert echoes.read(Message("tool", (named, ToolResult("1", "another"))))[0] == (ToolResult("1", "another"),)


def test_an_answer_after_a_search_is_from_memory_until_something_else_is_done():
    echoes = EchoFilter()
    answer = Message.of("assistant", "Staging is on port 5433.")

    def is_recalled() -> bool:
        return echoes.read(answer)[1]

    assert not is_recalled()
    echoes.read(Message("assistant", (ToolCall("1", "memory_search", {}),)))
    echoes.read(Message("tool", (ToolResult("1", "x"),)))
    assert is_recalled()
    echoes.read(Message("assistant", (ToolCall("2", "Bash", {"command": "ls"}),)))
    assert not is_recalled()
    echoes.read(Message("assistant", (ToolCall("3", "memory_search", {}),)))
    echoes.read(Message.of("user", "And now?"))
    assert not is_recalled()
    assert echoes.read(Message.of("assistant", "5433 (memory/a.md#L3)"))[1]
    assert echoes.read(Message.of("assistant", "5433", metadata={"recalled": ["memory/a.md#L3"]}))[1]


def hit(text: str, **more) -> Hit:
    return Hit("memory/a.md", 1, 5, 0.83, None, None, text, "memory", "2026-03-13T00:00:00+01:00", "Staging", **more)


NESTED = "> [2026-03-14 15:09] Assistant: 1 result, best first:\n> > The port is 5433.\n\nThe port is 5433."


@pytest.mark.parametrize(
    "answer",
    [
        search_text(SearchResult((hit("The port is 5433."), hit(NESTED)), degraded=("Searching by word only.",))),
        search_text(SearchResult((hit("5433", also_in=(Occurrence("sessions/a.jsonl", 3, 3, "sessions", ""),)),))),
        search_text(SearchResult((hit("The port is 5433.", further=(hit("Or 5434,\nsince March."),)),))),
        search_text(SearchResult(())),
        passage_text(Passage("memory/a.md", 1, 2, "The port\nis 5433.", truncated=True, next_from=3)),
    ],
)
def test_an_answer_of_a_tool_that_is_passed_on_says_nothing(answer):
    assert strip_echoes(answer).strip() == ""
    assert strip_echoes(f"{answer}\n\nI hope this helps.").strip() == "I hope this helps."


def test_the_blocks_of_a_request_are_taken_out_and_the_message_stays():
    conversation = view([Message.of("user", "Which port?")])
    material = TurnMaterial(
        view=conversation,
        path="sessions/a.jsonl",
        agent="main",
        now=dt.datetime(2026, 3, 14, tzinfo=dt.UTC),
        files={"MEMORY.md": "Ada keeps bees."},
        recalled=(RecalledPassage("The port is 5433.", "memory/a.md#L1", "2026-03-13", "memory"),),
        answering=(conversation.messages[0].entry.id,),
    )
    budget = plan_budget(100_000, CompactionSettings())
    request = build_context(material, budget, secret=SECRET).request
    text = "\n".join(turn_text(turn) for turn in request.turns)
    assert "5433" in text
    assert strip_echoes(text).strip() == "Which port?"
    assert "Ada keeps bees." not in strip_echoes(request.system)


def test_the_context_that_a_hook_adds_is_taken_out(tmp_path):
    write_note(tmp_path / "workspace", "MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n")
    with SessionStore.open(home=tmp_path / "home") as sessions, open_memory(tmp_path) as memory:
        context = recent_context(memory, sessions, cwd=None, current=None, sent="recent")
    assert "5433" in context
    assert strip_echoes(f"Hello.\n\n{context}\n\nWhat now?").split() == ["Hello.", "What", "now?"]
    assert strip_echoes(f"<system-reminder>\n{context}\n</system-reminder>Go on.") == "Go on."


@pytest.mark.parametrize("tag", ["claude-mem-context", "relevant-memories", "relevant_memories", "system-reminder"])
def test_blocks_of_similar_programs_are_taken_out(tag):
    assert strip_echoes(f"<{tag}>\n- The port is 5433.\n</{tag}>\nWhich port?").strip() == "Which port?"


@pytest.mark.parametrize(
    "text",
    [
        "The <system-reminder> tag is explained in the docs.",
        "<memory unit='KiB'>1048576</memory>",
        "> Dear Ada,\n> come and see the bees.",
        "See gateway/app.py, lines 3 to 5:\n\nimport os",
        "There are 3 results, best first: a, b, c.",
        "[1] a list (of things)",
    ],
)
def test_what_only_looks_similar_stays(text):
    assert strip_echoes(text) == text
