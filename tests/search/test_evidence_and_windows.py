"""Evidence for an utterance, the part of a conversation that is shown, and scores that are the sum of their parts."""

import datetime as dt
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept import Message, SessionStore
from kept.base.clock import DAY_MS
from kept.base.records import Filter
from kept.index.sqlite.rows import ChunkRow
from kept.search.candidates import CandidatePool, Evidence
from kept.search.scores import score_chunk
from kept.search.selection import MAX_CHARS, Windows
from kept.testing import FrozenClock
from tests.support.workspaces import open_memory

NOW = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=dt.timezone(dt.timedelta(hours=1)))


def utterance(row: int, text: str, *, speaker: str = "User", line: int | None = None, at_ms: int = 0) -> ChunkRow:
    shown = f"[2026-03-14 15:09] {speaker}: {text}" if speaker else text
    return ChunkRow("sessions/a.jsonl", line or row, line or row, row, "sessions", b"", "", shown, at_ms)


def evidence_of(chunks: list[ChunkRow], query: str, words: dict[int, float], cosine: dict[int, float] | None = None):
    text = {row: Evidence(value, 0.0, value, value, matched=("word",)) for row, value in words.items()}
    pool = CandidatePool({chunk.row: chunk for chunk in chunks}, text, cosine or {})
    return pool.find_evidence(query)


def test_an_answer_is_known_by_the_question_before_it():
    chunks = [utterance(2, "Where is the key?"), utterance(3, "Under the pot."), utterance(9, "Far away.")]
    evidence = evidence_of(chunks, "key", {2: 0.8})
    assert (evidence[3].answers, evidence[9].answers, evidence[2].answers) == (0.8, 0.0, 0.0)
    assert (evidence[2].question, evidence[3].question) == (1.0, 0.0)


def test_what_another_says_counts_less_only_where_a_speaker_is_named():
    chunks = [utterance(2, "I paint.", speaker="Ann Lee"), utterance(3, "I sing.", speaker="Bob"), utterance(4, "Yes.")]
    named = evidence_of(chunks, "What does Ann paint?", {})
    assert [named[row].speaker for row in (2, 3, 4)] == [0.0, 1.0, 0.0]
    assert all(evidence.speaker == 0.0 for evidence in evidence_of(chunks, "Who paints?", {}).values())


figures = st.floats(0, 1)


@given(
    figure=st.lists(figures, min_size=10, max_size=10),
    is_utterance=st.booleans(),
    has_vector=st.booleans(),
    share=figures,
    age=st.floats(-10, 5000),
)
def test_a_score_is_the_sum_of_its_parts_and_between_0_and_1(figure, is_utterance, has_vector, share, age):
    chunk = utterance(1, "Yes.", at_ms=-round(age * DAY_MS))
    chunk = chunk if is_utterance else replace(chunk, source="memory")
    evidence = Evidence(*figure, matched=("word",))
    scored = score_chunk(chunk, evidence, share if has_vector else None, now_ms=0)
    assert sum(part.value for part in scored.parts()) == pytest.approx(scored.score)
    assert -1e-9 <= scored.relevance <= scored.score <= 1.0 + 1e-9


def windows_over(chunks: list[ChunkRow], scores: dict[int, float] | None = None, filters: Filter | None = None):
    return Windows(lambda _: chunks, scores or {}, filters or Filter())


def rows(windows: Windows, row: int) -> list[int]:
    return [shown.row for shown in windows.open(next(one for one in windows.neighbours(None) if one.row == row))]


def test_a_window_grows_towards_what_fits_the_query_better_and_no_further_than_a_snippet():
    chunks = [utterance(row, "x" * 200) for row in range(2, 9)]
    assert rows(windows_over(chunks, {4: 0.9, 3: 0.8}), 5) == [3, 4, 5]
    assert rows(windows_over(chunks), 5) == [5, 6, 7]


def test_pieces_of_one_message_are_never_joined():
    chunks = [utterance(2, "a"), utterance(3, "b", line=3), utterance(4, "c", line=3), utterance(5, "d", line=4)]
    assert rows(windows_over(chunks), 3) == [2, 3]
    assert rows(windows_over(chunks), 4) == [4, 5]
    assert rows(windows_over(chunks), 2) == [2]


def test_a_neighbour_outside_the_time_asked_for_is_not_shown():
    chunks = [utterance(2, "a", at_ms=10), utterance(3, "b", at_ms=20), utterance(4, "c", at_ms=30)]
    assert rows(windows_over(chunks, filters=Filter(since_ms=15, until_ms=25)), 3) == [3]


def test_what_is_shown_is_exactly_the_lines_that_are_cited(tmp_path):
    with SessionStore.open(home=tmp_path / "home", clock=FrozenClock(NOW)) as store, open_memory(tmp_path) as memory:
        session = store.get_or_create("telegram", "5054")
        texts = [f"Remark {at} about the weather in town{at}. " + "So it was. " * (at % 5) for at in range(60)]
        texts[30] = "The parrot escaped through the kitchen window."
        store.append_all(session.id, [Message.of(("user", "assistant")[at % 2], text) for at, text in enumerate(texts)])
        result = memory.search("which way did the parrot escape", max_results=5, min_score=0.0)
        best = result.hits[0]
        assert best.start_line < 32 < best.end_line
        seen: set[int] = set()
        for hit in result:
            passage = memory.read(hit.path, start=hit.start_line, lines=hit.end_line - hit.start_line + 1)
            assert passage.text == hit.snippet
            assert len(hit.snippet) <= MAX_CHARS
            lines = set(range(hit.start_line, hit.end_line + 1))
            assert not lines & seen
            seen |= lines
        assert os.path.basename(session.log) in best.path
        assert {dropped.reason for dropped in result.dropped} & {"shown with a better hit", "beyond max_results"}
