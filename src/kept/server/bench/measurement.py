"""Measures sets: writes the documents, indexes them, asks the queries as a user would, and computes the figures."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kept.base.clock import SystemClock
from kept.base.limits import estimate_tokens
from kept.base.records import GRADES, Grade
from kept.config import Config
from kept.embedding.base import Embedder
from kept.errors import BenchSetInvalid
from kept.memory import Memory
from kept.search.selection import MAX_CHARS
from kept.server.bench.sets import BenchGroup, BenchQuery, BenchSet, Relevance, ReturnedHit, lay_out, read_set, sample

Progress = Callable[[str, int, int, str], None]
"""Called with the name of a set, the steps done, the steps in total, and a label of the current one."""
Hits = Mapping[str, Sequence[ReturnedHit]]
"""Hits of each query by its id."""


Summary = dict[str, float | int | None]
"""Figures of some queries, as the JSON has them. A share of no queries is None: a category of queries without an answer
has no recall."""


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
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a set in a temporary folder, which is gone when this returns. ``most_queries`` asks only so many, evenly
    spread over the set. Return the figures as the JSON has them.

    Programs rely on these names. Names may be added, but not changed.
    """
    queries, relevant = sample(bench.queries, most_queries), bench.relevant
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None and done % 20 == 0:
            progress(bench.name, done, len(queries) * (1 + len(BASELINES)), "asking")

    with tempfile.TemporaryDirectory(prefix="kept-bench-") as folder:
        groups = lay_out(bench, config, folder)
        index, embedder, failures = _index(bench.name, groups, embedder, progress)
        texts = [document.text for document in bench.documents]
        most = hits_to_ask_for(sum(map(estimate_tokens, texts)), sum(map(len, texts)), index["chunks"])
        hits, degraded = ask_all(groups, queries, max_results=most, embedder=embedder, tick=tick)
        others = {}
        for name in BASELINES if embedder is not None else ():
            variants = {key: replace(group, config=with_baseline(group.config, name)) for key, group in groups.items()}
            theirs, _ = ask_all(variants, queries, max_results=most, embedder=embedder, tick=tick)
            others[name] = summarise(queries, theirs, relevant)
    return {
        "set": bench.name,
        "kept": summarise(queries, hits, relevant),
        **others,
        "categories": by_category(queries, hits, relevant),
        "documents": len(bench.documents),
        "queries": len(queries),
        "unjudged": sum(query.answerable and query.id not in relevant for query in queries),
        "asked_for": most,
        "index": index,
        "min_score": config.memory_search.query.min_score,
        "grades": grade_figures(queries, hits, relevant),
        "degraded": [*dict.fromkeys((*degraded, *failures))],
    }


def _index(
    name: str, groups: Mapping[str, BenchGroup], embedder: Embedder | None, progress: Progress | None
) -> tuple[dict[str, Any], Embedder | None, list[str]]:
    """Index every group. Return the figures of all, the embedder that was used, and what did not work."""
    files = chunks = 0
    failures: list[str] = []
    for number, group in enumerate(groups.values()):
        if progress is not None:
            progress(name, number, len(groups), "indexing")
        with Memory(group.config, embedder=embedder) as memory:
            report, status = memory.sync(), memory.status()
            embedder = memory.index_service.embedder
        failures += [*report.failures, *(f"{problem.path}: {problem.reason}" for problem in report.problems)]
        files, chunks = files + status.files, chunks + status.chunks
    return {"files": files, "chunks": chunks, "provider": status.provider, "model": status.model}, embedder, failures


def summarise(queries: Sequence[BenchQuery], hits: Hits, relevant: Relevance) -> Summary:
    judged = [query for query in queries if query.answerable and query.id in relevant]
    unanswerable = [query for query in queries if not query.answerable]
    return {
        **mean_figures([evaluate(hits[query.id], relevant[query.id]) for query in judged]),
        "queries": len(queries),
        "answerable": len(judged),
        "abstained_rightly": _share_empty(unanswerable, hits),
        "abstained_wrongly": _share_empty(judged, hits),
    }


def by_category(queries: Sequence[BenchQuery], hits: Hits, relevant: Relevance) -> dict[str, Summary]:
    names = dict.fromkeys(query.category for query in queries)
    return {name: summarise([query for query in queries if query.category == name], hits, relevant) for name in names}


def _share_empty(queries: Sequence[BenchQuery], hits: Hits) -> float | None:
    """Return the share of queries without a hit that is better than weak."""
    return _mean([float(all(hit.grade == "weak" for hit in hits[query.id])) for query in queries])


def grade_figures(queries: Sequence[BenchQuery], hits: Hits, relevant: Relevance) -> dict[Grade, dict[str, int]]:
    """Return how many first hits of judged queries have each grade, and how many of those are right."""
    figures = {grade: {"hits": 0, "right": 0} for grade in GRADES}
    for query in queries:
        if query.answerable and query.id in relevant:
            for first in hits[query.id][:1]:
                figures[first.grade]["hits"] += 1
                figures[first.grade]["right"] += bool(first.documents & relevant[query.id].keys())
    return figures


