"""Choose the weight of the words that a note has outside its best passage, and print the recall on long notes.

    python -m benchmarks.long_notes SET:split SET:join SET:articles… [--notes N] [--queries N]

`long_sets` makes the sets. Compare the best passage of a note by words alone, and whole notes by words alone (one row a
note), with each weight of `search/reordering.py`, by words alone and at default settings. For each set, the weight is
chosen by the mean recall on the sets of other originals. Recall counts notes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.long_sets import read_long_set
from kept.config import load_config
from kept.memory import Memory
from kept.search.candidates import gather_pool
from kept.search.pipeline import embed_query
from kept.search.query import IndexQuery, parse_query
from kept.search.reordering import judge_whole_notes
from kept.search.scores import fuse_pool, vector_share
from kept.server.bench.sets import BenchGroup, BenchSet, lay_out

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
WHOLE_NOTE = {"memory_search.chunking.tokens": 8000, "memory_search.chunking.overlap": 0}
WORDS = {"memory_search.provider": "none"}
TOP = (10, 5)

Recalls = dict[float, tuple[float, ...]]
"""Recall at 10 and 5 by weight."""


def measure(bench: BenchSet, settings: Mapping[str, object], shares: Sequence[float]) -> Recalls:
    recalls: dict[float, list[list[float]]] = {share: [] for share in shares}
    with tempfile.TemporaryDirectory() as home:
        config = load_config(home=home, workspace=home, settings=settings, environ={}).config
        group = lay_out(bench, config, home)[""]
        with Memory(group.config) as memory:
            memory.sync()
            for query in bench.queries:
                relevant = bench.relevant[query.id].keys()
                for share, notes in rank_notes(memory, group, query.text, shares):
                    recalls[share].append([len(relevant & {*notes[:top]}) / len(relevant) for top in TOP])
    return {share: tuple(np.mean(values, axis=0)) for share, values in recalls.items()}


def rank_notes(
    memory: Memory, group: BenchGroup, text: str, shares: Sequence[float]
) -> Iterator[tuple[float, list[str]]]:
    """Yield each weight with the notes in the order that it gives."""
    query, settings, embedder = parse_query(text), memory.settings.query, memory.index_service.embedder
    vector, _ = embed_query(embedder, query) if embedder else (None, ())
    with memory.index_service.inspecting() as (index, _), index.reading():
        pool = gather_pool(index, IndexQuery(query, settings), vector)
    now_ms = memory.clock.time_ns() // 1_000_000
    ranked = fuse_pool(pool, pool.find_evidence(text), settings, vector, now_ms=now_ms)
    text_share = 1.0 - vector_share(settings, vector)
    for share in shares:
        judged = judge_whole_notes(ranked, pool.terms, text_share=text_share, share=share, beside_share=0.0)
        paths = dict.fromkeys(scored.chunk.path for scored in judged)
        yield share, [group.units[path][0].document for path in paths]


def choose(recalls: Mapping[str, Recalls], name: str) -> float:
    """Return the weight with the best mean of both recalls on the sets of other originals."""
    others = [values for other, values in recalls.items() if other.partition(":")[0] != name.partition(":")[0]]
    return max(SHARES, key=lambda share: round(sum(sum(values[share]) for values in others), 6))


def report(title: str, recalls: Mapping[str, Recalls]) -> None:
    print(f"\n{title}: recall@10 by weight, and recall@10 / @5 with the weight that the other sets choose")
    print(f"{'set':<26}" + "".join(f"{share:>7}" for share in SHARES))
    for name, values in recalls.items():
        cells = "".join(f"{values[share][0]:7.3f}" for share in SHARES)
        share = choose(recalls, name)
        print(f"{name:<26}{cells}   {share}: {values[share][0]:.3f} / {values[share][1]:.3f}", flush=True)
    print(f"chosen on all: {choose(recalls, '')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--notes", type=int, default=1500, help="maximum number of notes of an original")
    parser.add_argument("--queries", type=int, default=150, help="maximum number per set")
    options = parser.parse_args()
    by_words: dict[str, Recalls] = {}
    by_default: dict[str, Recalls] = {}
    print(f"{'one row a note':<26}recall@10 / @5")
    for text in options.sets:
        bench, chunking = read_long_set(text, notes=options.notes, questions=options.queries)
        settings = {f"memory_search.chunking.{name}": value for name, value in chunking.items()}
        whole = measure(bench, WORDS | WHOLE_NOTE, (0.0,))[0.0]
        print(f"{bench.name:<26}{whole[0]:.3f} / {whole[1]:.3f}", flush=True)
        by_words[bench.name] = measure(bench, settings | WORDS, SHARES)
        by_default[bench.name] = measure(bench, settings, SHARES)
    report("words alone", by_words)
    report("default settings", by_default)


if __name__ == "__main__":
    main()
