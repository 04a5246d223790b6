"""Rules for notes alone: trust in meaning, notes as a whole, one hit for each note, and the words around a question."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.config.schema import QuerySettings
from kept.embedding.base import Calibration
from kept.search.candidates import CandidatePool, Evidence, QueryVector, WeightedTerm
from kept.search.query import Term, parse_query
from kept.search.reordering import judge_whole_notes
from kept.search.scores import fuse_pool
from kept.search.weights import WHOLE_NOTE_SHARE
from tests.support.candidates import Candidate, candidate, fuse
from tests.support.workspaces import open_memory, write_note


def note(row: int, *, coverage: float = 0.0, meaning: float = 0.0) -> Candidate:
    return candidate(row, Evidence(coverage=coverage, meaning=meaning), ("word",))


PLAIN = QuerySettings()
VECTOR = QueryVector(b"\x01", "x", Calibration(weight=0.3))


def share_of_meaning(beside: Candidate, settings: QuerySettings = PLAIN) -> float:
    """Return the share of meaning: the relevance of a note that has nothing else."""
    notes = [beside, note(99, meaning=1.0)]
    pool = CandidatePool({one.row: one for one, _ in notes}, {}, {one.row: 0.0 for one, _ in notes})
    ranked = fuse_pool(pool, {one.row: evidence for one, evidence in notes}, settings, VECTOR, now_ms=0)
    return next(scored.relevance for scored in ranked if scored.chunk.row == 99)


def test_meaning_counts_for_more_where_no_note_has_the_words():
    shares = [share_of_meaning(note(1, coverage=best)) for best in (1.0, 0.5, 0.0)]
    assert shares == pytest.approx([0.15, 0.35, 0.55])


def test_a_weight_that_somebody_has_chosen_is_the_weight():
    chosen = replace(QuerySettings(), hybrid=replace(QuerySettings().hybrid, vector_weight=0.4, text_weight=0.6))
    assert [share_of_meaning(note(1, coverage=best), chosen) for best in (1.0, 0.0)] == pytest.approx([0.4, 0.4])


WORDS = st.sampled_from(["heron", "otter", "elk"])


def passage(row: int, words: float, name: int, is_utterance: bool, matched: Collection[str] = (), **more) -> Candidate:
    return candidate(row, Evidence(words=words), matched, path=f"{name}.md", is_utterance=is_utterance, **more)


def terms(**idf: float) -> list[WeightedTerm]:
    return [WeightedTerm(Term(text, "word"), weight, rows=1) for text, weight in idf.items()]


judge = partial(judge_whole_notes, text_share=1.0, beside_share=0.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.booleans(), st.sets(WORDS)), max_size=12))
def test_only_the_best_passage_of_a_note_gains_and_parts_add_up(drawn):
    candidates = [passage(row, *fields) for row, fields in enumerate(drawn)]
    ranked = fuse(candidates)
    judged = {scored.chunk.row: scored for scored in judge(ranked, terms(heron=3.0, otter=1.0, elk=2.0))}
    seen: set[str] = set()
    for before in ranked:
        after, name = judged[before.chunk.row], before.chunk.path
        if name in seen or before.chunk.source == "sessions":
            assert after is before
        else:
            assert before.score <= after.score <= max(before.score, min(1.0, before.score + WHOLE_NOTE_SHARE))
            assert sum(part.value for part in after.parts()) == pytest.approx(after.score)
            seen.add(name)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.booleans()), max_size=12), st.integers(1, 4))
def test_a_passage_comes_nearer_to_a_better_one_beside_it_and_the_order_of_notes_stays(drawn, lines_between):
    lines = [(row * lines_between, row * lines_between) for row in range(len(drawn))]
    ranked = fuse([passage(row, *fields, lines=lines[row]) for row, fields in enumerate(drawn)])
    lifted = judge_whole_notes(ranked, [], text_share=1.0)
    best = {scored.chunk.path: scored.score for scored in reversed(ranked)}
    before = {scored.chunk.row: scored.score for scored in ranked}
    for scored in lifted:
        assert sum(part.value for part in scored.parts()) == pytest.approx(scored.score)
        assert before[scored.chunk.row] <= scored.score <= best[scored.chunk.path] + 1e-9
        assert scored.chunk.source != "sessions" or scored.score == before[scored.chunk.row]
    notes = [dict.fromkeys(scored.chunk.path for scored in order) for order in (ranked, lifted)]
    assert [best[name] for name in notes[1]] == pytest.approx([best[name] for name in notes[0]])


def test_words_in_other_passages_count_by_rarity_and_only_if_the_best_passage_lacks_them():
    best, second = passage(1, 0.5, 0, False, {"heron"}), passage(2, 0.4, 0, False, {"heron", "otter"})
    alone = passage(3, 0.5, 1, False, {"heron"})
    ranked = fuse([best, second, alone])
    gains = {
        new.chunk.row: new.score - old.score
        for new in judge(ranked, terms(heron=3.0, otter=1.0))
        for old in ranked
        if old.chunk == new.chunk
    }
    assert gains == pytest.approx({1: WHOLE_NOTE_SHARE / 4, 2: 0.0, 3: 0.0})


def write_long_notes(workspace: Path, count: int) -> None:
    for number in range(count):
        parts = [
            f"## Part {part}\n\nThe walrus ledger {number}, part {part}. " + f"word{part} " * 60 for part in range(4)
        ]
        write_note(workspace, f"memory/{number}.md", "\n\n".join([f"# Note {number}", *parts]))


def test_hits_are_about_different_notes_and_further_passages_stand_under_them(tmp_path):
    with open_memory(tmp_path, settings={"memory_search.provider": "none"}) as memory:
        write_long_notes(tmp_path / "workspace", 5)
        result = memory.search("walrus ledger", max_results=5)
    assert sorted(hit.path for hit in result) == [f"memory/{number}.md" for number in range(5)]
    assert len(result.passages) <= 2 * 5
    for hit in result:
        assert all(passage.path == hit.path for passage in hit.further)
        spans = [(passage.start_line, passage.end_line) for passage in (hit, *hit.further)]
        assert len(set(spans)) == len(spans)
        scores = [passage.score for passage in hit.further]
        assert scores == sorted(scores, reverse=True)


def test_a_passage_that_has_changed_since_is_left_out_and_the_rest_of_its_note_stays(tmp_path):
    workspace = tmp_path / "workspace"
    settings = {"memory_search.provider": "none", "memory_search.sync.on_search": False}
    with open_memory(tmp_path, settings=settings) as memory:
        write_long_notes(workspace, 1)
        memory.sync()
        (before,) = memory.search("walrus ledger")
        path = workspace / before.path
        lines = path.read_text().split("\n")
        lines[before.start_line - 1 : before.end_line] = ["Gone."] * (before.end_line - before.start_line + 1)
        path.write_text("\n".join(lines))
        result = memory.search("walrus ledger")
    assert [passage.citation for passage in result.passages] == [passage.citation for passage in before.further]
    assert result.degraded == ("1 outdated hit was left out.",)


def test_what_people_say_around_a_question_is_not_looked_for():
    query = "pretty sure someone decided something about the walrus, anyone remember?"
    assert [term.text for term in parse_query(query).terms] == ["decided", "walrus"]
    assert [term.text for term in parse_query("remember").terms] == ["remember"], "unless nothing else is left"
    assert "pretty sure" in [term.text for term in parse_query('"pretty sure" walrus').terms]
