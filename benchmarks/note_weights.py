"""Choose how far the built-in model is trusted with notes, and print the recall on sets that had no say.

    python -m benchmarks.note_weights SET… [--queries N] [--padding SET…]

The share of meaning in a note's score is ``weight × (covered + more × (1 - coverage))``, where coverage is the largest
share of the query's words in one note. Rank the candidates of each question with every rule of the grid. For each set,
the rule is chosen by the mean of recall@10 and recall@5 on the sets of other originals; so is the best rule that does
not look at coverage. Sets are written as for `benchmarks.calibration` and `benchmarks.long_notes`. Recall counts notes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from benchmarks.confidence_fit import original
from benchmarks.long_sets import read_long_set
from benchmarks.resize import read_sized_set
from kept.config import load_config
from kept.memory import Memory
from kept.search.candidates import gather_pool
from kept.search.pipeline import embed_query
from kept.search.query import IndexQuery, parse_query
from kept.search.scores import fuse_pool
from kept.search.weights import COVERED_TRUST, UNCOVERED_TRUST
from kept.server.bench.sets import BenchGroup, BenchSet, lay_out, sample

Rule = tuple[float, float]
"""Shares of meaning if one note has all words of the query, and if none has any."""
BUILT_IN = 0.3
SHIPPED: Rule = (round(BUILT_IN * COVERED_TRUST, 2), round(BUILT_IN * (COVERED_TRUST + UNCOVERED_TRUST), 2))
WORDS: Rule = (0.0, 0.0)
RULES: list[Rule] = sorted({SHIPPED, WORDS, *product((0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.55, 0.7))})
RULES = [(covered, uncovered) for covered, uncovered in RULES if covered <= uncovered]
FLAT = [rule for rule in RULES if rule[0] == rule[1] > 0]
TOP = (10, 5)

Recalls = dict[Rule, tuple[float, ...]]


def measure(bench: BenchSet, settings: Mapping[str, object], limit: int | None) -> Recalls:
    queries = sample(tuple(query for query in bench.queries if query.answerable and query.id in bench.relevant), limit)
    recalls: dict[Rule, list[list[float]]] = {rule: [] for rule in RULES}
    with tempfile.TemporaryDirectory() as home:
        for name, group in lay_out(bench, load_config(home=home, settings=settings, environ={}).config, home).items():
            asked = [query for query in queries if query.group == name]
            with Memory(group.config) as memory:
                memory.sync()
                for query in asked:
                    relevant = bench.relevant[query.id].keys()
                    for rule, notes in rank_by_each(memory, group, query.text):
                        recalls[rule].append([len(relevant & {*notes[:top]}) / len(relevant) for top in TOP])
    return {rule: tuple(np.mean(values, axis=0)) for rule, values in recalls.items()}


def rank_by_each(memory: Memory, group: BenchGroup, text: str) -> Iterator[tuple[Rule, list[str]]]:
    query, settings, embedder = parse_query(text), memory.settings.query, memory.index_service.embedder
    vector, _ = embed_query(embedder, query) if embedder else (None, ())
    with memory.index_service.inspecting() as (index, _), index.reading():
        pool = gather_pool(index, IndexQuery(query, settings), vector)
    evidence, now_ms = pool.find_evidence(text), memory.clock.time_ns() // 1_000_000
    coverage = max((found.coverage for found in evidence.values()), default=0.0)
    documents = {row: group.units[chunk.path][0].document for row, chunk in pool.chunks.items()}
    for rule in RULES:
        meaning = rule[0] + (rule[1] - rule[0]) * (1.0 - coverage)
        fixed = replace(settings, hybrid=replace(settings.hybrid, vector_weight=meaning))
        ranked = fuse_pool(pool, evidence, fixed, vector, now_ms=now_ms)
        yield rule, [*dict.fromkeys(documents[scored.chunk.row] for scored in ranked)]


def choose(recalls: Mapping[str, Recalls], name: str, rules: Sequence[Rule]) -> Rule:
    others = [values for other, values in recalls.items() if original(other) != original(name)]
    return max(rules, key=lambda rule: round(sum(sum(values[rule]) for values in others), 6))


def report(recalls: Mapping[str, Recalls]) -> None:
    title = f"{'recall@10 / @5':<22}{'words alone':>15}{f'shipped {SHIPPED}':>24}"
    print(f"{title}   one share, chosen on others   by coverage, chosen on others")
    for name, values in recalls.items():
        cells = [
            f"{values[WORDS][0]:.3f} / {values[WORDS][1]:.3f}",
            f"{values[SHIPPED][0]:.3f} / {values[SHIPPED][1]:.3f}",
        ]
        for rules in (FLAT, RULES):
            rule = choose(recalls, name, rules)
            cells.append(f"{rule}: {values[rule][0]:.3f} / {values[rule][1]:.3f}")
        print(f"{name:<22}{cells[0]:>15}{cells[1]:>24}   {cells[2]:<27}   {cells[3]}")
    print(f"chosen on all: {choose(recalls, '', FLAT)[0]}, {choose(recalls, '', RULES)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--queries", type=int, default=150, help="maximum number per set")
    parser.add_argument("--padding", nargs="*", default=[], help="sets to take further notes from")
    options = parser.parse_args()
    recalls = {}
    for text in options.sets:
        bench, settings = _read(text, options)
        recalls[bench.name] = measure(bench, settings, options.queries)
    report(recalls)


def _read(text: str, options: argparse.Namespace) -> tuple[BenchSet, dict[str, object]]:
    if ":" not in text:
        return read_sized_set(text, options.padding), {}
    bench, chunking = read_long_set(text, notes=1500, questions=options.queries)
    return bench, {f"memory_search.chunking.{name}": value for name, value in chunking.items()}


if __name__ == "__main__":
    main()
