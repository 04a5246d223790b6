"""Asks the queries of a set through `Memory.search`, as a user with the same settings would."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kept.base.clock import SystemClock
from kept.base.values import frozen
from kept.config import Config
from kept.embedding.base import Embedder
from kept.memory import Memory
from kept.search.selection import MAX_CHARS
from kept.server.bench.dataset import BenchQuery
from kept.server.bench.layout import BenchGroup
from kept.server.bench.metrics import BUDGET_TOKENS, ReturnedHit

_FEWEST, _MOST = 12, 50

Tick = Callable[[], None]


def hits_to_ask_for(text_tokens: int, text_chars: int, chunks: int) -> int:
    """Return the number of hits to request for every query of a set.

    A user asks for six. This is enough for ten documents and for 2,000 tokens of snippets.
    """
    snippet_chars = min(MAX_CHARS, text_chars / max(1, chunks))
    snippet_tokens = max(1.0, snippet_chars * text_tokens / max(1, text_chars))
    return min(_MOST, max(_FEWEST, round(1.25 * BUDGET_TOKENS / snippet_tokens)))


BASELINES = ("keyword", "vector")


def with_baseline(config: Config, name: str) -> Config:
    """Return the settings for words alone or vectors alone. They have no threshold: each would need one of its own."""
    query = replace(config.memory_search.query, min_score=0.0)
    weights = {"enabled": False} if name == "keyword" else {"vector_weight": 1.0, "text_weight": 0.0}
    search = replace(config.memory_search, query=replace(query, hybrid=replace(query.hybrid, **weights)))
    return replace(config, agent=replace(config.agent, memory_search=search))


@frozen
class SetAnswers:
    """Hits of each query by its id."""

    hits: dict[str, tuple[ReturnedHit, ...]]
    degraded: tuple[str, ...]
    """Reasons why some answers may be worse than they should be."""
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

    def ask(self, query: BenchQuery, *, max_results: int, min_score: float | None = None) -> tuple[ReturnedHit, ...]:
        self.clock.query_date, self.clock.is_asking = query.date, True
        started = time.perf_counter()
        try:
            result = self.memory.search(query.text, max_results=max_results, min_score=min_score)
        finally:
            self.clock.is_asking = False
        self.latencies_ms.append((time.perf_counter() - started) * 1000)
        self.degraded.update(dict.fromkeys(result.degraded))
        return tuple(self.group.returned_hit(hit) for hit in result.hits)


def ask_all(
    groups: Mapping[str, BenchGroup],
    queries: Sequence[BenchQuery],
    *,
    max_results: int,
    min_score: float | None = None,
    embedder: Embedder | None = None,
    tick: Tick = lambda: None,
) -> SetAnswers:
    """Ask every query, with one memory open at a time. ``tick`` is called after each query."""
    hits: dict[str, tuple[ReturnedHit, ...]] = {}
    degraded: dict[str, None] = {}
    latencies_ms: list[float] = []
    for name in dict.fromkeys(query.group for query in queries):
        runner = QueryRunner(groups[name], embedder=embedder)
        with runner.memory:
            for query in queries:
                if query.group == name:
                    hits[query.id] = runner.ask(query, max_results=max_results, min_score=min_score)
                    tick()
        degraded.update(runner.degraded)
        latencies_ms += runner.latencies_ms[1:]
    return SetAnswers(hits, tuple(degraded), tuple(latencies_ms))
