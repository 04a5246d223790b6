"""Figures of a ranking. Pure: returned hits and relevant documents go in, numbers come out.

All figures of a query are between 0 and 1; those of a set are their means. A relevant document counts from the first
hit whose cited lines cover it. One hit may cover several, as a chunk of a conversation does. A further passage under a
hit counts at the rank that it would have among all passages by score: that a note is one hit wins no rank for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kept.base.records import Grade
from kept.base.values import frozen

BUDGET_TOKENS = 2_000
RECALL_AT = (1, 5, 10)
FIGURES = (*(f"recall@{k}" for k in RECALL_AT), f"recall@{BUDGET_TOKENS}tok", "mrr@10")

Figures = dict[str, float]


@frozen
class ReturnedHit:
    """Parts of a hit that the figures need."""

    documents: frozenset[str]
    """Documents that its cited lines cover."""
    tokens: int = 0
    """Tokens of its snippet, without those of further passages."""
    score: float = 0.0
    """Score that ``min_score`` is compared with."""
    grade: Grade = "strong"
    further: tuple[ReturnedHit, ...] = ()
    """Further passages that are shown under it."""


def evaluate(hits: Sequence[ReturnedHit], relevant: Mapping[str, float]) -> Figures:
    """Return the figures of one query. ``relevant`` is not empty, and every grade in it is above 0."""
    ranks = first_ranks(hits, relevant)
    figures = {f"recall@{k}": share_within(ranks, k, len(relevant)) for k in RECALL_AT}
    figures[f"recall@{BUDGET_TOKENS}tok"] = share_within_tokens(hits, relevant, BUDGET_TOKENS)
    best = min(ranks.values(), default=math.inf)
    figures["mrr@10"] = 1 / best if best <= 10 else 0.0
    return figures


def first_ranks(hits: Sequence[ReturnedHit], relevant: Mapping[str, float]) -> dict[str, int]:
    """Return, for each relevant document that was returned, the rank of the first hit that covers it, from 1."""
    ranks: dict[str, int] = {}
    for hit, rank in _ranked_passages(hits):
        for document in hit.documents & relevant.keys():
            ranks[document] = min(rank, ranks.get(document, rank))
    return ranks


def _ranked_passages(hits: Sequence[ReturnedHit]) -> list[tuple[ReturnedHit, int]]:
    """Return all passages in reading order with their ranks."""
    if not any(hit.further for hit in hits):
        return [(hit, rank) for rank, hit in enumerate(hits, start=1)]
    passages: list[tuple[ReturnedHit, int | None]] = []  # hits have their rank already
    scores: list[float] = []
    lowest = math.inf
    for rank, hit in enumerate(hits, start=1):
        score = lowest = min(lowest, hit.score)  # a passage that was moved down comes after those it follows
        passages.append((hit, rank))
        scores.append(score)
        for further in hit.further:
            score = min(score, further.score)
            passages.append((further, None))
            scores.append(score)
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    places = {at: place for place, at in enumerate(order, start=1)}
    return [(passage, rank or places[at]) for at, (passage, rank) in enumerate(passages)]


def share_within_tokens(hits: Sequence[ReturnedHit], relevant: Mapping[str, float], budget_tokens: int) -> float:
    """Return the share of the relevant documents in the passages that fit whole into a budget, in reading order."""
    spent = 0
    covered: set[str] = set()
    for passage in (passage for hit in hits for passage in (hit, *hit.further)):
        spent += passage.tokens
        if spent > budget_tokens:
            break
        covered.update(passage.documents & relevant.keys())
    return len(covered) / len(relevant)


def share_within(ranks: Mapping[str, int], k: int, relevant_count: int) -> float:
    """Return the share of the relevant documents that the first ``k`` hits cover."""
    return sum(rank <= k for rank in ranks.values()) / relevant_count


def mean_figures(rows: Sequence[Figures]) -> Figures:
    if not rows:
        return {}
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share of all values do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
