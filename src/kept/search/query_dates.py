"""Periods that a query names: "last week", "in March", "on 3 May 2023", "two months ago".

A chunk from such a period scores a little more. It is not a filter unless the query is nothing but a time
(`only_time`): people misremember, and an event of March is often told in April.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from kept.clock import DAY_MS
from kept.records import ScorePart
from kept.search.date_locale import DateLocale, current_locale
from kept.search.date_reader import read_times
from kept.search.fuse import Scored, rank
from kept.search.periods import Period, to_ms
from kept.search.weights import PERIOD_SHARE

_MIN_MARGIN_DAYS, _MAX_MARGIN_DAYS = 2.0, 30.0
"""Bounds of the margin around a period in which a chunk still gains something."""


def find_periods(query: str, now: dt.datetime, locale: DateLocale | None = None) -> list[Period]:
    """Return the periods that a query names."""
    mentions = read_times(query, now, locale or current_locale()).mentions
    return [period for mention in mentions for period in mention.reading.periods]


def boost_periods(ranked: Sequence[Scored], periods: Sequence[Period], *, now_ms: int) -> list[Scored]:
    """Add to the score of chunks from these periods or close to them, and rank again."""
    if not periods:
        return list(ranked)
    bounds = [(to_ms(period.start), to_ms(period.end), period.weight) for period in periods]
    return rank(_boost(scored, now_ms - round(scored.candidate.age_days * DAY_MS), bounds) for scored in ranked)


def _boost(scored: Scored, timestamp_ms: int, bounds: Sequence[tuple[int, int, float]]) -> Scored:
    closeness = max(weight * _closeness(timestamp_ms, start, end) for start, end, weight in bounds)
    gain = min(PERIOD_SHARE * closeness, 1.0 - scored.score)
    reason = "from that time" if closeness >= 1 else "near that time"
    return scored.plus(ScorePart("when", gain, reason)) if gain > 0 else scored


def _closeness(timestamp_ms: int, start_ms: int, end_ms: int) -> float:
    """Return 1 inside a period, falling to 0 at the end of the margin around it.

    Outside, whole days count: a chunk that has only a date is stamped with the beginning of its day.
    """
    if start_ms <= timestamp_ms < end_ms:
        return 1.0
    before, after = -((timestamp_ms - start_ms) // DAY_MS), (timestamp_ms - end_ms) // DAY_MS + 1
    margin = min(max(_MIN_MARGIN_DAYS, (end_ms - start_ms) / DAY_MS / 2), _MAX_MARGIN_DAYS)
    return max(0.0, 1.0 - max(before, after, 1) / margin)
