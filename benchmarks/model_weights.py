"""Choose the weight of an embedding model against the words, and print its recall on sets that had no say.

    python -m benchmarks.model_weights SET… --models multilingual bge-small-en [--queries N]

Read the sets in the format of `kept bench`, index them with the model, and rank the candidates of each question with
every weight. For each set, the weight is chosen by the mean recall on the other sets. The last line is the choice of
all sets together, which `model_catalogue.py` and `static.py` hold. Recall is that of single chunks.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.model_recall import open_model
from benchmarks.ranking import documents_of
from kept.config import load_config
from kept.embedding.base import Embedder
from kept.embedding.model_catalogue import BUILT_IN
from kept.memory import Memory
from kept.search.candidates import CandidatePool, gather_pool
from kept.search.pipeline import embed_query
from kept.search.query import IndexQuery, parse_query
from kept.search.scores import fuse_pool
from kept.server.bench.sets import BenchGroup, BenchSet, lay_out, read_set, sample

WEIGHTS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""0 is words alone."""
TOP = 10


def measure(bench: BenchSet, embedder: Embedder, limit: int | None) -> dict[float, float]:
    """Return the recall with each weight."""
    queries = sample(tuple(query for query in bench.queries if query.answerable and query.id in bench.relevant), limit)
    recalls: dict[float, list[float]] = {weight: [] for weight in WEIGHTS}
    with tempfile.TemporaryDirectory() as home:
        for name, group in lay_out(bench, load_config(home=home, environ={}).config, home).items():
            with Memory(group.config, embedder=embedder) as memory:
                memory.sync()
                for query in queries:
                    if query.group == name:
                        relevant = frozenset(bench.relevant[query.id])
                        for weight, documents in rank_with_each(memory, group, query.text):
                            recalls[weight].append(len(relevant.intersection(documents)) / len(relevant))
    return {weight: float(np.mean(values)) for weight, values in recalls.items()}


def rank_with_each(memory: Memory, group: BenchGroup, text: str) -> Iterator[tuple[float, list[str]]]:
    """Yield each weight with the first documents that it gives."""
    query, settings, embedder = parse_query(text), memory.settings.query, memory.index_service.embedder
    vector, _ = embed_query(embedder, query) if embedder else (None, ())
    now_ms = memory.clock.time_ns() // 1_000_000
    with memory.index_service.inspecting() as (index, _), index.reading():
        pools = [
            gather_pool(index, IndexQuery(query, replace(settings, max_results=50)), found) for found in (vector, None)
        ]
    by_meaning, by_words = ((pool, pool.candidates(text, now_ms=now_ms)) for pool in pools)
    for weight in WEIGHTS:
        pool, candidates = by_meaning if weight and vector else by_words
        weighed = replace(vector, calibration=replace(vector.calibration, weight=weight)) if weight and vector else None
        ranked = fuse_pool(candidates, settings, weighed)
        yield weight, first_documents(pool, group, [scored.chunk.row for scored in ranked])


def first_documents(pool: CandidatePool, group: BenchGroup, rows: Sequence[int]) -> list[str]:
    documents: dict[str, None] = {}
    for row in rows:
        documents.update(dict.fromkeys(documents_of(group, pool.chunks[row])))
        if len(documents) >= TOP:
            break
    return list(documents)[:TOP]


def choose(recalls: dict[str, dict[float, float]], sets: Sequence[str]) -> float:
    return max(WEIGHTS[1:], key=lambda weight: sum(recalls[name][weight] for name in sets))


def report(model: str, recalls: dict[str, dict[float, float]]) -> None:
    print(f"\n{model:<22}" + "".join(f"{weight:>7}" for weight in WEIGHTS) + "   chosen on the others: recall")
    for name, values in recalls.items():
        weight = choose(recalls, [other for other in recalls if other != name])
        cells = "".join(f"{values[weight]:7.3f}" for weight in WEIGHTS)
        print(f"{name:<22}{cells}   {weight}: {values[weight]:.3f}")
    print(f"chosen on all: {choose(recalls, [*recalls])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--models", nargs="+", default=[BUILT_IN])
    parser.add_argument("--models-folder", default=os.path.expanduser("~/.kept/models"))
    parser.add_argument("--queries", type=int, default=None, help="maximum number per set")
    arguments = parser.parse_args()
    sets = [read_set(folder) for folder in arguments.sets]
    for model in arguments.models:
        embedder = open_model(model, arguments.models_folder)
        report(model, {bench.name: measure(bench, embedder, arguments.queries) for bench in sets})


if __name__ == "__main__":
    main()
