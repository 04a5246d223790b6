"""Curves of a set: recall by the number of tokens returned, and correct first hits by score. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kept.bench.metrics import ReturnedHit, count_tokens, share_within_tokens
from kept.values import frozen

TOKEN_BUDGETS = (100, 150, 200, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000)
SCORE_BINS = 10

JudgedAnswer = tuple[Sequence[ReturnedHit], Mapping[str, float]]
"""Hits of an answerable query, and its relevant documents."""


@frozen
class TokenRecall:
    tokens: int
    recall: float
    """Mean recall of the passages that fit whole into this many tokens, in reading order."""
    filled: float
    """Share of the answers that have at least this many tokens. The others would need more hits to use them."""


@frozen
class ScoreBin:
    """First hits with a score from ``score_from`` up to, but not including, ``score_to``."""

    score_from: float
    score_to: float
    hits: int
    right: int


def recall_by_tokens(judged: Sequence[JudgedAnswer]) -> tuple[TokenRecall, ...]:
    """Return a point for each budget; none without queries."""
    if not judged:
        return ()
    totals = [count_tokens(hits) for hits, _ in judged]

    def recall(budget_tokens: int) -> float:
        return sum(share_within_tokens(hits, relevant, budget_tokens) for hits, relevant in judged) / len(judged)

    return tuple(
        TokenRecall(tokens, recall(tokens), filled=sum(total >= tokens for total in totals) / len(totals))
        for tokens in TOKEN_BUDGETS
    )


def calibration_curve(judged: Sequence[JudgedAnswer]) -> tuple[ScoreBin, ...]:
    """Return, by tenths of the score, how many first hits there are and how many of them are right."""
    counts, rights = [0] * SCORE_BINS, [0] * SCORE_BINS
    for hits, relevant in judged:
        if hits:
            number = _bin_of(hits[0].score)
            counts[number] += 1
            rights[number] += is_right(hits[0], relevant)
    return tuple(
        ScoreBin(number / SCORE_BINS, (number + 1) / SCORE_BINS, hits=counts[number], right=rights[number])
        for number in range(SCORE_BINS)
    )


def is_right(hit: ReturnedHit, relevant: Mapping[str, float]) -> bool:
    return not hit.documents.isdisjoint(relevant)


def _bin_of(score: float) -> int:
    # Rounding tolerance, as for grades: a score equal to a bound reaches it. The last bin includes 1.
    return min(SCORE_BINS - 1, max(0, int(score * SCORE_BINS + 1e-8)))
