"""Choose how far a passage comes nearer to a better one beside it, and print the recall on files that had no say.

    python -m benchmarks.next_passage SET [--queries N]

The set has long files (`corpora/`), and each is a fold. Every question is asked with each share by the ordinary search.
For each file, the share is chosen by the mean of recall@10 and recall@5 on the other files.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from benchmarks.long_sets import lay_out_files
from kept.config import load_config
from kept.search import pipeline
from kept.search.reordering import judge_whole_notes
from kept.search.weights import BESIDE_BETTER_SHARE
from kept.server.bench.measurement import QueryRunner, evaluate
from kept.server.bench.sets import BenchSet, read_set, sample

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
HITS = 14
COLUMNS = ("recall@10", "recall@5")

Recalls = dict[float, list[tuple[float, ...]]]
"""Recall at 10 and 5 of each question, by share."""


def measure(bench: BenchSet, folder: str, limit: int | None) -> dict[str, Recalls]:
    """Return the recalls by file."""
    queries = sample(bench.queries, limit)
    by_file: dict[str, Recalls] = {}
    with tempfile.TemporaryDirectory() as home:
        groups, relevant = lay_out_files(bench, folder, load_config(home=home, environ={}).config, home)
        for name, group in groups.items():
            recalls = by_file[name] = {share: [] for share in SHARES}
            runner = QueryRunner(group)
            with runner.memory as memory:
                memory.sync()
                for query in (query for query in queries if query.group == name):
                    for share in SHARES:
                        pipeline.judge_whole_notes = partial(judge_whole_notes, beside_share=share)
                        figures = evaluate(runner.ask(query, max_results=HITS), relevant[query.id])
                        recalls[share].append(tuple(figures[column] for column in COLUMNS))
    return by_file


def mean(recalls: Iterable[Recalls], share: float) -> np.ndarray:
    return np.mean([figures for values in recalls for figures in values[share]], axis=0)


def choose(recalls: Mapping[str, Recalls], left_out: str | None = None) -> float:
    others = [values for name, values in recalls.items() if name != left_out]
    return max(SHARES, key=lambda share: round(mean(others, share).sum(), 6))


def report(recalls: Mapping[str, Recalls]) -> None:
    print(f"{'recall@10':<22}" + "".join(f"{share:>8}" for share in SHARES) + "   chosen on the other files")
    held_out = []
    for name, values in recalls.items():
        share = choose(recalls, name)
        held_out += values[share]
        cells = "".join(f"{mean([values], each)[0]:8.4f}" for each in SHARES)
        print(f"{name:<22}{cells}   {share}: {mean([values], share)[0]:.4f}")
    cells = "".join(f"{mean(recalls.values(), share)[0]:8.4f}" for share in SHARES)
    print(f"{'all':<22}{cells}   {np.mean(held_out, axis=0)[0]:.4f}")
    print(f"chosen on all: {choose(recalls)}; shipped: {BESIDE_BETTER_SHARE}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set")
    parser.add_argument("--queries", type=int, default=None, help="maximum number")
    options = parser.parse_args()
    report(measure(read_set(options.set), options.set, options.queries))
