"""Measuring one set: write its documents, index them, ask its queries in every variant, add up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from kept.bench.asking import Answer, Asked, Tick, ask_all, time_all
from kept.bench.calibration import Point, Probe, Probes, make_random_queries, measure_curve, thresholds
from kept.bench.dataset import BenchSet, Query, Relevance
from kept.bench.layout import Group, lay_out
from kept.bench.metrics import Figures, evaluate, evaluate_sessions, mean_figures, percentile
from kept.bench.variants import BASELINES, KEPT, embedder_for, hits_to_ask_for, text_for, with_variant
from kept.chunking.tokens import estimate_tokens
from kept.config import Config
from kept.embedding.base import Embedder
from kept.memory import Memory
from kept.records import Status
from kept.values import frozen

Progress = Callable[[int, int, str], None]

TIMED = 200
"""Searches that the latency of a set is taken from."""


@frozen
class Plan:
    """What is to be measured, beside the set itself."""

    baselines: tuple[str, ...] = tuple(BASELINES)
    sample: int | None = None
    """At most so many queries, evenly spread over the set; None is all of them."""
    foreign: tuple[str, ...] = ()
    """Questions that the set cannot answer."""


@frozen
class IndexFigures:
    seconds: float = 0.0
    bytes: int = 0
    files: int = 0
    chunks: int = 0
    provider: str = "none"
    model: str | None = None

    def plus(self, status: Status, seconds: float) -> IndexFigures:
        return IndexFigures(
            seconds=self.seconds + seconds,
            bytes=self.bytes + status.index_bytes,
            files=self.files + status.files,
            chunks=self.chunks + status.chunks,
            provider=status.provider,
            model=status.model,
        )


@frozen
class Summary:
    """The figures of some queries in one variant."""

    queries: int
    answerable: int
    """Those that the figures are means of: they can be answered, and it is known by what."""
    figures: Figures
    abstained_rightly: float | None
    """Of the queries that cannot be answered, the share that got nothing. None where there is no such query."""
    abstained_wrongly: float | None
    """Of those that can, the share that got nothing."""


@frozen
class Measured:
    name: str
    documents: int
    queries: int
    unjudged: int
    """Queries that should be answered, but nobody says by what: they are asked, and count for nothing."""
    asked_for: int
    """Hits."""
    index: IndexFigures
    summaries: dict[str, Summary]
    """By variant."""
    categories: dict[str, Summary]
    unthresholded: Figures
    """As with ``min_score`` 0."""
    with_adversarial: Figures
    """Of every query that something is marked as relevant for, those that should be refused included."""
    sessions: Figures
    audited: Figures
    latency: dict[str, float]
    min_score: float
    curve: tuple[Point, ...]
    degraded: tuple[str, ...] = ()
    failures: tuple[str, ...] = field(default=())


def measure_set(
    bench: BenchSet,
    config: Config,
    plan: Plan,
    *,
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Everything is done below a folder of its own, which is gone when this returns."""
    with tempfile.TemporaryDirectory(prefix="kept-bench-") as folder:
        return _Measuring(bench, config, plan, embedder, progress).run(folder)


