"""Learn the confidence in hits, and print the results on held-out sets.

    python -m benchmarks.calibration SET… [--queries N] [--words] [--model NAME] [--record FILE] [--padding SET…]
    python -m benchmarks.calibration --recorded benchmarks/signals/meaning.json.gz

Ask each set its own questions, questions of the other sets, and two to twelve random words of its own vocabulary.
Logistic models learn whether there is an answer among the first ten hits, in a small and in a large memory, and whether
the first hit is right. Every line is held out: a set is judged by models of the other sets, and so is the bound between
weak and likely. The last lines are learned from everything, with the same weight for each set; `kept/search/weights.py`
has exactly these, as learned from the recorded signals in `benchmarks/signals`.

`SET@5` asks memories of five notes each, and `SET+3000` adds 3,000 notes of the sets in `--padding`. `SET%2` asks
memories of half the notes; the questions about the other half, in the same language and style, are foreign there. A
set of another size is held out together with its original. `--words` searches without vectors, `--model` with a
downloaded model. `--shipped` judges all sets by the shipped models instead. `--record` writes the signals to a file,
from which `--recorded` prints the same again.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.confidence_fit import Asked, learn_answered, learn_right, learn_unspaced, original, shift
from benchmarks.model_recall import open_model
from benchmarks.resize import read_sized_set
from benchmarks.signal_file import read_signals_file, write_signals
from benchmarks.threshold import FOREIGN, _short_word, _vocabulary, make_foreign_queries, make_random_queries
from kept.base.records import LIKELY_FROM, STRONG_FROM
from kept.config import load_config
from kept.embedding.base import Embedder
from kept.memory import Memory
from kept.search.candidates import gather_pool
from kept.search.pipeline import embed_query
from kept.search.query import IndexQuery, parse_query
from kept.search.scores import Signals, estimate_confidence, fuse_pool, read_signals
from kept.search.weights import (
    FIRST_IS_RIGHT,
    LIKELY_SHARE,
    UNSPACED_ANSWERED,
    AnsweredModels,
    CrowdModel,
)
from kept.server.bench.measurement import QueryRunner
from kept.server.bench.sets import BenchGroup, BenchQuery, BenchSet, lay_out, sample

NONSENSE = 120
LENGTHS = (2, 8, 12)
MOST_GROUPS = 40
"""Maximum number of groups to ask, for a set with hundreds of small memories."""
KINDS = ("foreign", "random", "length")
CURVE = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Amounts to add to the logits of held-out models, for the curve of each set."""


# asking


