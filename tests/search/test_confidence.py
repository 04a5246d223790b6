"""A score means the same for every query: scaled by how sure it is that there is an answer, in an unchanged order."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.bench.layout import threshold_score
from kept.records import LIKELY_FROM, ScorePart
from kept.search.candidates import Candidate, Evidence, WeightedTerm
from kept.search.query import Term
from kept.search.scores import (
    FusionWeights,
    Signals,
    calibrate,
    confidence_after_reranking,
    estimate_confidence,
    fuse_weighted,
    read_signals,
)
from kept.search.weights import ALL_WORDS_CONFIDENCE
from tests.support.workspaces import open_memory, paths, write_note

figures = st.floats(0, 1)
LARGE = 1_000


def candidate(
    row: int, reach: float, meaning: float = 0.0, matched: tuple[str, ...] = (), age: float = 9.0
) -> Candidate:
    evidence = Evidence(words=reach, coverage=reach, reach=reach, meaning=meaning)
    return Candidate(row, False, evidence, has_vector=True, age_days=age, matched=matched)


def signals(share: float, together: float, meaning: float | None, passages: int = LARGE) -> Signals:
    return Signals(share, together, meaning, passages)


@given(st.lists(st.tuples(figures, figures, st.floats(0, 400)), min_size=1, max_size=12), figures)
def test_the_order_stays_and_the_parts_add_up(drawn, confidence):
    candidates = [candidate(row, reach, meaning, age=age) for row, (reach, meaning, age) in enumerate(drawn)]
    ranked = fuse_weighted(candidates, FusionWeights(0.3, 0.7))
    scaled = calibrate(ranked, confidence, signals(0.5, 2, 0.5))
    assert [scored.candidate.row for scored in scaled] == [scored.candidate.row for scored in ranked]
    for scored, after in pairwise(scaled):
        assert scored.score >= after.score
    for scored in scaled:
        assert sum(part.value for part in scored.parts()) == pytest.approx(scored.score)
        assert -1e-9 <= scored.relevance <= scored.score + 1e-9 <= 1 + 1e-6
        beside = sum(part.value for part in scored.parts() if part.name in ("recency", "when"))
        assert scored.score - beside == pytest.approx(scored.relevance)


@given(figures, st.floats(0, 20), figures, st.integers(0, 100_000), st.floats(0, 1))
def test_more_of_anything_never_makes_it_less_sure(share, together, meaning, passages, more):
    def sure(*, share=share, together=together, meaning=meaning, passages=passages):
        return estimate_confidence(signals(share, together, meaning, passages), vector_share=0.3)

    now = sure()
    assert 0 <= now <= 1
    assert sure(share=min(1.0, share + more)) >= now
    assert sure(together=together + more) >= now
    assert sure(meaning=min(1.0, meaning + more)) >= now
    assert sure(passages=passages * 2) <= now


def test_words_thrown_together_are_told_from_a_question():
    assert (
        estimate_confidence(signals(0.3, 1, 0.35), vector_share=0.3)
        < 0.25
        < estimate_confidence(signals(0.45, 5, 0.5), vector_share=0.3)
    )


@pytest.mark.parametrize("meaning", [None, 0.0, 0.3])
def test_a_passage_that_has_every_word_is_above_any_threshold_worth_setting(meaning):
    assert estimate_confidence(signals(1.0, 1, meaning), vector_share=0.3) >= ALL_WORDS_CONFIDENCE


def test_an_embedder_is_believed_as_far_as_it_is_trusted():
    near = signals(0.0, 0, 0.9)
    assert estimate_confidence(near, vector_share=0.3) < 0.3 < 0.4 < estimate_confidence(near, vector_share=0.5)


def test_a_name_and_its_parts_are_not_counted_twice():
    terms = [WeightedTerm(Term(text, kind), 1.0, 1) for text, kind in (("user name", "identifier"), ("user", "word"))]
    terms.append(WeightedTerm(Term("name", "word"), 1.0, 1))
    ranked = fuse_weighted([candidate(1, 1.0, matched=("user name", "user", "name"))], FusionWeights(0.0, 1.0))
    assert read_signals(ranked, terms, passages=LARGE).together == 2


def test_a_model_that_finds_nothing_fit_makes_it_less_sure():
    before = fuse_weighted([candidate(1, 0.8, age=900.0)], FusionWeights(0.3, 0.7))
    assert confidence_after_reranking(0.9, before, before, 0.5) == 0.9
    was = before[0].relevance
    judged = [before[0].plus(ScorePart("rerank", 0.5 * (0.0 - was), ""), relevance=0.5 * (0.0 - was))]
    assert confidence_after_reranking(0.9, before, judged, 0.5) == pytest.approx(0.45)


# through the whole search

TOPICS = ("harbour", "violin", "turbine", "orchard", "ledger", "glacier", "printer", "saddle", "compass", "lantern")
DEEDS = ("repaired", "painted", "borrowed", "measured", "polished", "packed", "sold", "counted", "insured", "moved")


@pytest.fixture(params=["local", "none"])
def notes(request, tmp_path):
    """Two hundred notes, each of one thing that was done to another."""
    for at in range(200):
        topic, deed = TOPICS[at % 10], DEEDS[at // 10 % 10]
        text = f"Number {at}: the {topic} was {deed} by neighbour{at} with tool{at} after lunch{at}.\n"
        write_note(tmp_path / "workspace", f"memory/{at:03}.md", text)
    with open_memory(tmp_path, embedder=None, settings={"memory_search.provider": request.param}) as memory:
        yield memory


def test_a_word_that_stands_in_the_notes_is_found(notes):
    assert paths(notes.search("neighbour117"))[0] == "memory/117.md"
    assert len(notes.search("violin")) > 0


def test_a_question_about_something_else_is_not_answered(notes):
    assert notes.search("How long should sourdough proof in a cold kitchen after kneading?").answered == "no"


@pytest.mark.parametrize("notes", ["none"], indirect=True)
def test_words_of_the_notes_thrown_together_find_only_weak_hits(notes):
    query = "neighbour3 tool58 lunch77 tool140 neighbour199"
    assert {hit.grade for hit in notes.search(query)} == {"weak"}
    refused = notes.search(query, min_score=LIKELY_FROM)
    assert refused.hits == ()
    assert {dropped.reason for dropped in refused.dropped} == {"below min_score"}


def test_a_word_of_an_unspaced_script_is_found_in_a_question(tmp_path):
    for at, text in enumerate(("备用钥匙挂在门后", "会议改到星期五", "打印机没有纸")):
        write_note(tmp_path / "workspace", f"memory/{at}.md", text + "\n")
    with open_memory(tmp_path, settings={"memory_search.provider": "none"}) as memory:
        assert paths(memory.search("备用钥匙在哪里"))[:1] == ["memory/0.md"]


def test_a_phrase_and_a_title_are_never_refused(notes):
    assert notes.search("by neighbour42 with tool42").hits[0].path == "memory/042.md"
    assert notes.search('"after lunch42" zeppelin quartz walrus').hits[0].path == "memory/042.md"


def test_what_is_compared_with_the_threshold_is_what_bench_says(notes):
    for hit in notes.search("violin repaired tool1 lunch1", min_score=0.0):
        assert sum(part.value for part in hit.parts) == pytest.approx(hit.score)
        least = threshold_score(hit)
        again = notes.search("violin repaired tool1 lunch1", min_score=least - 1e-6).hits
        assert hit.path in {other.path for other in again}


def test_one_of_two_words_finds_what_there_is_but_one_of_many_does_not(tmp_path):
    workspace = tmp_path / "workspace"
    for at in range(300):
        write_note(
            workspace, f"memory/{at}.md", f"# Day {at}\n\nWe walked to place{at} and had soup with friend{at}.\n"
        )
    write_note(workspace, "memory/trip.md", "# Trip\n\nThe flight to Lisbon is booked for spring.\n")
    with open_memory(tmp_path, settings={"memory_search.provider": "none"}) as memory:
        assert paths(memory.search("lisbon hotel")) == ["memory/trip.md"]
        assert memory.search("lisbon hotel").answered != "no"
        assert memory.search("lisbon gearbox marmalade quorum").answered == "no"
