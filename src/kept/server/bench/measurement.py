"""Measures sets: writes the documents, indexes them, asks the queries, computes the figures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from kept.base.limits import estimate_tokens
from kept.base.records import GRADES, Grade
from kept.base.values import frozen
from kept.config import Config
from kept.embedding.base import Embedder
from kept.errors import BenchSetInvalid
from kept.memory import Memory
from kept.server.bench.dataset import BenchQuery, BenchSet, Relevance, read_set, sample
from kept.server.bench.layout import BenchGroup, lay_out
from kept.server.bench.metrics import FIGURES, Figures, ReturnedHit, evaluate, mean_figures, percentile
from kept.server.bench.query_runner import BASELINES, ask_all, hits_to_ask_for, with_baseline

Progress = Callable[[str, int, int, str], None]
"""Called with the name of a set, the steps done, the steps in total, and a label of the current one."""
Hits = Mapping[str, Sequence[ReturnedHit]]
"""Hits of each query by its id."""


@frozen
class IndexFigures:
    seconds: float = 0.0
    bytes: int = 0
    files: int = 0
    chunks: int = 0
    provider: str = "none"
    model: str | None = None


@frozen
class FigureSummary:
    """Figures of some queries."""

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
    summary: FigureSummary
    baselines: dict[str, FigureSummary]
    """Figures of words alone and of vectors alone, on the same index; none if they were not asked for."""
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
    *,
    most_queries: int | None = None,
    baselines: bool = True,
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> SetMeasurement:
    """Measure a set in a temporary folder, which is gone when this returns. ``most_queries`` asks only so many, evenly
    spread over the set."""
    queries, relevant = sample(bench.queries, most_queries), bench.relevant
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None and done % 20 == 0:
            progress(bench.name, done, len(queries) * (3 if baselines else 1), "asking")

    with tempfile.TemporaryDirectory(prefix="kept-bench-") as folder:
        groups = lay_out(bench, config, folder)
        index, embedder, failures = _index(bench.name, groups, embedder, progress)
        texts = [*bench.files.values()] or [document.text for document in bench.documents]
        most = hits_to_ask_for(sum(map(estimate_tokens, texts)), sum(map(len, texts)), index.chunks)
        answers = ask_all(groups, queries, max_results=most, embedder=embedder, tick=tick)
        others = {}
        for name in BASELINES if baselines and embedder is not None else ():
            variants = {key: replace(group, config=with_baseline(group.config, name)) for key, group in groups.items()}
            hits = ask_all(variants, queries, max_results=most, embedder=embedder, tick=tick).hits
            others[name] = summarise(queries, hits, relevant)
    return SetMeasurement(
        name=bench.name,
        documents=len(bench.files) or len(bench.documents),
        queries=len(queries),
        unjudged=sum(query.answerable and query.id not in relevant for query in queries),
        asked_for=most,
        index=index,
        summary=summarise(queries, answers.hits, relevant),
        baselines=others,
        categories=by_category(queries, answers.hits, relevant),
        latency={f"p{share}_ms": percentile(answers.latencies_ms, share / 100) for share in (50, 95)},
        min_score=config.memory_search.query.min_score,
        grades=grade_figures(queries, answers.hits, relevant),
        degraded=(*answers.degraded, *failures),
    )


def _index(
    name: str, groups: Mapping[str, BenchGroup], embedder: Embedder | None, progress: Progress | None
) -> tuple[IndexFigures, Embedder | None, list[str]]:
    """Index every group. Return the figures of all, the embedder that was used, and what did not work."""
    figures, failures = IndexFigures(), dict[str, None]()
    for number, group in enumerate(groups.values()):
        if progress is not None:
            progress(name, number, len(groups), "indexing")
        with Memory(group.config, embedder=embedder) as memory:
            started = time.perf_counter()
            report = memory.sync()
            seconds = time.perf_counter() - started
            status = memory.status()
            embedder = memory.index_service.embedder
        problems = (f"{problem.path}: {problem.reason}" for problem in report.problems)
        failures.update(dict.fromkeys((*report.failures, *problems)))
        figures = IndexFigures(
            seconds=figures.seconds + seconds,
            bytes=figures.bytes + status.index_bytes,
            files=figures.files + status.files,
            chunks=figures.chunks + status.chunks,
            provider=status.provider,
            model=status.model,
        )
    return figures, embedder, [*failures]


def summarise(queries: Sequence[BenchQuery], hits: Hits, relevant: Relevance) -> FigureSummary:
    judged = [query for query in queries if query.answerable and query.id in relevant]
    unanswerable = [query for query in queries if not query.answerable]
    return FigureSummary(
        queries=len(queries),
        answerable=len(judged),
        figures=mean_figures([evaluate(hits[query.id], relevant[query.id]) for query in judged]),
        abstained_rightly=_share_empty(unanswerable, hits),
        abstained_wrongly=_share_empty(judged, hits),
    )


def by_category(queries: Sequence[BenchQuery], hits: Hits, relevant: Relevance) -> dict[str, FigureSummary]:
    names = dict.fromkeys(query.category for query in queries)
    return {name: summarise([query for query in queries if query.category == name], hits, relevant) for name in names}


def _share_empty(queries: Sequence[BenchQuery], hits: Hits) -> float | None:
    """Return the share of queries without a hit that is better than weak."""
    if not queries:
        return None
    return sum(all(hit.grade == "weak" for hit in hits[query.id]) for query in queries) / len(queries)


def grade_figures(queries: Sequence[BenchQuery], hits: Hits, relevant: Relevance) -> dict[Grade, GradeFigures]:
    """Return how many first hits of judged queries have each grade, and how many of those are right."""
    judged = [query for query in queries if query.answerable and query.id in relevant and hits[query.id]]
    firsts = [(hit := hits[query.id][0], bool(hit.documents & relevant[query.id].keys())) for query in judged]
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
    for name, each in (("kept", measurement), ("against", against)):
        if each is not None:
            shape[name] = summary_json(each.summary) | _rounded(each.latency)
    shape |= {name: summary_json(summary) for name, summary in measurement.baselines.items()}
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