def gather(
    bench: BenchSet, others: Sequence[BenchSet], limit: int | None, *, words_only: bool, embedder: Embedder | None
) -> Iterator[Asked]:
    settings = {"memory_search.provider": "none"} if words_only else {}
    with tempfile.TemporaryDirectory() as home:
        config = load_config(home=home, workspace=home, settings=settings, environ={}).config
        groups = lay_out(bench, config, home)
        names = [*groups][:: max(1, len(groups) // MOST_GROUPS)]
        for name, questions in _questions(bench, others, names, limit).items():
            runner = QueryRunner(groups[name], embedder=embedder)
            with runner.memory as memory:
                memory.sync()
                for kind, query in questions:
                    wanted = bench.relevant.get(query.id, {}) if kind == "answer" else {}
                    yield _ask(runner, groups[name], bench.name, kind, query, frozenset(wanted))


def _questions(bench: BenchSet, others: Sequence[BenchSet], names: Sequence[str], limit: int | None):
    """Return queries with their kinds, by group."""
    todo: dict[str, list[tuple[str, BenchQuery]]] = {name: [] for name in names}
    own = (query for query in bench.queries if query.answerable and query.id in bench.relevant and query.group in todo)
    for query in sample(tuple(own), limit):
        todo[query.group].append(("answer", query))
    several = 1 if len(names) < MOST_GROUPS else 6
    for name, texts in make_random_queries(bench, NONSENSE * several).items():
        todo.get(name, []).extend(("random", BenchQuery("", text)) for text in texts)
    for at, text in enumerate(_foreign(bench, others)):
        todo[names[at % len(names)]].append(("foreign", BenchQuery("", text)))
    chance = random.Random(7)
    for name in names:
        words = sorted({word for document in _documents(bench, name) for word in _vocabulary(document)})
        for at in range(NONSENSE // len(names) if words else 0):
            drawn = (_short_word(chance.choice(words), chance) for _ in range(LENGTHS[at % len(LENGTHS)]))
            todo[name].append(("length", BenchQuery("", " ".join(drawn))))
    return todo


def _documents(bench: BenchSet, group: str) -> Iterator[str]:
    return (document.text for document in bench.documents if document.group == group)


def _foreign(bench: BenchSet, others: Sequence[BenchSet]) -> list[str]:
    if "%" in bench.name:
        return [query.text for query in sample(tuple(query for query in bench.queries if not query.answerable), 150)]
    return [*make_foreign_queries(bench, others, NONSENSE), *FOREIGN]


def _ask(runner: QueryRunner, group: BenchGroup, name: str, kind: str, query: BenchQuery, wanted: frozenset) -> Asked:
    hits = runner.ask(query, max_results=10)
    documents = [hit.documents.union(*(further.documents for further in hit.further)) for hit in hits]
    rights = [hit for hit, inside in zip(hits, documents, strict=True) if inside & wanted]
    is_sure = bool(hits) and hits[0].grade != "weak"
    near = [hit.grade != "weak" if is_sure else hit.score >= LIKELY_SHARE * hits[0].score for hit in rights]
    signals = read_query(runner.memory, query.text)
    return Asked(name, kind, signals, bool(hits and hits[0].documents & wanted), bool(rights), any(near))


def read_query(memory: Memory, text: str) -> Signals:
    """Return the signals of a query."""
    embedder = memory.index_service.embedder
    query, settings = parse_query(text), memory.settings.query
    vector, _ = embed_query(embedder, query) if embedder else (None, ())
    with memory.index_service.inspecting() as (index, _), index.reading():
        pool = gather_pool(index, IndexQuery(query, settings), vector)
    now_ms = memory.clock.time_ns() // 1_000_000
    ranked = fuse_pool(pool, pool.find_evidence(text), settings, vector, now_ms=now_ms)
    return read_signals(ranked, pool, text, vector)


# judging

HEADER = (
    f"{'set':<20} lost  foreign random length | strong      likely      weak: first hits that are right, of how many"
)


@dataclass
class LearnedModels:
    """The models that a set is judged by."""

    answered: AnsweredModels | None = None
    """None for the shipped ones."""
    unspaced: CrowdModel = UNSPACED_ANSWERED
    right: CrowdModel = FIRST_IS_RIGHT


def learn_models(asked: Sequence[Asked]) -> LearnedModels:
    has_unspaced = any(query.signals.runs for query in asked)
    unspaced = learn_unspaced(asked) if has_unspaced else UNSPACED_ANSWERED
    return LearnedModels(learn_answered(asked), unspaced, learn_right(asked))


def score_all(asked: Sequence[Asked], models: LearnedModels) -> list[tuple[Asked, float]]:
    estimate = partial(estimate_confidence, models=models.answered, unspaced=models.unspaced, right=models.right)
    return [(query, estimate(query.signals)) for query in asked]


def lost_and_refused(scores: Sequence[tuple[Asked, float]]) -> tuple[float, list[float]]:
    """Return the share of answers that are weak, and the share of each kind of nonsense."""
    answers = [(query, score) for query, score in scores if query.is_answered]
    lost = [not query.is_near or score < LIKELY_FROM for query, score in answers]
    refused = [[score < LIKELY_FROM for query, score in scores if query.kind == kind] for kind in KINDS]
    return float(np.mean(lost or [np.nan])), [float(np.mean(flags or [np.nan])) for flags in refused]


def report(name: str, asked: Sequence[Asked], models: LearnedModels) -> None:
    scores = score_all(asked, models)
    lost, refused = lost_and_refused(scores)
    firsts = [(query.is_right, score) for query, score in scores if query.kind == "answer"]
    bounds = ((STRONG_FROM, 1.01), (LIKELY_FROM, STRONG_FROM), (-1.0, LIKELY_FROM))
    grades = [[is_right for is_right, score in firsts if least <= score < most] for least, most in bounds]
    shares = "  ".join(f"{np.mean(rights or [np.nan]):4.2f} of {len(rights):<4}" for rights in grades)
    cells = "   ".join(f"{share:4.2f}" for share in refused)
    print(f"{name:<20} {lost:4.2f}  {cells}   | {shares}", flush=True)


def report_curve(name: str, asked: Sequence[Asked], models: LearnedModels) -> None:
    """Print answers lost / nonsense refused (the mean of foreign and random) with the bound moved."""
    cells = []
    assert models.answered is not None
    for amount in CURVE:
        answered, unspaced = shift(models.answered, -amount), models.unspaced
        unspaced = replace(unspaced, base=unspaced.base - amount)
        moved = LearnedModels(answered, unspaced, models.right)
        lost, (foreign, drawn, _) = lost_and_refused(score_all(asked, moved))
        cells.append(f"{lost:.2f} / {(foreign + drawn) / 2:.2f}")
    print(f"{name:<20} {'   '.join(cells)}", flush=True)


def _unrelated(bench: BenchSet, sets: Sequence[BenchSet]) -> list[BenchSet]:
    """Return the sets that have none of this set's notes. Questions of one can be foreign to the other."""
    texts = {document.text for document in bench.documents}
    others = (other for other in sets if original(other.name) == other.name != original(bench.name))
    return [other for other in others if texts.isdisjoint(document.text for document in other.documents)]


def _gather_all(options: argparse.Namespace) -> list[Asked]:
    if options.recorded:
        return read_signals_file(options.recorded)
    sets = [read_sized_set(text, options.padding) for text in options.sets]
    embedder = open_model(options.model, os.path.expanduser("~/.kept/models")) if options.model else None
    asked = []
    for bench in sets:
        others = _unrelated(bench, sets)
        asked += gather(bench, others, options.queries, words_only=options.words, embedder=embedder)
    if options.record:
        write_signals(options.record, asked)
    return asked


def main(options: argparse.Namespace) -> None:
    asked = _gather_all(options)
    names = dict.fromkeys(query.set for query in asked)
    folds = {name: [query for query in asked if original(query.set) != original(name)] for name in names}
    inside = {name: [query for query in asked if query.set == name] for name in names}
    models = {name: LearnedModels() if options.shipped else learn_models(others) for name, others in folds.items()}
    print(HEADER)
    for name, queries in inside.items():
        report(name, queries, models[name])
    if options.shipped:
        return
    print(f"\nlost / refused with the bound moved by {', '.join(map(str, CURVE))}")
    for name, queries in inside.items():
        report_curve(name, queries, models[name])
    learned = learn_models(asked)
    by_words = all(query.signals.meaning is None for query in asked)
    print(f"\n{'WORDS_ONLY' if by_words else 'WITH_MEANING'} = {learned.answered}")
    print(f"FIRST_IS_RIGHT = {learned.right}\nUNSPACED_ANSWERED = {learned.unspaced}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn the confidence in hits.")
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--recorded", type=Path, metavar="FILE", help="read the signals of an earlier run")
    parser.add_argument("--queries", type=int, default=150, help="maximum number per set")
    parser.add_argument("--words", action="store_true", help="search without vectors")
    parser.add_argument("--model", help="search with a downloaded model")
    parser.add_argument("--shipped", action="store_true", help="judge by the shipped models")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the signals")
    parser.add_argument("--padding", nargs="*", default=[], help="sets to take further notes from")
    main(parser.parse_args())
