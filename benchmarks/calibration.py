"""Learn the confidence in hits, and print the results on held-out sets.

    python -m benchmarks.calibration SET… [--queries N] [--words] [--cache FILE] [--padding SET…]

Ask each set its own questions, questions of the other sets, and three to twelve random words of its own vocabulary.
Logistic models learn whether the answer is among the first ten hits, in a small and in a large memory, and whether it
is the first hit. Every line of the table is held out: a set is judged by models of the other sets. The last lines are
learned from everything, with the same weight for each set; `kept/search/weights.py` has them, rounded. Queries in a
script without spaces are left out. `SET@5` asks memories of five notes each, `SET+3000` adds 3,000 notes of the sets
in `--padding`; a set of another size is held out together with its original. `--words` searches without vectors.
`--cache` keeps the signals for another run.
"""

from __future__ import annotations

import argparse
import math
import pickle
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.ranking import documents_of
from benchmarks.resize import read_sized_set
from kept.bench.dataset import BenchSet
from kept.bench.layout import BenchGroup, lay_out
from kept.bench.measurement import sample
from kept.bench.threshold import _short_word, _vocabulary, make_foreign_queries, make_random_queries
from kept.config import load_config
from kept.memory import Memory
from kept.records import LIKELY_FROM, STRONG_FROM, Filter
from kept.search.candidates import gather_pool
from kept.search.confidence import Signals, estimate_confidence, read_signals
from kept.search.pipeline import embed_query
from kept.search.query import parse_query
from kept.search.scores import fuse_pool, vector_share
from kept.search.weights import ConfidenceModel, ConfidenceModels

NONSENSE = 120
LENGTHS = (2, 8, 12)
MOST_GROUPS = 40
"""Maximum number of groups to ask, for a set with hundreds of small memories."""
RIDGE = 1.0
WEIGHTS = {"answer": 2.0, "random": 0.7, "foreign": 1.0, "length": 0.3}
SMALL_BOUND, LARGE_BOUND = -1.0, -0.25
"""Logits of the bound between weak and likely. Chosen on held-out sets; an answer in a small memory costs more."""


@dataclass
class Asked:
    """Signals of a query, and what its first ten hits are worth."""

    set: str
    kind: str
    signals: Signals
    vector_share: float
    ratios: list[float]
    """Score of each of the first ten hits, divided by the first."""
    rights: list[bool]

    @property
    def is_answered(self) -> bool:
        return any(self.rights)

    @property
    def is_right(self) -> bool:
        return self.rights[:1] == [True]


# asking


