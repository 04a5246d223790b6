"""Learn the confidence that a query has an answer, and print the results on held-out sets.

    python -m benchmarks.calibration SET… [--queries N]

Ask each set its own questions, questions of the other sets, and two to twelve random words of its own vocabulary. A
logistic model separates the questions whose answer is among the first ten from the rest. Every line is held out: a set
is judged by a model of the other sets. The last lines are learned from everything, with the same weight for each set;
`kept/search/weights.py` has them, rounded. A set in a script without spaces is judged but not learned from: to the
built-in embedder all its texts are similar.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.ranking import documents_of
from kept.bench.dataset import BenchSet, read_set
from kept.bench.layout import BenchGroup, lay_out
from kept.bench.measurement import sample
from kept.bench.threshold import _short_word, _vocabulary, make_foreign_queries, make_random_queries
from kept.config import load_config
from kept.memory import Memory
from kept.records import Filter
from kept.search.candidates import gather_pool
from kept.search.pipeline import embed_query
from kept.search.query import parse_query
from kept.search.scores import Signals, estimate_confidence, fuse_pool, read_signals, vector_share
from kept.search.weights import ConfidenceModel
from kept.words.segment import is_unspaced

NONSENSE = 120
LENGTHS = (2, 8, 12)
MOST_GROUPS = 40
"""Maximum number of groups to ask, for a set with hundreds of small memories."""
RIDGE = 1.0
WEIGHTS = {"answer": 2.0, "random": 0.7, "foreign": 1.0, "length": 0.3}
THRESHOLDS = (0.20, 0.25, 0.30, 0.35)


@dataclass
class Asked:
    set: str
    kind: str
    signs: Signals
    vector_share: float
    answer: float
    """Score of the best hit that answers, divided by the best score; 0 if none of the first ten answers."""


# asking


def gather(bench: BenchSet, others: Sequence[BenchSet], limit: int | None) -> Iterator[Asked]:
    with tempfile.TemporaryDirectory() as home:
        groups = lay_out(bench, load_config(home=home, workspace=home).config, home)
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
    ranked = fuse_pool(pool.candidates(text, now_ms=memory.clock.time_ns() // 1_000_000), settings, vector)
    best = max((one.relevance for one in ranked), default=0.0)
    answers = [one for one in ranked[:10] if documents_of(group, pool.chunks[one.candidate.row]) & wanted]
    answer = max((one.relevance / best for one in answers), default=0.0) if best else 0.0
    signs = read_signals(ranked, pool.terms, passages=pool.passages)
    return Asked(name, kind, signs, vector_share(settings, vector), answer)


# learning


def _row(signs: Signals, *, meaning: bool) -> list[float]:
    return [signs.share, float(np.log1p(signs.together)), *([signs.meaning or 0.0] if meaning else [])]


def learn(asked: Sequence[Asked], *, meaning: bool) -> ConfidenceModel:
    """Fit the model with Newton's method, without queries of which a passage has every word: they are never refused."""
    usable = [one for one in asked if not one.signs.has_all_words and (one.kind != "answer" or one.answer)]
    matrix = np.array([_row(one.signs, meaning=meaning) for one in usable])
    target = np.array([float(one.kind == "answer") for one in usable])
    sizes: dict[tuple[str, str], int] = {}
    for one in usable:
        sizes[one.set, one.kind] = sizes.get((one.set, one.kind), 0) + 1
    weight = np.array([100 * WEIGHTS[one.kind] / sizes[one.set, one.kind] for one in usable])
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0) + 1e-9
    matrix = np.c_[(matrix - mean) / scale, np.ones(len(matrix))]
    held = RIDGE * np.diag([1.0] * len(mean) + [0.0])
    found = np.zeros(matrix.shape[1])
    for _ in range(60):
        chance = 1 / (1 + np.exp(-matrix @ found))
        curve = (matrix * (weight * chance * (1 - chance))[:, None]).T @ matrix + held
        step = np.linalg.solve(curve, matrix.T @ (weight * (target - chance)) - held @ found)
        found = found + step
        if np.abs(step).max() < 1e-6:
            break
    factors = found[:-1] / scale
    base = float(found[-1] - factors @ mean)
    return ConfidenceModel(base, *(round(float(one), 2) for one in factors))


# judging


def sure(one: Asked, chance: ConfidenceModel, *, meaning: bool) -> float:
    signs = one.signs if meaning else replace(one.signs, meaning=None)
    return estimate_confidence(signs, vector_share=one.vector_share, model=chance)


def report(name: str, asked: Sequence[Asked], chance: ConfidenceModel, *, meaning: bool) -> None:
    scores = [(one, sure(one, chance, meaning=meaning)) for one in asked]
    cells = []
    for least in THRESHOLDS:
        lost = [score * one.answer < least for one, score in scores if one.answer]
        refused = (
            np.mean([score < least for one, score in scores if one.kind == kind] or [np.nan])
            for kind in ("foreign", "random", "length")
        )
        cells.append(f"{least:.2f}: lost {np.mean(lost):.2f}, refused " + " ".join(f"{one:.2f}" for one in refused))
    print(f"{name:<20}", " | ".join(cells), flush=True)


def main(folders: Sequence[str], limit: int | None) -> None:
    sets = [read_set(folder) for folder in folders]
    asked = [one for bench in sets for one in gather(bench, [other for other in sets if other is not bench], limit)]
    taught = [bench.name for bench in sets if not any(is_unspaced(sign) for sign in bench.queries[0].text)]
    print("refused: questions of other sets; three to six random words; two, eight or twelve random words")
    for meaning, title in ((True, "WITH_MEANING"), (False, "WORDS_ONLY")):
        for bench in sets:
            own = [one for one in asked if one.set == bench.name]
            others = [one for one in asked if one.set in taught and one.set != bench.name]
            report(bench.name, own, learn(others, meaning=meaning), meaning=meaning)
        print(f"{title} = {learn([one for one in asked if one.set in taught], meaning=meaning)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn the confidence that a query has an answer.")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--queries", type=int, default=150, help="maximum number per set")
    chosen = parser.parse_args()
    main(chosen.sets, chosen.queries)