# asking

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


class QueryClock(SystemClock):
    """Clock that stands at the date of a query while it is asked, if the set has one."""

    date: dt.datetime | None = None

    def now(self) -> dt.datetime:
        return self.date.astimezone() if self.date else super().now()

    def time_ns(self) -> int:
        return int(self.date.timestamp() * 1_000_000_000) if self.date else super().time_ns()


class QueryRunner:
    """One memory that answers many queries. ``degraded`` collects each reason for a worse answer once."""

    def __init__(self, group: BenchGroup, *, embedder: Embedder | None = None) -> None:
        self.group = group
        self.clock = QueryClock()
        self.memory = Memory(group.config, embedder=embedder, clock=self.clock)
        self.degraded: dict[str, None] = {}

    def ask(self, query: BenchQuery, *, max_results: int, min_score: float | None = None) -> tuple[ReturnedHit, ...]:
        self.clock.date = query.date or self.group.newest
        try:
            result = self.memory.search(query.text, max_results=max_results, min_score=min_score)
        finally:
            self.clock.date = None
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
) -> tuple[dict[str, tuple[ReturnedHit, ...]], list[str]]:
    """Ask every query, with one memory open at a time. Return the hits of each by its id, and why some may be worse
    than they should be. ``tick`` is called after each query."""
    hits: dict[str, tuple[ReturnedHit, ...]] = {}
    degraded: dict[str, None] = {}
    for name in dict.fromkeys(query.group for query in queries):
        runner = QueryRunner(groups[name], embedder=embedder)
        with runner.memory:
            for query in queries:
                if query.group == name:
                    hits[query.id] = runner.ask(query, max_results=max_results, min_score=min_score)
                    tick()
        degraded.update(runner.degraded)
    return hits, [*degraded]


# figures of a ranking
#
# All figures of a query are between 0 and 1; those of a set are their means. A relevant document counts from the
# first hit whose cited lines cover it. One hit may cover several, as a chunk of a conversation does. A further passage
# under a hit counts at the rank that it would have among all passages by score: that a note is one hit wins no rank.

BUDGET_TOKENS = 2_000
RECALL_AT = (1, 5, 10)
FIGURES = (*(f"recall@{k}" for k in RECALL_AT), f"recall@{BUDGET_TOKENS}tok", "mrr@10")

Figures = dict[str, float]


def evaluate(hits: Sequence[ReturnedHit], relevant: Mapping[str, float]) -> Figures:
    """Return the figures of one query. ``relevant`` is not empty, and every grade in it is above 0."""
    ranks = first_ranks(hits, relevant)
    figures = {f"recall@{k}": sum(rank <= k for rank in ranks.values()) / len(relevant) for k in RECALL_AT}
    figures[f"recall@{BUDGET_TOKENS}tok"] = share_within_tokens(hits, relevant, BUDGET_TOKENS)
    best = min(ranks.values(), default=math.inf)
    figures["mrr@10"] = 1 / best if best <= 10 else 0.0
    return figures


def first_ranks(hits: Sequence[ReturnedHit], relevant: Mapping[str, float]) -> dict[str, int]:
    """Return, for each relevant document that was returned, the rank of the first hit that covers it, from 1."""
    passages: list[tuple[float, ReturnedHit, int | None]] = []
    lowest = math.inf
    for rank, hit in enumerate(hits, start=1):
        score = lowest = min(lowest, hit.score)  # a passage that was moved down comes after those it follows
        passages.append((score, hit, rank))
        for further in hit.further:
            score = min(score, further.score)
            passages.append((score, further, None))
    passages.sort(key=lambda passage: -passage[0])
    ranks: dict[str, int] = {}
    for place, (_, passage, shown_at) in enumerate(passages, start=1):
        rank = shown_at or place  # a hit has the rank that it is shown at
        for document in passage.documents & relevant.keys():
            ranks[document] = min(rank, ranks.get(document, rank))
    return ranks


def share_within_tokens(hits: Sequence[ReturnedHit], relevant: Mapping[str, float], budget_tokens: int) -> float:
    """Return the share of the relevant documents in the passages that fit whole into a budget, in reading order."""
    spent = 0
    covered: set[str] = set()
    for passage in (passage for hit in hits for passage in (hit, *hit.further)):
        spent += passage.tokens
        if spent > budget_tokens:
            break
        covered.update(passage.documents & relevant.keys())
    return len(covered) / len(relevant)


def mean_figures(rows: Sequence[Figures]) -> dict[str, float | None]:
    return {name: _mean([row[name] for row in rows]) for name in FIGURES}


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
