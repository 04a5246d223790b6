"""What a model can do with the memory, and what it is told when it asks wrongly."""

import datetime as dt

import pytest

from kept.agent.tools.tool_definitions import TOOLS, definitions
from kept.agent.tools.toolbox import HANDLERS, Toolbox
from kept.errors import UsageError
from kept.sessions.entries import Message, StateEntry
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock
from tests.support.files import write_file

NOW = dt.datetime(2026, 3, 14, 15, 9, 26).astimezone()


@pytest.fixture
def toolbox(memory, home, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- The espresso machine is descaled every March.\n")
    write_file(workspace / "memory/2026-03-13.md", "# 2026-03-13\n\n## 10:00\n\nStaging moved to port 5433.\n")
    clock = FrozenClock(NOW)
    with SessionStore.open(home=home, clock=clock) as sessions:
        yield Toolbox(memory(clock=clock), sessions)


def talk(toolbox, person="5054", question="Where is the spare key?", answer="Under the blue flower pot."):
    session = toolbox.sessions.get_or_create("telegram", person)
    toolbox.sessions.append(session.id, Message.of("user", question))
    toolbox.sessions.append(session.id, Message.of("assistant", answer))
    return session


def test_every_tool_has_a_handler_and_every_handler_a_tool():
    assert set(HANDLERS) == {tool.name for tool in TOOLS}


def test_definitions_are_what_the_two_apis_take():
    anthropic, openai = definitions("anthropic"), definitions("openai")
    assert [definition["name"] for definition in anthropic] == [tool.name for tool in TOOLS]
    assert all(set(definition) == {"name", "description", "input_schema"} for definition in anthropic)
    assert [definition["function"]["name"] for definition in openai] == [tool.name for tool in TOOLS]
    assert all(
        definition["type"] == "function" and definition["function"]["parameters"]["type"] == "object"
        for definition in openai
    )
    with pytest.raises(UsageError, match="grok"):
        definitions("grok")  # type: ignore[arg-type]


def test_every_filter_of_a_search_filters(toolbox):
    talk(toolbox, question="Which port is staging on?", answer="Staging is on port 5433.")

    def sources(**more):
        outcome = toolbox.run("memory_search", {"query": "staging port", **more})
        assert not outcome.is_error, outcome.text
        return {hit.source for hit in outcome.result.hits}

    assert sources() == {"memory", "sessions"}
    assert sources(source="memory") == {"memory"}
    assert sources(channel="telegram") == {"sessions"}
    assert sources(channel="signal") == set()
    assert sources(since="2026-03-14") == {"sessions"}
    assert sources(until="2026-03-13") == {"memory"}
    assert sources(path="memory") == {"memory"}
    nowhere = toolbox.run("memory_search", {"query": "staging port", "path": "nowhere"})
    assert "No note matches 'nowhere'" in nowhere.text
    assert len(toolbox.run("memory_search", {"query": "staging port", "maxResults": 1}).result.hits) == 1
    assert toolbox.run("memory_search", {"query": "staging port", "minScore": 1}).result.hits == ()


def test_a_note_is_read_by_path_by_citation_and_by_lines(toolbox):
    whole = toolbox.run("memory_get", {"path": "MEMORY.md"})
    assert whole.result.text == "# Memory\n\n- The espresso machine is descaled every March."
    cited = toolbox.run("memory_get", {"path": "MEMORY.md#L3"})
    assert (cited.result.start, cited.result.text) == (3, "- The espresso machine is descaled every March.")
    lines = toolbox.run("memory_get", {"path": "MEMORY.md", "from": 1, "lines": 1.0})
    assert (lines.result.text, lines.result.next_from) == ("# Memory", 2)
    assert "read on from line 2" in lines.text
    beyond = toolbox.run("memory_get", {"path": "MEMORY.md", "from": 900})
    assert beyond.text == "MEMORY.md has no line 900."


def test_a_daily_log_is_read_by_its_date(toolbox):
    for date in ("2026-03-13", "yesterday"):
        outcome = toolbox.run("memory_get", {"date": date})
        assert outcome.result.path == "memory/2026-03-13.md", outcome.text
    assert toolbox.run("memory_get", {"date": "today"}).result.code == "note_not_found"
    assert "not a date" in toolbox.run("memory_get", {"date": "../../etc/passwd"}).text


def test_what_is_written_is_found_by_the_next_search(toolbox, workspace):
    outcome = toolbox.run("memory_write", {"text": "Ines prefers green tea."})
    assert "Ines prefers green tea." in (workspace / "memory/2026-03-14.md").read_text()
    search = toolbox.run("memory_search", {"query": "what does Ines prefer to drink"})
    assert search.result.hits[0].path == outcome.result.path
    toolbox.run("memory_write", {"text": "Born in Porto.", "to": "memory/ines.md"})
    assert (workspace / "memory/ines.md").read_text() == "Born in Porto.\n"


def test_conversations_are_found_by_what_was_said(toolbox):
    session = talk(toolbox)
    talk(toolbox, person="7", question="How tall is the tower?", answer="Ninety metres.")
    outcome = toolbox.run("sessions_search", {"query": "spare key flower pot"})
    best, hits = outcome.result[0]
    assert best.id == session.id
    assert hits[0].source == "sessions"
    assert "> " in outcome.text
    assert "blue flower pot" in outcome.text
    read = toolbox.run("memory_get", {"path": best.citation})
    assert "Under the blue flower pot." in read.result.text


def test_one_conversation_is_searched_and_has_a_title(toolbox):
    session = talk(toolbox)
    talk(toolbox, person="7")
    for reference in (session.id, session.id[:10], f"{session.channel}:{session.user_id}", session.key):
        outcome = toolbox.run("memory_search", {"query": "spare key", "session": reference, "minScore": 0})
        assert {hit.path for hit in outcome.result.hits} == {session.citation}
        assert {hit.title for hit in outcome.result.hits} == {toolbox.sessions.get(session.id).title}
        for more in ({}, {"query": "spare key"}):
            listed = toolbox.run("sessions_search", {"session": reference, **more}).result
            assert [record.id for record, _ in listed] == [session.id]
            assert listed[0][0].title
    for tool in ("memory_search", "sessions_search"):
        outcome = toolbox.run(tool, {"query": "key", "session": "nowhere"})
        assert outcome.is_error
        assert "sessions_search without a query lists the latest conversations." in outcome.text


def test_without_a_question_the_latest_conversations_are_listed(toolbox):
    assert toolbox.run("sessions_search", {}).text == "No conversation was found."
    first = talk(toolbox)
    toolbox.memory.clock.move(days=3)
    second = talk(toolbox, person="7")

    def ids(**more):
        outcome = toolbox.run("sessions_search", more)
        return [record.id for record, _ in outcome.result]

    assert ids() == [second.id, first.id]
    assert ids(maxResults=1) == [second.id]
    assert ids(since="2026-03-16") == [second.id]
    assert ids(until="2026-03-15") == [first.id]
    assert ids(channel="signal") == []


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("memory_serach", {}, "no tool 'memory_serach'"),
        ("memory_search", {}, "'query' is missing"),
        ("memory_search", {"query": None}, "'query' is missing"),
        ("memory_search", {"query": "   "}, "'query' is empty"),
        ("memory_search", {"query": 5}, "has to be text"),
        ("memory_search", {"query": "a", "max_results": 3}, "It takes: query, maxResults"),
        ("memory_search", {"query": "a", "maxResults": "3"}, "has to be a whole number"),
        ("memory_search", {"query": "a", "maxResults": True}, "has to be a whole number"),
        ("memory_search", {"query": "a", "maxResults": 0}, "from 1 to 50"),
        ("memory_search", {"query": "a", "minScore": float("nan")}, "has to be a number"),
        ("memory_search", {"query": "a", "source": "web"}, "one of: memory, sessions"),
        ("memory_search", {"query": "a", "since": "last spring"}, "not a date"),
        ("memory_search", {"query": "a" * 5000}, "too long"),
        ("memory_search", ["query"], "have to be an object"),
        ("memory_get", {}, "either a path or a date"),
        ("memory_get", {"path": "MEMORY.md", "date": "today"}, "either a path or a date"),
        ("memory_get", {"path": "memory/none.md"}, "memory_search shows paths"),
        ("memory_get", {"path": "memory/MEMROY.md"}, "Did you mean 'MEMORY.md'?"),
        ("memory_get", {"path": "MEMORY.md", "lines": 3.5}, "whole number"),
        ("memory_write", {"text": "x", "to": "../out.md"}, "'..' is not allowed"),
        ("memory_write", {"text": "\n \n"}, "is empty"),
        ("memory_write", {"text": "x", "to": "notes.md"}, "would not be searched"),
        ("memory_status", {"verbose": True}, "takes no arguments"),
    ],
)
def test_a_wrong_call_is_an_outcome_that_says_what_to_do(toolbox, name, arguments, says):
    outcome = toolbox.run(name, arguments)
    assert outcome.is_error
    assert says in outcome.text
    assert outcome.result.hint


