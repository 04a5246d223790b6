"""Without a model: the sentences that matter, as they were said, with their dates."""

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from kept.base.limits import estimate_tokens
from kept.models.base import ToolOutput, ToolUse, Turn
from kept.models.extractive import ExtractiveChat, extract_summary, salient_facts, split_sentences
from kept.sessions.entries import Entry, Message
from kept.sessions.spoken import Utterance, find_utterance
from tests.support.chat_requests import SEARCH, ask, end_of, request, text_of, tools_of

NOON = dt.datetime(2026, 3, 14, 12, tzinfo=dt.UTC)
SMALL_TALK = [
    "Hi there! How are you today?",
    "Thanks, great to hear.",
    "Sure. Let me know if I can help with anything else.",
]


def said(*texts: str, speaker: str = "Ann") -> list[Utterance]:
    messages = (Message.of("user", text, sender=speaker) for text in texts)
    entries = (Entry(str(at), None, NOON + dt.timedelta(hours=at), message) for at, message in enumerate(messages))
    return list(filter(None, (find_utterance(at, entry) for at, entry in enumerate(entries))))


def test_facts_are_told_from_small_talk_and_keep_their_origin():
    facts = salient_facts(
        said(*SMALL_TALK, "Well. We decided to move the staging database to port 5433. Nice weather.", *SMALL_TALK)
    )
    assert [fact.text for fact in facts] == ["We decided to move the staging database to port 5433."]
    assert (facts[0].speaker, facts[0].line, facts[0].when) == ("Ann", 3, "2026-03-14 15:00")
    assert salient_facts(said(*SMALL_TALK)) == []


def test_a_summary_is_dated_in_order_and_within_its_budget():
    talk = said(*(f"On day {at} we decided on plan number {at}." for at in range(60)))
    for budget in (0, 10, 50, 200, 100_000):
        summary = extract_summary(talk, budget)
        assert estimate_tokens(summary) <= budget
    lines = [line for line in summary.splitlines() if line.startswith("-")]
    assert len(lines) == 60
    assert lines[0] == "- 12:00 Ann: On day 0 we decided on plan number 0. [L0]"
    assert [line for line in summary.splitlines() if line.endswith(":")] == [
        "2026-03-14:",
        "2026-03-15:",
        "2026-03-16:",
    ]


def test_what_was_said_twice_stands_once_and_a_changed_number_twice():
    twice = extract_summary(said("The port of staging is 5432.", "The port of staging is 5432!"), 100)
    assert twice.count("5432") == 1
    assert "L1" in twice, "the later one counts"
    changed = extract_summary(said("The port of staging is 5432.", "The port of staging is 5433."), 100)
    assert "5432" in changed
    assert "5433" in changed


def test_secrets_are_taken_out():
    key = "sk-" + "a1b2c3d4" * 4
    talk = said(f"Remember that my key is {key} for the server.")
    assert key not in extract_summary(talk, 100)
    assert key not in salient_facts(talk)[0].text


def test_a_speaker_cannot_begin_a_line_of_its_own():
    (line,) = extract_summary(said("We decided on plan B.", speaker="Ann\n- system"), 100).splitlines()[1:]
    assert line == "- 12:00 Ann - system: We decided on plan B. [L0]"


def test_sentences_end_where_a_reader_ends_them():
    text = "Dr. Ruth came at 3.30 p.m. with e.g. cake. She left!\n- One item\n```\ncode. Here.\n```\n“Good.” Then more…"
    assert split_sentences(text) == [
        "Dr. Ruth came at 3.30 p.m. with e.g. cake.",
        "She left!",
        "One item",
        "“Good.”",
        "Then more…",
    ]


@given(st.lists(st.text(max_size=200), max_size=20), st.integers(0, 300))
def test_any_talk_has_a_summary_that_fits(texts, budget):
    talk = said(*texts)
    summary = extract_summary(talk, budget)
    assert estimate_tokens(summary) <= budget
    assert summary == extract_summary(talk, budget)
    assert all(line.startswith("- ") or line in ("", "2026-03-14:", "2026-03-15:") for line in summary.splitlines())


def test_as_a_model_it_answers_with_what_the_search_finds():
    events = ask(ExtractiveChat(), request("Where is staging?", tools=(SEARCH,)))
    (call,) = tools_of(events)
    assert (call.name, call.arguments, end_of(events).reason) == (
        "memory_search",
        {"query": "Where is staging?"},
        "tools",
    )
    output = Turn("user", (ToolOutput(call.id, "memory/a.md#L1: port 5433"),))
    events = ask(ExtractiveChat(), request("Where is staging?", Turn("assistant", (call,)), output, tools=(SEARCH,)))
    assert (text_of(events), end_of(events).reason) == ("memory/a.md#L1: port 5433", "end")
    assert isinstance(call, ToolUse)
