"""Figures, against what was worked out by hand."""

import pytest

from kept.server.bench.measurement import FIGURES, ReturnedHit, evaluate, mean_figures, share_within_tokens


def hit(*documents: str, tokens: int = 10, score: float = 0.5) -> ReturnedHit:
    return ReturnedHit(frozenset(documents), tokens, score)


def test_one_relevant_document_at_rank_three():
    figures = evaluate([hit("x"), hit("y"), hit("a")], {"a": 1})
    assert figures == {
        "recall@1": 0.0,
        "recall@5": 1.0,
        "recall@10": 1.0,
        "recall@2000tok": 1.0,
        "mrr@10": pytest.approx(1 / 3),
    }


def test_a_hit_counts_within_the_tokens_only_if_all_of_it_fits():
    both = {"a": 1, "b": 1}
    assert share_within_tokens([hit("a", tokens=1500), hit("b", tokens=500)], both, 2000) == 1.0
    assert share_within_tokens([hit("a", tokens=1500), hit("b", tokens=501)], both, 2000) == 0.5
    assert evaluate([hit("x", tokens=1999), hit("a", tokens=2)], {"a": 1})["recall@2000tok"] == 0.0


def test_a_further_passage_counts_at_its_own_rank_and_costs_its_tokens():
    further = (hit("b", score=0.5, tokens=900), hit("c", score=0.1, tokens=900))
    note = ReturnedHit(frozenset({"a"}), tokens=900, score=0.9, further=further)
    others = [hit(f"x{number}", score=0.4, tokens=10) for number in range(4)]
    figures = evaluate([note, *others], {"a": 1, "b": 1, "c": 1})
    assert figures["recall@1"] == pytest.approx(1 / 3), "the hit alone"
    assert figures["recall@5"] == pytest.approx(2 / 3), "b would be second, c seventh"
    assert figures["recall@10"] == 1.0
    assert figures["recall@2000tok"] == pytest.approx(2 / 3), "a and b fit, c does not"


def test_the_mean_of_no_queries_is_no_figure():
    assert mean_figures([]) == dict.fromkeys(FIGURES)
    assert mean_figures([dict.fromkeys(FIGURES, 1.0), dict.fromkeys(FIGURES, 0.0)]) == dict.fromkeys(FIGURES, 0.5)
