"""A memory does not answer with its own answers: in chats, over HTTP, and from imported conversations."""

import pytest

from kept import Message, SessionStore
from kept.models.base import ToolUse
from kept.testing import ScriptedChat
from tests.support.agents import open_agent, reply
from tests.support.files import write_file
from tests.support.workspaces import open_memory, write_note

QUESTION = "which port is staging on?"
OLD = "# 2026-03-10\n\n## 09:00\n\nThe staging database moved to port 5433.\n"


def test_asked_twice_without_a_model_the_new_note_comes_first(kept, workspace):
    write_file(workspace / "memory/2026-03-10.md", OLD)
    chat = ("--set", "model.provider=extractive", "chat", "-m")
    first = kept(*chat, QUESTION).out
    assert "5433" in first
    assert kept(*chat, QUESTION).out == first, "its own answer is not an answer"
    kept("add", "Staging is now on port 6000.")
    found = kept("search", QUESTION, "--json").json["results"]
    assert [hit["source"] for hit in found] == ["memory", "memory"]
    assert "6000" in found[0]["snippet"]
    assert [other["path"] for other in found[0]["newerThan"]] == ["memory/2026-03-10.md"]
    assert "      newer than memory/2026-03-10.md#L1-L5\n" in kept("search", QUESTION).out


def quoting(request):
    """Search, then answer with a quotation of the first result."""
    outputs = [part.text for part in request.turns[-1].parts if hasattr(part, "call_id")]
    if not outputs:
        return ToolUse("1", "memory_search", {"query": QUESTION})
    fact = next(line.lstrip("|> ") for line in outputs[0].split("\n") if "staging database" in line)
    return f"Your notes say: “{fact}”"


def recalling(request):
    """Answer with what was recalled, without a tool."""
    text = "\n".join(part.text for part in request.turns[-1].parts)
    return next(line.lstrip("|> ") for line in text.split("\n") if "staging database" in line)


@pytest.mark.parametrize("answer", [quoting, recalling])
def test_asked_three_times_and_answered_with_a_quote_a_changed_note_is_found_in_its_new_form_first(tmp_path, answer):
    with open_agent(tmp_path, ScriptedChat(answer)) as agent:
        path = write_note(agent.workspace, "memory/2026-03-10.md", OLD)
        for user in ("ada", "bob", "ada"):
            assert "5433" in reply(agent.say(QUESTION, session=agent.session(user).id)).text
        path.write_text(OLD.replace("5433", "6000"))
        hits = agent.memory.search(QUESTION).hits
        assert (hits[0].path, "6000" in hits[0].snippet) == ("memory/2026-03-10.md", True)
        assert "6000" in reply(agent.say(QUESTION, session=agent.session("cleo").id)).text


def test_a_turn_that_repeats_a_note_is_one_more_line_below_it(kept, workspace):
    write_file(workspace / "memory/2026-03-10.md", OLD)
    with SessionStore.open() as sessions:
        session = sessions.get_or_create("telegram", "5054")
        sessions.append(session.id, Message.of("user", "The staging database moved to port 5433."))
    shown = kept("search", "staging database port").out
    citation = f"{session.citation}#L2"
    assert f"      also in {citation}\n" in shown
    assert shown.count("5433") == 1
    (hit,) = kept("search", "staging database port", "--json").json["results"]
    assert [other["citation"] for other in hit["alsoIn"]] == [citation]
    assert "5433" in kept("get", citation).out


def test_a_model_is_told_where_else_it_is_said_and_what_is_older(tmp_path):
    from kept import Toolbox

    write_note(tmp_path / "workspace", "memory/2026-03-10.md", OLD)
    write_note(
        tmp_path / "workspace", "memory/2026-03-12.md", OLD.replace("2026-03-10", "2026-03-12").replace("5433", "6000")
    )
    with SessionStore.open(home=tmp_path / "home") as sessions, open_memory(tmp_path) as memory:
        session = sessions.get_or_create("telegram", "5054")
        sessions.append(session.id, Message.of("user", "The staging database moved to port 6000."))
        outcome = Toolbox(memory, sessions).run("memory_search", {"query": "staging database port"})
    assert f"\nNewer than memory/2026-03-10.md#L1-L5.\nAlso in {session.citation}#L2." in outcome.text
    assert outcome.result.hits[0].also_in[0].source == "sessions"
