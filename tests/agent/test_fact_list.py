"""Facts in the answers of models to the flush prompt, however they are put."""

import asyncio

import pytest

from kept.agent.answer import TranscriptPiece
from kept.agent.flush import Fact, flush_and_record, parse_facts, select_new_facts
from kept.agent.session_log import SessionLog
from kept.sessions.entries import Message
from kept.testing import ScriptedChat
from tests.support.agents import open_agent
from tests.support.files import write_file

PIECE = TranscriptPiece(3, 40, "…")


def texts(answer):
    return [fact.text for fact in parse_facts(answer, PIECE)]


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        ("- Ann moved to Oslo. [L12]\n- Bob has a dog. [L14-L15]", ["Ann moved to Oslo.", "Bob has a dog."]),
        ("Here are the facts:\n\n1. Ann moved to Oslo.\n2) Bob has a dog.", ["Ann moved to Oslo.", "Bob has a dog."]),
        ("- Staging:\n  - The port is 5433.\n  - The host is alpha.\n- Bob has a dog.",
         ["Staging: The port is 5433.", "Staging: The host is alpha.", "Bob has a dog."]),
        ("- **Servers:**\n    * **Staging**:\n        - Port 5433.\n    * Production is closed.",
         ["Servers: Staging: Port 5433.", "Servers: Production is closed."]),
        ("## Decisions\n\n- We use Postgres.\n\n**People**\n\n- Ann lives in Oslo.\n\nLet me know if you need more!",
         ["We use Postgres.", "Ann lives in Oslo."]),
        ("- [ ] Call Ada on 3 May 2026.\n- [x] The order left.", ["Call Ada on 3 May 2026.", "The order left."]),
        ("Ann moved to Oslo.\nBob has a dog.", ["Ann moved to Oslo.", "Bob has a dog."]),
        ('["Ann moved to Oslo.", "Bob has a dog."]', ["Ann moved to Oslo.", "Bob has a dog."]),
        ('```json\n{"facts": [{"fact": "Ann moved to Oslo.", "lines": "L12"}, 7, null]}\n```', ["Ann moved to Oslo."]),
        ("- Should we call Ada?\n- Ann moved to Oslo.\n- I have saved these facts.", ["Ann moved to Oslo."]),
        ("- The meeting is at 10:30: bring the plan.", ["The meeting is at 10:30: bring the plan."]),
        ("- The API key is sk-ant-api03-abcdefghijklmnopqrstuvwx.\n- Ann moved to Oslo.", ["Ann moved to Oslo."]),
        ("• Ann moved to Oslo.\n– Bob has a dog.", ["Ann moved to Oslo.", "Bob has a dog."]),
    ],
)  # fmt: skip
def test_lists_are_taken_apart_and_only_facts_are_kept(answer, facts):
    assert texts(answer) == facts


@pytest.mark.parametrize(
    "answer",
    [
        "This was small talk. There is nothing worth remembering.",
        "There is nothing to save here.\n\nThe conversation was about the weather.", "- None.\n- Nothing new.", "[]",
        '{"facts": []}', "```json\n[]\n```", "Nichts.", "特になし", "## Facts\n\nNo new facts were mentioned.",
        "Sure! I have saved everything.", "**Facts:**", "What would you like me to remember?",
    ],
)  # fmt: skip
def test_an_answer_without_facts_has_none(answer):
    assert texts(answer) == []


def test_lines_that_the_model_has_not_seen_are_not_cited():
    inside, outside, none = parse_facts("- A holds. [L12-L14]\n- B holds. [L99]\n- C holds.", PIECE)
    assert (inside.first_line, inside.last_line) == (12, 14)
    assert (outside.first_line, outside.last_line) == (none.first_line, none.last_line) == (3, 40)


@pytest.mark.parametrize(
    "text", ["lasting: Ann is a doctor.", "**Lasting**: Ann is a doctor.", "Ann is a doctor. [lasting]"]
)
def test_what_lasts_is_marked_and_the_mark_is_not_part_of_it(text):
    (fact,) = parse_facts(f"- {text}", PIECE)
    assert (fact.text.rstrip("."), fact.is_lasting) == ("Ann is a doctor", True)


def test_lasting_facts_are_in_the_day_and_proposed_for_long_term_memory(tmp_path):
    answer = "- lasting: Ann is allergic to nuts. [L2]\n- The letter left on 14 March 2026. [L3]"
    with open_agent(tmp_path, ScriptedChat([answer, answer])) as at:
        session = at.session()
        at.sessions.append(session.id, Message.of("user", "Ann is allergic to nuts."))
        at.clock.move(days=1)
        at.sessions.append(session.id, Message.of("user", "The letter left yesterday."))
        log = SessionLog(at.sessions, session.id)
        assert asyncio.run(flush_and_record(at.agent.services, log, log.view(), log.view().messages)) == "written"
        state = at.sessions.load(session.id).entries[-1].body.value
        assert (state["facts"], state["proposed"]) == (2, 1)
        assert "- Ann is allergic to nuts. (said 2026-03-14) (from sessions/" in at.today()
        assert "- The letter left on 14 March 2026. (from sessions/" in at.today()
        assert not (at.workspace / "MEMORY.md").exists()
        (item,) = at.memory.review.list().items
        assert (item.path, item.by.tool) == ("MEMORY.md", "flush")
        at.memory.review.accept(item.id)
        assert "- Ann is allergic to nuts. (said 2026-03-14) (from " in (at.workspace / "MEMORY.md").read_text()
        asyncio.run(flush_and_record(at.agent.services, log, log.view(), log.view().messages))
        assert at.memory.review.count() == 0
        assert at.today().count("allergic") == 1


def test_a_flush_leaves_out_what_a_note_or_an_earlier_fact_says(memory, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n")
    facts = [Fact("Staging is on port 6000.", 1, 2), Fact("Staging is on port 5433", 3, 3), Fact("Otters swim.", 4, 4)]
    new = select_new_facts(memory(), [*facts, Fact("otters swim", 5, 5)])
    assert [fact.text for fact in new] == ["Staging is on port 6000.", "Otters swim."]
