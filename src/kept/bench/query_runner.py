"""Asks the queries of a set through `Memory.search`, in the variants that are compared over one index.

The variants are the user's settings (`KEPT`) and the baselines.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kept.bench.dataset import BenchQuery
from kept.bench.layout import BenchGroup
from kept.bench.metrics import BUDGET_TOKENS, ReturnedHit
from kept.clock import SystemClock
from kept.config import Config, QuerySettings
from kept.embedding.base import Embedder
from kept.memory import Memory
from kept.search.selection import MAX_CHARS
from kept.values import frozen

KEPT = "kept"
_FEWEST, _MOST = 12, 50

Tick = Callable[[], None]


# variants


def hits_to_ask_for(text_tokens: int, text_chars: int, chunks: int) -> int:
    """Return the number of hits to request for every query and variant of a set.

    A user asks for six. This is enough for ten documents and for 2,000 tokens of snippets.
    """
    snippet_chars = min(MAX_CHARS, text_chars / max(1, chunks))
    snippet_tokens = max(1.0, snippet_chars * text_tokens / max(1, text_chars))
    return min(_MOST, max(_FEWEST, round(1.25 * BUDGET_TOKENS / snippet_tokens)))


def _keyword(query: QuerySettings) -> QuerySettings:
    return replace(query, min_score=0.0, hybrid=replace(query.hybrid, enabled=False))


def _vector(query: QuerySettings) -> QuerySettings:
    return replace(query, min_score=0.0, hybrid=replace(query.hybrid, vector_weight=1.0, text_weight=0.0))


BASELINES: dict[str, Callable[[QuerySettings], QuerySettings]] = {"keyword": _keyword, "vector": _vector}
"""Words alone and vectors alone have no threshold: theirs would have to be another one, and without one they are harder
to beat."""


def with_variant(config: Config, name: str) -> Config:
    if name == KEPT:
        return config
    search = replace(config.memory_search, query=BASELINES[name](config.memory_search.query))
    return replace(config, agent=replace(config.agent, memory_search=search))


# asking


@frozen
class BenchAnswer:
    hits: tuple[ReturnedHit, ...]


@frozen
class VariantAnswers:
    """Answers of one variant by query id."""

    answers: dict[str, BenchAnswer]
    degraded: tuple[str, ...]
    """Reasons why some of them may be worse than they should be."""
    latencies_ms: tuple[float, ...]
    """Times of all searches but the first of each memory, which opens everything."""


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
        self.latencies_ms: list[float] = []

    def ask(self, query: BenchQuery, *, max_results: int, min_score: float | None = None) -> BenchAnswer:
        self.clock.query_date, self.clock.is_asking = query.date, True
        started = time.perf_counter()
        try:
            result = self.memory.search(query.text, max_results=max_results, min_score=min_score)
        finally:
            self.clock.is_asking = False
        self.latencies_ms.append((time.perf_counter() - started) * 1000)
        self.degraded.update(dict.fromkeys(result.degraded))
        return BenchAnswer(tuple(self.group.returned_hit(hit) for hit in result.hits))


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
    latencies_ms: list[float] = []
    for runner, group_queries in _iter_runners(groups, queries, embedder):
        for query in group_queries:
            answers[query.id] = runner.ask(query, max_results=max_results, min_score=min_score)
            tick()
        degraded.update(runner.degraded)
        latencies_ms += runner.latencies_ms[1:]
    return VariantAnswers(answers, tuple(degraded), tuple(latencies_ms))


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
