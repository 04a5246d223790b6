"""Measures sets: writes the documents, indexes them, asks the queries in every variant, computes the figures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from kept.bench.dataset import BenchQuery, BenchSet, Relevance, read_set
from kept.bench.layout import BenchGroup, lay_out
from kept.bench.metrics import FIGURES, Figures, evaluate, mean_figures, percentile
from kept.bench.query_runner import (
    BASELINES,
    KEPT,
    BenchAnswer,
    VariantAnswers,
    ask_all,
    hits_to_ask_for,
    with_variant,
)
from kept.config import Config
from kept.embedding.base import Embedder
from kept.errors import BenchSetInvalid
from kept.limits import estimate_tokens
from kept.memory import Memory
from kept.records import GRADES, Grade
from kept.reports import Status
from kept.values import frozen

Progress = Callable[[str, int, int, str], None]
"""Called with the name of a set, the steps done, the steps in total, and a label of the current one."""


@frozen
class MeasurePlan:
    """Extent of a measurement."""

    baselines: tuple[str, ...] = tuple(BASELINES)
    sample: int | None = None
    """Maximum number of queries, evenly spread over the set; None is all of them."""


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
    latency: dict[str, float]
    min_score: float
    grades: dict[Grade, GradeFigures]
    """Figures of the first hits of answerable queries, by grade."""
    degraded: tuple[str, ...] = ()
    """What did not work, in words."""


def read_sets(folders: Sequence[str]) -> list[BenchSet]:
    sets = [read_set(folder) for folder in folders]
    names = [bench.name for bench in sets]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise BenchSetInvalid(f"Two of the sets are called '{duplicate}'.", hint="Rename one of the folders.")
    return sets


def measure_set(
    bench: BenchSet,
    config: Config,
    plan: MeasurePlan,
    *,
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> SetMeasurement:
    """Measure a set in a temporary folder, which is gone when this returns."""
    with tempfile.TemporaryDirectory(prefix="kept-bench-") as folder:
        return _SetRun(bench, config, plan, embedder, progress).run(folder)


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
        self.failures: dict[str, None] = {}
        self.max_results = 0
        self.done = 0
        self.total = len(self.queries) * (1 + len(plan.baselines))

    def run(self, folder: str) -> SetMeasurement:
        groups = lay_out(self.bench, self.config, folder)
        self._index(groups)
        names = [name for name in self.plan.baselines if name != "vector" or self.index.model]
        variants = {name: self._ask(groups, name) for name in (KEPT, *names)}
        relevant, answers = self.bench.relevant, variants[KEPT].answers
        degraded = dict.fromkeys(reason for variant in variants.values() for reason in variant.degraded)
        return SetMeasurement(
            name=self.bench.name,
            documents=len(self.bench.files) or len(self.bench.documents),
            queries=len(self.queries),
            unjudged=sum(query.answerable and query.id not in relevant for query in self.queries),
            asked_for=self.max_results,
            index=self.index,
            summaries={name: summarise(self.queries, variant.answers, relevant) for name, variant in variants.items()},
            categories=by_category(self.queries, answers, relevant),
            latency={
                "p50_ms": percentile(variants[KEPT].latencies_ms, 0.5),
                "p95_ms": percentile(variants[KEPT].latencies_ms, 0.95),
            },
            min_score=self.config.memory_search.query.min_score,
            grades=grade_figures(self.queries, answers, relevant),
            degraded=(*degraded, *self.failures),
        )

    def _index(self, groups: Mapping[str, BenchGroup]) -> None:
        for number, group in enumerate(groups.values()):
            self._report(number, len(groups), "indexing")
            with Memory(group.config, embedder=self.embedder) as memory:
                started = time.perf_counter()
                report = memory.sync()
                seconds = time.perf_counter() - started
                status = memory.status()
                self.embedder = memory.index_service.embedder
            problems = (f"{problem.path}: {problem.reason}" for problem in report.problems)
            self.failures.update(dict.fromkeys((*report.failures, *problems)))
            self.index = self.index.plus(status, seconds)
        texts = [*self.bench.files.values()] or [document.text for document in self.bench.documents]
        self.max_results = hits_to_ask_for(sum(map(estimate_tokens, texts)), sum(map(len, texts)), self.index.chunks)

    def _ask(self, groups: Mapping[str, BenchGroup], variant: str) -> VariantAnswers:
        return ask_all(
            {name: replace(group, config=with_variant(group.config, variant)) for name, group in groups.items()},
            self.queries,
            max_results=self.max_results,
            embedder=self.embedder,
            tick=lambda: self._tick(variant),
        )

    def _tick(self, label: str) -> None:
        self.done += 1
        if self.done % 20 == 0:
            self._report(self.done, self.total, label)

    def _report(self, done: int, total: int, label: str) -> None:
        if self.progress is not None:
            self.progress(self.bench.name, done, total, label)


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


def grade_figures(
    queries: Sequence[BenchQuery], answers: Mapping[str, BenchAnswer], relevant: Relevance
) -> dict[Grade, GradeFigures]:
    """Return how many first hits of judged queries have each grade, and how many of those are right."""
    judged = [query for query in queries if query.answerable and query.id in relevant and answers[query.id].hits]
    firsts = [(hit := answers[query.id].hits[0], bool(hit.documents & relevant[query.id].keys())) for query in judged]
    return {
        grade: GradeFigures(
            hits=sum(hit.grade == grade for hit, _ in firsts),
            right=sum(hit.grade == grade and is_right for hit, is_right in firsts),
        )
        for grade in GRADES
    }


# JSON: programs rely on these names. Names may be added, but not changed.


def set_json(measurement: SetMeasurement, against: SetMeasurement | None = None) -> dict[str, Any]:
    """Return a measurement, with the figures of the settings that it is compared with."""
    shape: dict[str, Any] = {"set": measurement.name}
    for name, summary in measurement.summaries.items():
        shape[name] = summary_json(summary)
    shape[KEPT] |= _rounded(measurement.latency)
    if against is not None:
        shape["against"] = summary_json(against.summaries[KEPT]) | _rounded(against.latency)
    shape["categories"] = {name: summary_json(summary) for name, summary in measurement.categories.items()}
    return shape | {
        "documents": measurement.documents,
        "queries": measurement.queries,
        "unjudged": measurement.unjudged,
        "asked_for": measurement.asked_for,
        "index": _rounded(asdict(measurement.index)),
        "min_score": measurement.min_score,
        "grades": {grade: {"hits": hits.hits, "right": hits.right} for grade, hits in measurement.grades.items()},
        "degraded": [*measurement.degraded],
    }


def summary_json(summary: FigureSummary) -> dict[str, Any]:
    # A query that cannot be answered has no recall: a category of such queries has null, not 0.
    figures: dict[str, Any] = {name: summary.figures.get(name) for name in FIGURES}
    shares = {name: value for name, value in asdict(summary).items() if name != "figures"}
    return _rounded(figures | shares)


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
