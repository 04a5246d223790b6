"""The best passages in the order that a model puts them in, as far as there is time.

A model reads the query with each passage, the best first. What it says is mixed into the score. What it has not read,
because there was no more time or because it was not among the best, keeps its order behind what it has read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kept.config import RerankSettings
from kept.errors import EmbeddingError
from kept.records import ScorePart
from kept.search.fuse import Scored

_PART = "rerank"


class Reranker(Protocol):
    """What reads pairs: a cross-encoder."""

    def load(self) -> None: ...

    def score(self, query: str, passage: str) -> float: ...


def rerank(
    ranked: Sequence[Scored],
    judge: Reranker,
    query: str,
    passage_of: Callable[[int], str],
    settings: RerankSettings,
    *,
    timer: Callable[[], float] = time.perf_counter,
) -> tuple[list[Scored], tuple[str, ...]]:
    """The new order, and what did not work. ``passage_of`` gives what is read of a row.

    Loading the model is not counted against its time.
    """
    wanted = min(settings.top, len(ranked))
    judged: list[float] = []
    try:
        judge.load()
        deadline = timer() + settings.budget_ms / 1000
        for one in ranked[:wanted]:
            if timer() >= deadline:
                break
            judged.append(judge.score(query, passage_of(one.candidate.row)))
    except EmbeddingError as exc:
        return list(ranked), (f"Not reranked: {exc.message}",)
    reordered = _reordered(ranked, judged, settings.weight)
    if len(judged) == wanted:
        return reordered, ()
    cut = f"Reranked {len(judged)} of {wanted}: the {settings.budget_ms} ms of query.rerank.budget_ms were used up."
    return reordered, (cut,)


def _reordered(ranked: Sequence[Scored], judged: Sequence[float], weight: float) -> list[Scored]:
    read = [_mixed(one, judgement, weight) for one, judgement in zip(ranked, judged, strict=False)]
    read.sort(key=Scored.rank)
    rest = ranked[len(judged) :]
    return read + [_behind(one, read[-1]) for one in rest] if read else list(ranked)


def _mixed(one: Scored, judgement: float, weight: float) -> Scored:
    reason = f"{weight:.2f} of the score is the model's {judgement:.3f}"
    part = ScorePart(_PART, weight * (judgement - one.score), reason)
    return one.plus(part, relevance=weight * (judgement - one.relevance))


def _behind(one: Scored, last: Scored) -> Scored:
    """Scored no higher than what it stands behind."""
    part = ScorePart(_PART, min(0.0, last.score - one.score), "not read by the model")
    return one.plus(part, relevance=min(0.0, last.relevance - one.relevance)) if part.value < 0 else one
