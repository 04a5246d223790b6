"""Reranking: a model reads the query with each of the best passages, as far as the time allows.

Its judgement is mixed into the score. Passages that it has not read, because the time was up or because they are not
among the best, keep their order after those that it has read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kept.base.records import ScorePart
from kept.base.remote_errors import EmbeddingError
from kept.search.scores import Scored, rank

_PART = "rerank"


TOP = 30
"""Number of the best passages that the model reads."""
BUDGET_MS = 800
"""Time limit per query. Passages that the model has not read by then rank after those that it has."""
WEIGHT = 0.5
"""Share of the score that comes from the model."""


class Reranker(Protocol):
    """Model that reads a query and a passage together: a cross-encoder."""

    def load(self) -> None: ...

    def score(self, query: str, passage: str) -> float: ...


def rerank(
    ranked: Sequence[Scored],
    reranker: Reranker,
    query: str,
    passage_of: Callable[[int], str],
    *,
    timer: Callable[[], float] = time.perf_counter,
) -> tuple[list[Scored], tuple[str, ...]]:
    """Return the new order, and a message if the model failed or ran out of time.

    ``passage_of`` returns the text of a row. The time budget starts once the model is loaded.
    """
    count = min(TOP, len(ranked))
    judgements: list[float] = []
    try:
        reranker.load()
        deadline = timer() + BUDGET_MS / 1000
        for scored in ranked[:count]:
            if timer() >= deadline:
                break
            judgements.append(reranker.score(query, passage_of(scored.candidate.row)))
    except EmbeddingError as exc:
        return list(ranked), (f"Not reranked: {exc.message}",)
    reordered = _reorder(ranked, judgements, WEIGHT)
    if len(judgements) == count:
        return reordered, ()
    return reordered, (f"Reranked {len(judgements)} of {count}: the time of {BUDGET_MS} ms was used up.",)


def _reorder(ranked: Sequence[Scored], judgements: Sequence[float], weight: float) -> list[Scored]:
    if not judgements:
        return list(ranked)
    read = rank(_mix(scored, judgement, weight) for scored, judgement in zip(ranked, judgements, strict=False))
    return read + [_cap(scored, read[-1]) for scored in ranked[len(judgements) :]]


def _mix(scored: Scored, judgement: float, weight: float) -> Scored:
    reason = f"{weight:.2f} of the score is the model's {judgement:.3f}"
    part = ScorePart(_PART, weight * (judgement - scored.score), reason)
    return scored.plus(part, relevance=weight * (judgement - scored.relevance))


def _cap(scored: Scored, last: Scored) -> Scored:
    """Lower the score of a passage that was not read to that of the last one that was."""
    part = ScorePart(_PART, min(0.0, last.score - scored.score), "not read by the model")
    return scored.plus(part, relevance=min(0.0, last.relevance - scored.relevance)) if part.value < 0 else scored
