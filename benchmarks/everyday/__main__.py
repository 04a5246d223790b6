"""Print the recall on everyday questions, by half and category.

    python -m benchmarks.everyday [--half tune|held] [--misses]
    python -m benchmarks.everyday --write DIR

Use the default settings, the same without a threshold, and words alone. `--misses` lists the questions of the half
`tune` that find no answer among the first five hits without a threshold; those of the other half stay unseen. `--write`
writes the halves as sets for `kept bench`, for other settings and providers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.everyday.halves import FOLDER, HALVES, SETS, read_halves, write_halves
from kept.base.limits import estimate_tokens
from kept.config import load_config
from kept.memory import Memory
from kept.server.bench.measurement import (
    Summary,
    ask_all,
    by_category,
    evaluate,
    hits_to_ask_for,
    summarise,
    with_baseline,
)
from kept.server.bench.sets import BenchGroup, BenchQuery, BenchSet, ReturnedHit, lay_out, read_set

Answers = dict[str, tuple[ReturnedHit, ...]]
COLUMNS = ("recall@5", "recall@10", "mrr@10")
DEFAULT, UNTHRESHOLDED, WORDS = "default", "no threshold", "words alone"


@dataclass
class AskedSet:
    """Set with the answers of each variant, and the half of each query."""

    bench: BenchSet
    variants: dict[str, Answers]
    halves: Mapping[str, str]

    def queries(self, half: str) -> list[BenchQuery]:
        return [query for query in self.bench.queries if self.halves[query.id] == half]


def main() -> None:
    options = arguments()
    if options.write:
        print("\n".join(map(str, write_halves(options.write))))
        return
    asked_sets = [ask_set(name) for name in SETS]
    for half in [options.half] if options.half else HALVES:
        for asked in asked_sets:
            print_half(asked, half)
    if options.misses:
        for asked in asked_sets:
            print_misses(asked)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.everyday", description="Ask everyday questions.")
    parser.add_argument("--half", choices=HALVES, help="print this half only")
    parser.add_argument("--misses", action="store_true", help="list the questions of 'tune' without an answer")
    parser.add_argument("--write", metavar="DIR", type=Path, help="write the halves as sets and stop")
    return parser.parse_args()


# asking


def ask_set(name: str) -> AskedSet:
    bench = read_set(str(FOLDER / name))
    with tempfile.TemporaryDirectory(prefix="kept-everyday-") as folder:
        config = load_config(home=folder, environ={}).config
        groups = lay_out(bench, config, folder)
        max_results = hits_to_ask_for(*index(bench, groups))
        words = {name: replace(group, config=with_baseline(group.config, "keyword")) for name, group in groups.items()}
        variants = {
            DEFAULT: ask_all(groups, bench.queries, max_results=max_results)[0],
            UNTHRESHOLDED: ask_all(groups, bench.queries, max_results=max_results, min_score=0.0)[0],
            WORDS: ask_all(words, bench.queries, max_results=max_results)[0],
        }
    return AskedSet(bench, variants, read_halves(name))


def index(bench: BenchSet, groups: Mapping[str, BenchGroup]) -> tuple[int, int, int]:
    """Index the notes. Return their tokens, characters and chunks."""
    chunks = 0
    for group in groups.values():
        with Memory(group.config) as memory:
            memory.sync()
            chunks += memory.status().chunks
    texts = [document.text for document in bench.documents]
    return sum(map(estimate_tokens, texts)), sum(map(len, texts)), chunks


# printing


def print_half(asked: AskedSet, half: str) -> None:
    queries, relevant = asked.queries(half), asked.bench.relevant
    print()
    print(f"{asked.bench.name}, {half}".ljust(23) + "".join(f"{name:>21}" for name in asked.variants))
    print(f"{'category':<16}{'n':>7}" + "    R@5   R@10    MRR" * len(asked.variants))
    categories = [by_category(queries, answers, relevant) for answers in asked.variants.values()]
    for category in categories[0]:
        print_row(category, [summaries[category] for summaries in categories])
    everything = [summarise(queries, answers, relevant) for answers in asked.variants.values()]
    print_row("all", everything)
    print_shares("unanswerable without a hit", [summary["abstained_rightly"] for summary in everything])
    print_shares("answerable without a hit", [summary["abstained_wrongly"] for summary in everything])


def print_row(name: str, summaries: Sequence[Summary]) -> None:
    if summaries[0]["answerable"]:
        cells = [f"{summary[column]:7.2f}" for summary in summaries for column in COLUMNS]
        print(f"{name:<16}{summaries[0]['answerable']:>7}" + "".join(cells))


def print_shares(name: str, shares: Sequence[float | None]) -> None:
    print(f"{name:<30}" + " / ".join("-" if share is None else f"{share:.2f}" for share in shares))


def print_misses(asked: AskedSet) -> None:
    print(f"\n{asked.bench.name}, not among the first five:")
    for query in asked.queries("tune"):
        relevant = asked.bench.relevant.get(query.id, {})
        if relevant and not evaluate(asked.variants[UNTHRESHOLDED][query.id], relevant)["recall@5"]:
            print(f"  {query.category}: {query.text}  ({', '.join(relevant)})")


if __name__ == "__main__":
    main()
