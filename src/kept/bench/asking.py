"""Asking every query of a set through `Memory.search`, and keeping what came back."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from kept.bench.dataset import Query
from kept.bench.layout import Group
from kept.bench.metrics import Returned
from kept.clock import SystemClock
from kept.embedding.base import Embedder
from kept.memory import Memory
from kept.records import SearchResult
from kept.values import frozen

Tick = Callable[[], None]


@frozen
class Answer:
    hits: tuple[Returned, ...]
    unlimited: bool = False
    """Whether it would be the same without a threshold: there was no room for what the threshold kept out."""


@frozen
class Asked:
    """What one variant answered, by query, and what did not work meanwhile."""

    answers: dict[str, Answer]
    degraded: tuple[str, ...]


@frozen
class Timing:
    """What one search took, by the clock on the wall and in computing time, which other work does not add to."""

    wall_ms: float
    cpu_ms: float


class AskingClock:
    """Says that it is the moment a query is asked at, where the set says when that was."""

    def __init__(self, newest: dt.datetime | None) -> None:
        self._newest = newest
        self._system = SystemClock()
        self.asked_at: dt.datetime | None = None
        self.is_asking = False

    def now(self) -> dt.datetime:
        told = (self.asked_at or self._newest) if self.is_asking else None
        return told.astimezone() if told else self._system.now()

    def time_ns(self) -> int:
        return int(self.now().timestamp() * 1_000_000_000) if self.is_asking else self._system.time_ns()


class Asker:
    """One memory, asked many things. Of what it could not do, each reason is kept once."""

    def __init__(self, group: Group, *, embedder: Embedder | None = None) -> None:
        self.group = group
        self.clock = AskingClock(group.newest)
        self.memory = Memory(group.config, embedder=embedder, clock=self.clock)
        self.degraded: dict[str, None] = {}

    def ask(self, query: Query, *, max_results: int, min_score: float | None = None) -> Answer:
        result = self._search(query, max_results, min_score)
        self.degraded.update(dict.fromkeys(result.degraded))
        return Answer(
            tuple(self.group.returned(hit) for hit in result.hits),
            unlimited=len(result) >= max_results and _best_refused(result) <= min(hit.score for hit in result.hits),
        )

    def time(self, query: Query) -> Timing:
        """With as many results as a user gets. Nothing but the search is measured."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._search(query, None, None)
        return Timing((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)

    def _search(self, query: Query, max_results: int | None, min_score: float | None) -> SearchResult:
        self.clock.asked_at, self.clock.is_asking = query.date, True
        try:
            return self.memory.search(query.text, max_results=max_results, min_score=min_score)
        finally:
            self.clock.is_asking = False


def _best_refused(result: SearchResult) -> float:
    return max((one.score for one in result.dropped if one.reason == "below min_score"), default=0.0)


def ask_all(
    groups: Mapping[str, Group],
    queries: Sequence[Query],
    *,
    max_results: int,
    min_score: float | None = None,
    embedder: Embedder | None = None,
    tick: Tick = lambda: None,
) -> Asked:
    answers: dict[str, Answer] = {}
    degraded: dict[str, None] = {}
    for asker, own in _askers(groups, queries, embedder):
        for query in own:
            answers[query.id] = asker.ask(query, max_results=max_results, min_score=min_score)
            tick()
        degraded.update(asker.degraded)
    return Asked(answers, tuple(degraded))


def time_all(
    groups: Mapping[str, Group], queries: Sequence[Query], *, embedder: Embedder | None = None
) -> list[Timing]:
    """In a process that is warm: of each memory the first search, which opens everything, is not measured."""
    timings: list[Timing] = []
    for asker, own in _askers(groups, queries, embedder):
        asker.time(own[0])
        timings += [asker.time(query) for query in own]
    return timings


def _askers(
    groups: Mapping[str, Group], queries: Sequence[Query], embedder: Embedder | None
) -> Iterator[tuple[Asker, list[Query]]]:
    """One group after the other, so that no more than one memory is open."""
    by_group: dict[str, list[Query]] = {}
    for query in queries:
        by_group.setdefault(query.group, []).append(query)
    for name, own in by_group.items():
        asker = Asker(groups[name], embedder=embedder)
        with asker.memory:
            yield asker, own
