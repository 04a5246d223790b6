"""Measures a set: write the documents, index them, ask the queries in every variant, compute the figures."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from kept.bench.curves import JudgedAnswer, ScoreBin, TokenRecall, calibration_curve, is_right, recall_by_tokens
from kept.bench.dataset import BenchQuery, BenchSet, Relevance
from kept.bench.layout import BenchGroup, lay_out
from kept.bench.metrics import Figures, evaluate, evaluate_sessions, mean_figures, percentile
from kept.bench.query_runner import (
    BASELINES,
    KEPT,
    BenchAnswer,
    Tick,
    VariantAnswers,
    ask_all,
    embedder_for,
    hits_to_ask_for,
    text_for,
    time_all,
    with_variant,
)
from kept.bench.threshold import (
    Probe,
    ProbeSet,
    ThresholdPoint,
    make_random_queries,
    measure_curve,
    thresholds,
)
from kept.config import Config
from kept.embedding.base import Embedder
from kept.limits import estimate_tokens
from kept.memory import Memory
from kept.records import GRADES, LIKELY_FROM, Grade
from kept.reports import Status
from kept.values import frozen

Progress = Callable[[int, int, str], None]

TIMED_SEARCHES = 200
"""Number of searches that the latency of a set is measured with."""


@frozen
class MeasurePlan:
    """Extent of a measurement."""

    baselines: tuple[str, ...] = tuple(BASELINES)
    sample: int | None = None
    """Maximum number of queries, evenly spread over the set; None is all of them."""
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
class FigureSummary:
    """Figures of some queries in one variant."""

    queries: int
    answerable: int
    """Queries that the figures are means of: they can be answered, and the set names the documents."""
    figures: Figures
    abstained_rightly: float | None
    """Share of the unanswerable queries that got no hit. None without such queries."""
    abstained_wrongly: float | None
    """Share of the answerable queries that got no hit."""


@frozen
class GradeFigures:
    hits: int
    right: int


@frozen
class SetMeasurement:
    name: str
    documents: int
    queries: int
    unjudged: int
    """Answerable queries for which the set names no document: they are asked, but do not count."""
    asked_for: int
    """Number of hits requested for each query."""
    index: IndexFigures
    summaries: dict[str, FigureSummary]
    """Summaries by variant."""
    categories: dict[str, FigureSummary]
    unthresholded: Figures
    """Figures with a ``min_score`` of 0."""
    with_adversarial: Figures
    """Figures of every query with a relevant document, including those that should be refused."""
    sessions: Figures
    audited: Figures
    latency: dict[str, float]
    min_score: float
    grades: dict[Grade, GradeFigures]
    """Figures of the first hits of answerable queries, by grade."""
    recall_by_tokens: dict[str, tuple[TokenRecall, ...]]
    """Points by variant."""
    calibration_curve: tuple[ScoreBin, ...]
    curve: tuple[ThresholdPoint, ...]
    degraded: tuple[str, ...] = ()
    failures: tuple[str, ...] = field(default=())


def measure_set(
    bench: BenchSet,
    config: Config,
    plan: MeasurePlan,
    *,
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> SetMeasurement:
    """Measure a set in a temporary folder, which is gone when this returns."""
    with tempfile.TemporaryDirectory(prefix=_folder_prefix()) as folder:
        return _SetRun(bench, config, plan, embedder, progress).run(folder)


def remove_folders() -> bool:
    """Remove the temporary folders of this process, and return whether there were any."""
    parent, prefix = tempfile.gettempdir(), _folder_prefix()
    folders = [name for name in os.listdir(parent) if name.startswith(prefix)]
    for name in folders:
        shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
    return bool(folders)


def _folder_prefix() -> str:
    return f"kept-bench-{os.getpid()}-"


class _SetRun:
    """Measurement of one set in progress."""

    def __init__(
        self, bench: BenchSet, config: Config, plan: MeasurePlan, embedder: Embedder | None, progress: Progress | None
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

    def run(self, folder: str) -> SetMeasurement:
        groups = lay_out(self.bench, self.config, folder)
        self._index(groups)
        names = [name for name in self.plan.baselines if name != "vector" or self.index.model]
        variants = {name: self._ask(groups, name) for name in (KEPT, *names)}
        relevant, ordinary = self.bench.relevant, variants[KEPT].answers
        judged = judge(self.queries, ordinary, relevant)
        unlimited = ordinary | self._ask_unlimited(groups, ordinary)
        min_score = self.config.memory_search.query.min_score
        return SetMeasurement(
            name=self.bench.name,
            documents=len(self.bench.files) or len(self.bench.documents),
            queries=len(self.queries),
            unjudged=sum(query.answerable and query.id not in relevant for query in self.queries),
            asked_for=self.max_results,
            index=self.index,
            summaries={name: summarise(self.queries, variant.answers, relevant) for name, variant in variants.items()},
            categories=by_category(self.queries, ordinary, relevant),
            unthresholded=summarise(self.queries, unlimited, relevant).figures,
            with_adversarial=mean_figures(
                [
                    evaluate(ordinary[query.id].hits, relevant[query.id])
                    for query in self.queries
                    if query.id in relevant
                ]
            ),
            sessions=self._session_figures(ordinary),
            audited=summarise(self.queries, ordinary, self.bench.audited).figures if self.bench.audited else {},
            latency=self._latency(groups),
            min_score=min_score,
            grades=grade_figures(judged),
            recall_by_tokens={
                name: recall_by_tokens(judge(self.queries, variant.answers, relevant))
                for name, variant in variants.items()
            },
            calibration_curve=calibration_curve(judged),
            curve=tuple(measure_curve(self._probes(groups, unlimited), thresholds(max(min_score, LIKELY_FROM)))),
            degraded=tuple(dict.fromkeys(reason for variant in variants.values() for reason in variant.degraded)),
            failures=self.failures,
        )

    def _index(self, groups: Mapping[str, BenchGroup]) -> None:
        failures: dict[str, None] = {}
        for number, group in enumerate(groups.values()):
            self._report(number, len(groups), "indexing")
            with Memory(group.config, embedder=self.embedder) as memory:
                started = time.perf_counter()
                report = memory.sync()
                seconds = time.perf_counter() - started
                status = memory.status()
                self.embedder = memory.index_service.embedder
            failures.update(
                dict.fromkeys((*report.failures, *(f"{problem.path}: {problem.reason}" for problem in report.problems)))
            )
            self.index = self.index.plus(status, seconds)
        self.failures = tuple(failures)
        texts = [*self.bench.files.values()] or [document.text for document in self.bench.documents]
        self.max_results = hits_to_ask_for(
            sum(map(estimate_tokens, texts)),
            sum(map(len, texts)),
            self.index.chunks,
            sessions=bool(self.bench.sessions),
        )

    def _ask(self, groups: Mapping[str, BenchGroup], variant: str) -> VariantAnswers:
        return ask_all(
            {name: replace(group, config=with_variant(group.config, variant)) for name, group in groups.items()},
            [replace(query, text=text_for(variant, query.text)) for query in self.queries],
            max_results=self.max_results,
            embedder=embedder_for(variant, self.embedder),
            tick=lambda: self._tick(variant),
        )

    def _ask_unlimited(
        self, groups: Mapping[str, BenchGroup], ordinary: Mapping[str, BenchAnswer]
    ) -> dict[str, BenchAnswer]:
        """Ask the queries again to which the threshold made a difference, without it."""
        again = [query for query in self.queries if not ordinary[query.id].unlimited]
        self.done += len(self.queries) - len(again)
        return self._ask_without_threshold(groups, again, tick=lambda: self._tick("no threshold"))

    def _ask_without_threshold(
        self, groups: Mapping[str, BenchGroup], queries: Sequence[BenchQuery], *, tick: Tick = lambda: None
    ) -> dict[str, BenchAnswer]:
        return ask_all(
            groups, queries, max_results=self.max_results, min_score=0.0, embedder=self.embedder, tick=tick
        ).answers

    def _latency(self, groups: Mapping[str, BenchGroup]) -> dict[str, float]:
        latencies = time_all(groups, sample(self.queries, TIMED_SEARCHES), embedder=self.embedder)
        walls_ms, cpus_ms = [latency.wall_ms for latency in latencies], [latency.cpu_ms for latency in latencies]
        return {
            "p50_ms": percentile(walls_ms, 0.5),
            "p95_ms": percentile(walls_ms, 0.95),
            "cpu_p50_ms": percentile(cpus_ms, 0.5),
            "cpu_p95_ms": percentile(cpus_ms, 0.95),
        }

    def _session_figures(self, answers: Mapping[str, BenchAnswer]) -> Figures:
        relevant = self.bench.sessions
        judged = [query for query in self.queries if query.answerable and query.id in relevant]
        return mean_figures([evaluate_sessions(answers[query.id].hits, relevant[query.id]) for query in judged])

    def _probes(self, groups: Mapping[str, BenchGroup], unlimited: Mapping[str, BenchAnswer]) -> ProbeSet:
        relevant, names = self.bench.relevant, [*groups]
        foreign: dict[str, list[str]] = {}
        for number, text in enumerate(self.plan.foreign):
            foreign.setdefault(names[number % len(names)], []).append(text)

        def probe(query: BenchQuery) -> Probe:
            return Probe(unlimited[query.id].hits, relevant.get(query.id, {}))

        return ProbeSet(
            random=self._ask_nonsense(groups, make_random_queries(self.bench)),
            foreign=self._ask_nonsense(groups, foreign),
            adversarial=tuple(probe(query) for query in self.queries if not query.answerable),
            answerable=tuple(probe(query) for query in self.queries if query.answerable and query.id in relevant),
        )

    def _ask_nonsense(self, groups: Mapping[str, BenchGroup], texts: Mapping[str, Sequence[str]]) -> tuple[Probe, ...]:
        queries = [
            BenchQuery(f"{group}:{number}", text, group=group)
            for group, group_texts in texts.items()
            for number, text in enumerate(group_texts)
        ]
        return tuple(Probe(answer.hits, {}) for answer in self._ask_without_threshold(groups, queries).values())

    def _tick(self, label: str) -> None:
        self.done += 1
        if self.done % 20 == 0:
            self._report(self.done, self.total, label)

    def _report(self, done: int, total: int, label: str) -> None:
        if self.progress is not None:
            self.progress(done, total, label)


def sample(queries: tuple[BenchQuery, ...], size: int | None) -> tuple[BenchQuery, ...]:
    """Return at most ``size`` queries, evenly spread, so that every part of a set has its share."""
    if size is None or size >= len(queries):
        return queries
    return tuple(queries[number * len(queries) // size] for number in range(size))


def summarise(queries: Sequence[BenchQuery], answers: Mapping[str, BenchAnswer], relevant: Relevance) -> FigureSummary:
    judged = [query for query in queries if query.answerable and query.id in relevant]
    unanswerable = [query for query in queries if not query.answerable]
    return FigureSummary(
        queries=len(queries),
        answerable=len(judged),
        figures=mean_figures([evaluate(answers[query.id].hits, relevant[query.id]) for query in judged]),
        abstained_rightly=_share_empty(unanswerable, answers),
        abstained_wrongly=_share_empty(judged, answers),
    )


def by_category(
    queries: Sequence[BenchQuery], answers: Mapping[str, BenchAnswer], relevant: Relevance
) -> dict[str, FigureSummary]:
    names = dict.fromkeys(query.category for query in queries)
    return {
        name: summarise([query for query in queries if query.category == name], answers, relevant) for name in names
    }


def _share_empty(queries: Sequence[BenchQuery], answers: Mapping[str, BenchAnswer]) -> float | None:
    """Return the share of queries without a hit that is better than weak."""
    if not queries:
        return None
    return sum(all(hit.grade == "weak" for hit in answers[query.id].hits) for query in queries) / len(queries)


def judge(queries: Sequence[BenchQuery], answers: Mapping[str, BenchAnswer], relevant: Relevance) -> list[JudgedAnswer]:
    """Return the answers of the answerable queries with their relevant documents. Unjudged queries are left out."""
    return [
        (answers[query.id].hits, relevant[query.id]) for query in queries if query.answerable and query.id in relevant
    ]


def grade_figures(judged: Sequence[JudgedAnswer]) -> dict[Grade, GradeFigures]:
    """Return how many first hits have each grade, and how many of those are right."""
    firsts = [(hits[0], relevant) for hits, relevant in judged if hits]
    return {
        grade: GradeFigures(
            hits=sum(hit.grade == grade for hit, _ in firsts),
            right=sum(hit.grade == grade and is_right(hit, relevant) for hit, relevant in firsts),
        )
        for grade in GRADES
    }