class _Measuring:
    def __init__(
        self, bench: BenchSet, config: Config, plan: Plan, embedder: Embedder | None, progress: Progress | None
    ) -> None:
        self.bench = bench
        self.config = config
        self.plan = plan
        self.embedder = embedder
        self.progress = progress
        self.queries = sample(bench.queries, plan.sample)
        self.index = IndexFigures()
        self.failures: tuple[str, ...] = ()
        self.max_results = 0
        self.done = 0
        self.total = len(self.queries) * (2 + len(plan.baselines))

    def run(self, folder: str) -> Measured:
        groups = lay_out(self.bench, self.config, folder)
        self._index(groups)
        names = [name for name in self.plan.baselines if name != "vector" or self.index.model]
        asked = {name: self._ask(groups, name) for name in (KEPT, *names)}
        relevant, ordinary = self.bench.relevant, asked[KEPT].answers
        unlimited = ordinary | self._ask_unlimited(groups, ordinary)
        min_score = self.config.memory_search.query.min_score
        return Measured(
            name=self.bench.name,
            documents=len(self.bench.files) or len(self.bench.documents),
            queries=len(self.queries),
            unjudged=sum(query.answerable and query.id not in relevant for query in self.queries),
            asked_for=self.max_results,
            index=self.index,
            summaries={name: summarise(self.queries, one.answers, relevant) for name, one in asked.items()},
            categories=by_category(self.queries, ordinary, relevant),
            unthresholded=summarise(self.queries, unlimited, relevant).figures,
            with_adversarial=mean_figures(
                [evaluate(ordinary[one.id].hits, relevant[one.id]) for one in self.queries if one.id in relevant]
            ),
            sessions=self._session_figures(ordinary),
            audited=summarise(self.queries, ordinary, self.bench.audited).figures if self.bench.audited else {},
            latency=self._latency(groups),
            min_score=min_score,
            curve=tuple(measure_curve(self._probes(groups, unlimited), thresholds(min_score))),
            degraded=tuple(dict.fromkeys(reason for one in asked.values() for reason in one.degraded)),
            failures=self.failures,
        )

    def _index(self, groups: Mapping[str, Group]) -> None:
        failures: dict[str, None] = {}
        for number, group in enumerate(groups.values()):
            self._report(number, len(groups), "indexing")
            with Memory(group.config, embedder=self.embedder) as memory:
                started = time.perf_counter()
                report = memory.sync()
                took = time.perf_counter() - started
                status = memory.status()
                self.embedder = memory.embedder()[1]
            failures.update(
                dict.fromkeys((*report.failures, *(f"{one.path}: {one.reason}" for one in report.problems)))
            )
            self.index = self.index.plus(status, took)
        self.failures = tuple(failures)
        texts = [*self.bench.files.values()] or [document.text for document in self.bench.documents]
        self.max_results = hits_to_ask_for(
            sum(map(estimate_tokens, texts)),
            sum(map(len, texts)),
            self.index.chunks,
            sessions=bool(self.bench.sessions),
        )

    def _ask(self, groups: Mapping[str, Group], variant: str) -> Asked:
        return ask_all(
            {name: replace(group, config=with_variant(group.config, variant)) for name, group in groups.items()},
            [replace(query, text=text_for(variant, query.text)) for query in self.queries],
            max_results=self.max_results,
            embedder=embedder_for(variant, self.embedder),
            tick=lambda: self._tick(variant),
        )

    def _ask_unlimited(self, groups: Mapping[str, Group], ordinary: Mapping[str, Answer]) -> dict[str, Answer]:
        """What the threshold has made a difference to, asked again without one."""
        again = [query for query in self.queries if not ordinary[query.id].unlimited]
        self.done += len(self.queries) - len(again)
        return self._ask_openly(groups, again, tick=lambda: self._tick("no threshold"))

    def _ask_openly(
        self, groups: Mapping[str, Group], queries: Sequence[Query], *, tick: Tick = lambda: None
    ) -> dict[str, Answer]:
        return ask_all(
            groups, queries, max_results=self.max_results, min_score=0.0, embedder=self.embedder, tick=tick
        ).answers

    def _latency(self, groups: Mapping[str, Group]) -> dict[str, float]:
        timings = time_all(groups, sample(self.queries, TIMED), embedder=self.embedder)
        walls, cpus = [one.wall_ms for one in timings], [one.cpu_ms for one in timings]
        return {
            "p50_ms": percentile(walls, 0.5),
            "p95_ms": percentile(walls, 0.95),
            "cpu_p50_ms": percentile(cpus, 0.5),
            "cpu_p95_ms": percentile(cpus, 0.95),
        }

    def _session_figures(self, answers: Mapping[str, Answer]) -> Figures:
        judged = [one for one in self.queries if one.answerable and one.id in self.bench.sessions]
        return mean_figures([evaluate_sessions(answers[one.id].hits, self.bench.sessions[one.id]) for one in judged])

    def _probes(self, groups: Mapping[str, Group], unlimited: Mapping[str, Answer]) -> Probes:
        relevant, names = self.bench.relevant, [*groups]
        foreign: dict[str, list[str]] = {}
        for at, text in enumerate(self.plan.foreign):
            foreign.setdefault(names[at % len(names)], []).append(text)

        def probe(query: Query) -> Probe:
            return Probe(unlimited[query.id].hits, relevant.get(query.id, {}))

        return Probes(
            random=self._nonsense(groups, make_random_queries(self.bench)),
            foreign=self._nonsense(groups, foreign),
            adversarial=tuple(probe(one) for one in self.queries if not one.answerable),
            answerable=tuple(probe(one) for one in self.queries if one.answerable and one.id in relevant),
        )

    def _nonsense(self, groups: Mapping[str, Group], texts: Mapping[str, Sequence[str]]) -> tuple[Probe, ...]:
        queries = [
            Query(f"{group}:{at}", text, group=group) for group, found in texts.items() for at, text in enumerate(found)
        ]
        return tuple(Probe(answer.hits, {}) for answer in self._ask_openly(groups, queries).values())

    def _tick(self, label: str) -> None:
        self.done += 1
        if self.done % 20 == 0:
            self._report(self.done, self.total, label)

    def _report(self, done: int, total: int, label: str) -> None:
        if self.progress is not None:
            self.progress(done, total, label)


def sample(queries: tuple[Query, ...], size: int | None) -> tuple[Query, ...]:
    """Evenly spread, so that every part of a set has its share."""
    if size is None or size >= len(queries):
        return queries
    return tuple(queries[at * len(queries) // size] for at in range(size))


def summarise(queries: Sequence[Query], answers: Mapping[str, Answer], relevant: Relevance) -> Summary:
    judged = [query for query in queries if query.answerable and query.id in relevant]
    hopeless = [query for query in queries if not query.answerable]
    return Summary(
        queries=len(queries),
        answerable=len(judged),
        figures=mean_figures([evaluate(answers[one.id].hits, relevant[one.id]) for one in judged]),
        abstained_rightly=_share_empty(hopeless, answers),
        abstained_wrongly=_share_empty(judged, answers),
    )


def by_category(queries: Sequence[Query], answers: Mapping[str, Answer], relevant: Relevance) -> dict[str, Summary]:
    names = dict.fromkeys(query.category for query in queries)
    return {
        name: summarise([query for query in queries if query.category == name], answers, relevant) for name in names
    }


def _share_empty(queries: Sequence[Query], answers: Mapping[str, Answer]) -> float | None:
    return sum(not answers[one.id].hits for one in queries) / len(queries) if queries else None
