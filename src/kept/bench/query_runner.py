"""Asks the queries of a set through `Memory.search`."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from kept.bench.dataset import BenchQuery
from kept.bench.layout import BenchGroup
from kept.bench.metrics import ReturnedHit
from kept.clock import SystemClock
from kept.embedding.base import Embedder
from kept.memory import Memory
from kept.records import SearchResult
from kept.values import frozen

Tick = Callable[[], None]


@frozen
class BenchAnswer:
    hits: tuple[ReturnedHit, ...]
    unlimited: bool = False
    """True if the answer is the same without a threshold: the hits that it refused would have been cut off anyway."""


@frozen
class VariantAnswers:
    """Answers of one variant by query id, and the reasons why some of them may be worse than they should be."""

    answers: dict[str, BenchAnswer]
    degraded: tuple[str, ...]


@frozen
class LatencyFigures:
    """Duration of one search: wall-clock time, and CPU time, to which other processes do not add."""

    wall_ms: float
    cpu_ms: float


class QueryClock:
    """Clock that reports a query's own date as "now", if the set has one."""

    def __init__(self, newest: dt.datetime | None) -> None:
        self._newest = newest
        self._system = SystemClock()
        self.query_date: dt.datetime | None = None
        self.is_asking = False

    def now(self) -> dt.datetime:
        date = (self.query_date or self._newest) if self.is_asking else None
        return date.astimezone() if date else self._system.now()

    def time_ns(self) -> int:
        return int(self.now().timestamp() * 1_000_000_000) if self.is_asking else self._system.time_ns()


class QueryRunner:
    """One memory that answers many queries. ``degraded`` collects each reason for a worse answer once."""

    def __init__(self, group: BenchGroup, *, embedder: Embedder | None = None) -> None:
        self.group = group
        self.clock = QueryClock(group.newest)
        self.memory = Memory(group.config, embedder=embedder, clock=self.clock)
        self.degraded: dict[str, None] = {}

    def ask(self, query: BenchQuery, *, max_results: int, min_score: float | None = None) -> BenchAnswer:
        result = self._search(query, max_results, min_score)
        self.degraded.update(dict.fromkeys(result.degraded))
        return BenchAnswer(
            tuple(self.group.returned_hit(hit) for hit in result.hits),
            unlimited=len(result) >= max_results and _best_refused(result) <= min(hit.score for hit in result.hits),
        )

    def time(self, query: BenchQuery) -> LatencyFigures:
        """Measure a search for as many results as a user gets, and nothing but the search."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._search(query, None, None)
        return LatencyFigures((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)

    def _search(self, query: BenchQuery, max_results: int | None, min_score: float | None) -> SearchResult:
        self.clock.query_date, self.clock.is_asking = query.date, True
        try:
            return self.memory.search(query.text, max_results=max_results, min_score=min_score)
        finally:
            self.clock.is_asking = False


def _best_refused(result: SearchResult) -> float:
    return max((dropped.score for dropped in result.dropped if dropped.reason == "below min_score"), default=0.0)


def ask_all(
    groups: Mapping[str, BenchGroup],
    queries: Sequence[BenchQuery],
    *,
    max_results: int,
    min_score: float | None = None,
    embedder: Embedder | None = None,
    tick: Tick = lambda: None,
) -> VariantAnswers:
    """Ask every query and return the answers. ``tick`` is called after each query."""
    answers: dict[str, BenchAnswer] = {}
    degraded: dict[str, None] = {}
    for runner, group_queries in _iter_runners(groups, queries, embedder):
        for query in group_queries:
            answers[query.id] = runner.ask(query, max_results=max_results, min_score=min_score)
            tick()
        degraded.update(runner.degraded)
    return VariantAnswers(answers, tuple(degraded))


def time_all(
    groups: Mapping[str, BenchGroup], queries: Sequence[BenchQuery], *, embedder: Embedder | None = None
) -> list[LatencyFigures]:
    """Measure warm searches: the first search of each memory, which opens everything, is not measured."""
    latencies: list[LatencyFigures] = []
    for runner, group_queries in _iter_runners(groups, queries, embedder):
        runner.time(group_queries[0])
        latencies += [runner.time(query) for query in group_queries]
    return latencies


def _iter_runners(
    groups: Mapping[str, BenchGroup], queries: Sequence[BenchQuery], embedder: Embedder | None
) -> Iterator[tuple[QueryRunner, list[BenchQuery]]]:
    """Yield a runner for each group with the queries of that group. Only one memory is open at a time."""
    by_group: dict[str, list[BenchQuery]] = {}
    for query in queries:
        by_group.setdefault(query.group, []).append(query)
    for name, group_queries in by_group.items():
        runner = QueryRunner(groups[name], embedder=embedder)
        with runner.memory:
            yield runner, group_queries
