"""Asking every query of a set through `Memory.search`, and keeping what came back."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence

from kept.bench.dataset import Query
from kept.bench.layout import Group
from kept.bench.metrics import Returned
from kept.bench.variants import ASKED_FOR
from kept.clock import SystemClock
from kept.embedding.base import Embedder
from kept.memory import Memory
from kept.records import SearchResult
from kept.values import frozen

Tick = Callable[[], None]


@frozen
class Answer:
    hits: tuple[Returned, ...]
    wall_ms: float
    cpu_ms: float


@frozen
class Asked:
    """What one variant answered, by query, and what did not work meanwhile."""

    answers: dict[str, Answer]
    degraded: tuple[str, ...]


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
    """One memory, asked many things. It is warm: the first question, which opens everything, is not measured."""

    def __init__(self, group: Group, *, embedder: Embedder | None = None) -> None:
        self.group = group
        self.clock = AskingClock(group.newest)
        self.memory = Memory(group.config, embedder=embedder, clock=self.clock)
        self.degraded: dict[str, None] = {}

    def warm_up(self, text: str) -> None:
        self._search(text, None)

    def ask(self, query: Query, *, min_score: float | None = None) -> Answer:
        self.clock.asked_at, self.clock.is_asking = query.date, True
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            result = self._search(query.text, min_score)
        finally:
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            self.clock.is_asking = False
        self.degraded.update(dict.fromkeys(result.degraded))
        return Answer(tuple(self.group.returned(hit) for hit in result.hits), wall * 1000, cpu * 1000)

    def _search(self, text: str, min_score: float | None) -> SearchResult:
        return self.memory.search(text, max_results=ASKED_FOR, min_score=min_score)


def ask_all(
    groups: Mapping[str, Group],
    queries: Sequence[Query],
    *,
    embedder: Embedder | None = None,
    min_score: float | None = None,
    tick: Tick = lambda: None,
) -> Asked:
    answers: dict[str, Answer] = {}
    degraded: dict[str, None] = {}
    for name, group in groups.items():
        own = [query for query in queries if query.group == name]
        if not own:
            continue
        asker = Asker(group, embedder=embedder)
        with asker.memory:
            asker.warm_up(own[0].text)
            for query in own:
                answers[query.id] = asker.ask(query, min_score=min_score)
                tick()
        degraded.update(asker.degraded)
    return Asked(answers, tuple(degraded))