def gather(bench: BenchSet, others: Sequence[BenchSet], limit: int | None, *, words_only: bool) -> Iterator[Asked]:
    settings = {"memory_search.provider": "none"} if words_only else {}
    with tempfile.TemporaryDirectory() as home:
        config = load_config(home=home, workspace=home, settings=settings, environ={}).config
        groups = lay_out(bench, config, home)
        names = [*groups][:: max(1, len(groups) // MOST_GROUPS)]
        for name, questions in _questions(bench, others, names, limit).items():
            with Memory(groups[name].config) as memory:
                memory.sync()
                for kind, text, wanted in questions:
                    yield _ask(memory, groups[name], bench.name, kind, text, wanted)


def _questions(bench: BenchSet, others: Sequence[BenchSet], names: Sequence[str], limit: int | None):
    todo: dict[str, list[tuple[str, str, frozenset[str]]]] = {name: [] for name in names}
    own = (one for one in bench.queries if one.answerable and one.id in bench.relevant and one.group in todo)
    for query in sample(tuple(own), limit):
        todo[query.group].append(("answer", query.text, frozenset(bench.relevant[query.id])))
    several = 1 if len(names) < MOST_GROUPS else 6
    for name, texts in make_random_queries(bench, NONSENSE * several).items():
        todo.get(name, []).extend(("random", text, frozenset()) for text in texts)
    for at, text in enumerate(make_foreign_queries(bench, others, NONSENSE)):
        todo[names[at % len(names)]].append(("foreign", text, frozenset()))
    chance = random.Random(7)
    for name in names:
        words = sorted({word for one in bench.documents if one.group == name for word in _vocabulary(one.text)})
        for at in range(NONSENSE // len(names) if words else 0):
            drawn = (_short_word(chance.choice(words), chance) for _ in range(LENGTHS[at % len(LENGTHS)]))
            todo[name].append(("length", " ".join(drawn), frozenset()))
    return todo


def _ask(memory: Memory, group: BenchGroup, name: str, kind: str, text: str, wanted: frozenset[str]) -> Asked:
    embedder = memory.index_service.embedder
    query, settings = parse_query(text), memory.settings.query
    vector, _ = embed_query(embedder, query) if embedder else (None, ())
    with memory.index_service.inspecting() as (index, _), index.reading():
        pool = gather_pool(index, vector, query, settings, Filter())
    candidates = pool.candidates(text, now_ms=memory.clock.time_ns() // 1_000_000)
    ranked = fuse_pool(candidates, settings, vector)
    hits = ranked[:10]
    return Asked(
        name,
        kind,
        read_signals(ranked, pool.terms, passages=pool.passages),
        vector_share(settings, vector),
        [hit.score / (hits[0].score or 1.0) for hit in hits],
        [bool(documents_of(group, pool.chunks[hit.candidate.row]) & wanted) for hit in hits],
    )


# learning


def learn(asked: Sequence[Asked]) -> ConfidenceModels:
    """Fit the models. Queries of which a passage has all words, or none, are graded by rules and teach `right` only."""
    usable = [query for query in asked if query.signals.runs is None]
    between = [query for query in usable if query.signals.share > 0 and not query.signals.has_all_words]
    between = [query for query in between if query.kind != "answer" or query.is_answered]
    sized = fit(between, lambda query: query.kind == "answer", _row_by_size)
    half = (len(sized) - 2) // 2
    small, large = sized[:half], sized[half : 2 * half]
    shift = math.log(LIKELY_FROM / (1 - LIKELY_FROM))
    right = fit(usable, lambda query: query.is_right, lambda signals: [*signals.features, signals.smallness])
    return ConfidenceModels(
        small=ConfidenceModel(sized[-1] + shift - SMALL_BOUND, *small),
        large=ConfidenceModel(sized[-1] + sized[-2] + shift - LARGE_BOUND, *large),
        right=ConfidenceModel(right[-1], *right[:-2]),
        smallness=right[-2],
    )


def _row_by_size(signals: Signals) -> list[float]:
    size, features = signals.size, signals.features
    return [*((1 - size) * figure for figure in features), *(size * figure for figure in features), size]


def fit(
    asked: Sequence[Asked], target_of: Callable[[Asked], bool], row_of: Callable[[Signals], list[float]]
) -> list[float]:
    """Return the coefficients of a logistic model and its constant, by Newton's method with a ridge."""
    matrix = np.array([row_of(query.signals) for query in asked])
    target = np.array([float(target_of(query)) for query in asked])
    sizes: dict[tuple[str, str], int] = {}
    for query in asked:
        sizes[query.set, query.kind] = sizes.get((query.set, query.kind), 0) + 1
    weight = np.array([100 * WEIGHTS[query.kind] / sizes[query.set, query.kind] for query in asked])
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0) + 1e-9
    matrix = np.c_[(matrix - mean) / scale, np.ones(len(matrix))]
    ridge = RIDGE * np.diag([1.0] * len(mean) + [0.0])
    fitted = np.zeros(matrix.shape[1])
    for _ in range(60):
        chance = 1 / (1 + np.exp(-matrix @ fitted))
        curve = (matrix * (weight * chance * (1 - chance))[:, None]).T @ matrix + ridge
        step = np.linalg.solve(curve, matrix.T @ (weight * (target - chance)) - ridge @ fitted)
        fitted = fitted + step
        if np.abs(step).max() < 1e-6:
            break
    factors = fitted[:-1] / scale
    return [round(float(factor), 2) for factor in factors] + [round(float(fitted[-1] - factors @ mean), 2)]


# judging

HEADER = (
    f"{'set':<20} lost  foreign random length | strong      likely      weak: first hits that are right, of how many"
)


def report(name: str, asked: Sequence[Asked], models: ConfidenceModels) -> None:
    scores = [
        (query, estimate_confidence(query.signals, vector_share=query.vector_share, models=models)) for query in asked
    ]
    lost = [not _is_found(query, score) for query, score in scores if query.kind == "answer" and query.is_answered]
    refused = [
        np.mean([score < LIKELY_FROM for query, score in scores if query.kind == kind] or [np.nan])
        for kind in ("foreign", "random", "length")
    ]
    firsts = [(query.is_right, score) for query, score in scores if query.kind == "answer"]
    bounds = ((STRONG_FROM, 1.01), (LIKELY_FROM, STRONG_FROM), (-1.0, LIKELY_FROM))
    grades = [[right for right, score in firsts if least <= score < most] for least, most in bounds]
    shares = "  ".join(f"{np.mean(rights or [np.nan]):4.2f} of {len(rights):<4}" for rights in grades)
    cells = "   ".join(f"{share:4.2f}" for share in refused)
    print(f"{name:<20} {np.mean(lost or [np.nan]):4.2f}  {cells}   | {shares}", flush=True)


def _is_found(query: Asked, score: float) -> bool:
    graded = zip(query.ratios, query.rights, strict=True)
    return any(right and min(score, STRONG_FROM) * ratio >= LIKELY_FROM for ratio, right in graded)


def _original(name: str) -> str:
    return name.partition("@")[0].partition("+")[0]


def _unrelated(bench: BenchSet, sets: Sequence[BenchSet]) -> list[BenchSet]:
    """Return the sets that have none of this set's notes. Questions of one can be foreign to the other."""
    texts = {document.text for document in bench.documents}
    others = (other for other in sets if _original(other.name) == other.name != _original(bench.name))
    return [other for other in others if texts.isdisjoint(document.text for document in other.documents)]


def main(options: argparse.Namespace) -> None:
    cache, words_only = options.cache, options.words
    sets = [read_sized_set(text, options.padding) for text in options.sets]
    if cache and cache.exists():
        asked = pickle.loads(cache.read_bytes())
    else:
        asked = [
            query
            for bench in sets
            for query in gather(bench, _unrelated(bench, sets), options.queries, words_only=words_only)
        ]
        if cache:
            cache.write_bytes(pickle.dumps(asked))
    print(HEADER)
    for bench in sets:
        others = [query for query in asked if _original(query.set) != _original(bench.name)]
        report(bench.name, [query for query in asked if query.set == bench.name], learn(others))
    print(f"{'WORDS_ONLY' if words_only else 'WITH_MEANING'} = {learn(asked)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn the confidence in hits.")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--queries", type=int, default=150, help="maximum number per set")
    parser.add_argument("--words", action="store_true", help="search without vectors")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="keep the signals, or read them")
    parser.add_argument("--padding", nargs="*", default=[], help="sets to take further notes from")
    main(parser.parse_args())