def test_without_a_workspace_every_tool_says_how_to_make_one(toolbox, workspace):
    workspace.rename(workspace.with_name("elsewhere"))
    for name, arguments in (
        ("memory_search", {"query": "a"}),
        ("memory_write", {"text": "a"}),
        ("memory_status", {}),
        ("sessions_search", {"query": "a"}),
    ):
        outcome = toolbox.run(name, arguments)
        assert outcome.is_error, name
        assert "kept init" in outcome.text


def test_the_check_of_arguments_knows_all_that_the_schemas_say():
    known = {"type", "description", "enum", "minLength", "maxLength", "minimum", "maximum"}
    for tool in TOOLS:
        assert set(tool.parameters) == {"type", "properties", "required", "additionalProperties"}
        for schema in tool.parameters["properties"].values():
            assert set(schema) <= known
            assert ("minimum" in schema) == ("maximum" in schema)
            assert schema["type"] != "string" or "maxLength" in schema or "enum" in schema


def test_a_secret_that_a_model_writes_is_redacted_in_the_note_and_the_index(toolbox, workspace):
    key = "sk-ant-api03-" + "a1B2c3D4" * 5
    outcome = toolbox.run("memory_write", {"text": f"The key of the bot is {key}.", "to": "memory/bot.md"})
    assert not outcome.is_error
    note = (workspace / "memory/bot.md").read_text()
    assert "The key of the bot is" in note
    assert key not in note
    assert key not in toolbox.run("memory_search", {"query": f"key of the bot {key}"}).text.replace(f"bot {key}", "")


