"""Rules for notes alone: trust in meaning, room for more than one note, and the words around a question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.config import QuerySettings
from kept.embedding.base import Calibration
from kept.search.candidates import Candidate, Evidence, QueryVector
from kept.search.query import parse_query
from kept.search.scores import FusionWeights, demote_further_passages, fuse_pool, fuse_weighted
from kept.search.weights import FURTHER_PASSAGE_SHARE
from tests.support.workspaces import open_memory, write_note


def note(row: int, *, words: float = 0.0, coverage: float = 0.0, meaning: float = 0.0) -> Candidate:
    return Candidate(row, False, Evidence(words=words, coverage=coverage, meaning=meaning), True, 1e6, ("word",))


PLAIN = QuerySettings()
VECTOR = QueryVector(b"\x01", "x", Calibration(weight=0.3))


def share_of_meaning(candidates: list[Candidate], settings: QuerySettings = PLAIN) -> float:
    """Return the share of meaning: the relevance of a note that has nothing else."""
    ranked = fuse_pool([*candidates, note(99, meaning=1.0)], settings, VECTOR)
    return next(scored.relevance for scored in ranked if scored.candidate.row == 99)


def test_meaning_counts_for_more_where_no_note_has_the_words():
    shares = [share_of_meaning([note(1, words=0.4, coverage=best)]) for best in (1.0, 0.5, 0.0)]
    assert shares == pytest.approx([0.15, 0.35, 0.55])


def test_a_weight_that_somebody_has_chosen_is_the_weight():
    chosen = replace(QuerySettings(), hybrid=replace(QuerySettings().hybrid, vector_weight=0.4, text_weight=0.6))
    assert [share_of_meaning([note(1, coverage=best)], chosen) for best in (1.0, 0.0)] == pytest.approx([0.4, 0.4])


def test_the_share_of_meaning_is_never_more_than_all():
    assert FusionWeights(0.7, 0.3).scaled(1.9) == FusionWeights(1.0, 0.0)


def passage(row: int, words: float, name: int, is_utterance: bool) -> Candidate:
    return Candidate(row, is_utterance, Evidence(words=words), True, 1e6, ("word",), position=(f"{name}.md", row, row))


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.booleans()), max_size=12))
def test_the_first_passage_of_every_note_keeps_its_score_and_parts_add_up(drawn):
    ranked = fuse_weighted([passage(row, *fields) for row, fields in enumerate(drawn)], FusionWeights(0.0, 1.0))
    demoted = demote_further_passages(ranked)
    seen: set[str] = set()
    for before in ranked:
        candidate = before.candidate
        after = next(scored for scored in demoted if scored.candidate == candidate)
        is_further = candidate.position[0] in seen and not candidate.is_utterance
        expected = before.score * (1 - FURTHER_PASSAGE_SHARE) if is_further else before.score
        assert after.score == pytest.approx(expected)
        assert sum(part.value for part in after.parts()) == pytest.approx(after.score)
        assert after.relevance == before.relevance, "the threshold is not what this is about"
        seen.update(set() if candidate.is_utterance else {candidate.position[0]})
    scores = [scored.score for scored in demoted]
    assert scores == sorted(scores, reverse=True)


def test_another_note_comes_before_the_second_passage_of_one(tmp_path):
    workspace = tmp_path / "workspace"
    with open_memory(tmp_path, settings={"memory_search.provider": "none"}) as memory:
        parts = [f"## Part {at}\n\nThe walrus ledger, part {at}, " + "with more to say. " * 4 for at in range(4)]
        write_note(workspace, "memory/long.md", "\n\n".join(["# Walrus", *parts]))
        write_note(workspace, "memory/other.md", "# Elsewhere\n\nThe walrus ledger again, " + "with more to say. " * 6)
        result = memory.search("walrus ledger", max_results=3, min_score=0.0)
    assert [hit.path for hit in result][:2] == ["memory/long.md", "memory/other.md"]
    assert any(part.name == "same note" for part in result.hits[2].parts)


def test_what_people_say_around_a_question_is_not_looked_for():
    query = "pretty sure someone decided something about the walrus, anyone remember?"
    assert [term.text for term in parse_query(query).terms] == ["decided", "walrus"]
    assert [term.text for term in parse_query("remember").terms] == ["remember"], "unless nothing else is left"
    assert "pretty sure" in [term.text for term in parse_query('"pretty sure" walrus').terms]