def test_the_title_of_a_conversation_is_redacted(toolbox):
    session = talk(toolbox)
    key = "sk-proj-" + "a1B2c3D4" * 4
    toolbox.sessions.append(session.id, StateEntry("title", f"Rotate {key} today"))
    outcome = toolbox.run("sessions_search", {})
    assert outcome.result[0][0].title == "Rotate [redacted] today"
    assert key not in outcome.text


def test_a_search_takes_tags_and_the_status_lists_them(toolbox, workspace):
    write_file(workspace / "memory/ada.md", "---\ntags: [vip, area/home]\n---\n\nThe engine. #old\n")
    write_file(workspace / "memory/bob.md", "Another engine. #vip\n")
    for tags in ("#vip, area", ["vip", "area"]):
        outcome = toolbox.run("memory_search", {"query": "engine", "tags": tags})
        assert [hit.path for hit in outcome.result] == ["memory/ada.md"]
    status = toolbox.run("memory_status", {})
    assert "\n> tags: #vip (2), #area (1), " in status.text


def test_a_heading_that_a_passage_begins_with_is_not_said_twice(toolbox, workspace):
    write_file(workspace / "memory/a.md", "# Birds\n\n## Log\n\nThe parrot is green.\n")
    text = toolbox.run("memory_search", {"query": "is the parrot green?"}).text
    assert "> ## Log" in text
    assert "under:" not in text


def test_a_note_that_tools_may_not_write_names_what_to_do_instead(memory, workspace, home):
    write_file(workspace / "People/Ben Okafor.md", "- Phone +31 6 1234 5678\n")
    with SessionStore.open(home=home) as sessions:
        toolbox = Toolbox(memory(settings={"workspace_layout": "vault"}), sessions)
        for call in ({"to": "People/Ben Okafor.md"}, {"replaces": "People/Ben Okafor.md#L1"}):
            outcome = toolbox.run("memory_write", {"text": "Phone +31 6 9999 0000", **call})
            assert outcome.is_error
            assert "name this note in it, and tell the user" in outcome.text
            assert "Markdown file inside the workspace" not in outcome.text


def test_notes_can_be_listed_without_a_question(toolbox, workspace):
    write_file(workspace / "memory/projects/bees.md", "# Bees\n\nThey fly. #garden\n")
    write_file(workspace / "memory/2026-03-02.md", "# 2026-03-02\n\n## 09:30\n\nStaging moved.\n")
    outcome = toolbox.run("memory_list", {"path": "memory/projects"})
    assert [file.path for file in outcome.result] == ["memory/projects/bees.md"]
    assert "[1] memory/projects/bees.md (" in outcome.text
    assert "> title: Bees\n> begins: They fly. #garden" in outcome.text
    assert toolbox.run("memory_list", {"tags": "garden"}).result.total == 1
    assert toolbox.run("memory_list", {"since": "2026-03-02", "until": "2026-03-02"}).result.total == 1
    everything = toolbox.run("memory_list", {"maxResults": 1, "order": "change"})
    assert (len(everything.result), everything.result.total > 1) == (1, True)
    assert "1 of " in everything.text
    nothing = toolbox.run("memory_list", {"tags": "gardn"})
    assert "Nothing matches." in nothing.text
    assert "> No note has the tag 'gardn'." in nothing.text
