"""Print the recall of `kept search` with weights that were learned without the questions asked.

    python -m benchmarks.held_out SET… [--queries N]

Sets of notes: the share of meaning and the weight of coverage are chosen from a grid by the mean of recall@10 and
recall@5 on the sets of other originals (all `xquad` sets are one). Conversations: all weights are learned
(`benchmarks.ranking`) from the other conversations, or from four fifths of the questions of a set that is one
conversation, together with the other sets. Each set is then searched with those weights, as `kept bench` does, next to
the shipped weights and words alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from benchmarks.ranking import AGAINST, NAMES, TEXT, TOP, VECTOR, Asked, gather, learn, to_mix
from kept.base.limits import estimate_tokens
from kept.config import load_config
from kept.search import scores
from kept.search.weights import NOTES
from kept.server.bench.measurement import QueryRunner, evaluate, hits_to_ask_for, with_baseline
from kept.server.bench.sets import BenchQuery, BenchSet, lay_out, read_set, sample

BUILT_IN = 0.3
"""Weight of the built-in model, of which the trusts in `weights` are shares."""
FOLDS = 5
COVERAGES = (0.0, 0.15, 0.3)
SHARES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.55)
RULES = [rule for rule in product(COVERAGES, SHARES, SHARES) if rule[1] <= rule[2]]
"""Weight of coverage, and shares of meaning if one note has all words of the query and if none has any."""

Rule = tuple[float, float, float]
Weights = dict[str, Any]
"""Names in `kept.search.scores`, and their values."""


@dataclass
class PreparedSet:
    bench: BenchSet
    queries: tuple[BenchQuery, ...]
    asked: list[Asked]

    @cached_property
    def recall_by_rule(self) -> dict[Rule, float]:
        return {rule: float(np.mean([_recall(asked, rule) for asked in self.asked])) for rule in RULES}

    @property
    def is_talk(self) -> bool:
        return any(document.session for document in self.bench.documents)

    def fold_of(self, at: int) -> str:
        """Return the fold of a query: its conversation, or a fifth of the only one."""
        groups = {query.group for query in self.queries}
        part = self.queries[at].group if len(groups) > 1 else str(at * FOLDS // len(self.queries))
        return f"{self.bench.name}/{part}"


def prepare(folder: str, limit: int | None) -> PreparedSet:
    bench = read_set(folder)
    queries = sample(tuple(query for query in bench.queries if query.answerable and query.id in bench.relevant), limit)
    with tempfile.TemporaryDirectory() as home:
        asked = gather(bench, load_config(home=home, workspace=home, environ={}).config, home, limit)
    by_group = {name: [query for query in queries if query.group == name] for name in {q.group: 0 for q in queries}}
    names = dict.fromkeys(document.group for document in bench.documents)
    return PreparedSet(bench, tuple(query for name in names for query in by_group.get(name, ())), asked)


# learning


def original(name: str) -> str:
    return name.partition("_")[0] if name.startswith("xquad") else name


def choose_rule(sets: Sequence[PreparedSet]) -> Rule:
    return max(RULES, key=lambda rule: round(sum(each.recall_by_rule[rule] for each in sets), 6))


def _recall(asked: Asked, rule: Rule) -> float:
    """Return the mean of recall@10 and recall@5 of single chunks."""
    words, coverage, meaning = (asked.evidence[:, NAMES.index(name)] for name in ("words", "coverage", "meaning"))
    weight, covered, uncovered = rule
    share = covered + (uncovered - covered) * (1.0 - coverage.max(initial=0.0))
    order = np.argsort(-((1 - share) * ((1 - weight) * words + weight * coverage) + share * meaning), kind="stable")
    documents = list(dict.fromkeys(document for at in order[: 5 * TOP] for document in asked.documents[at]))
    return sum(len(asked.wanted.intersection(documents[:top])) for top in (TOP, TOP // 2)) / (2 * len(asked.wanted))


def note_weights(rule: Rule) -> Weights:
    weight, covered, uncovered = rule
    return {
        "NOTES": replace(NOTES, text={"words": 1 - weight, "coverage": weight}),
        "COVERED_TRUST": covered / BUILT_IN,
        "UNCOVERED_TRUST": (uncovered - covered) / BUILT_IN,
    }


def talk_weights(asked: Sequence[Asked]) -> Weights:
    weights, share = to_mix(learn(asked, TEXT + VECTOR + AGAINST))
    return {"UTTERANCES": weights, "UTTERANCE_TRUST": share / BUILT_IN}


def weights_by_fold(each: PreparedSet, sets: Sequence[PreparedSet]) -> dict[str, Weights]:
    folds = dict.fromkeys(each.fold_of(at) for at in range(len(each.queries)))
    if not each.is_talk:
        name = original(each.bench.name)
        rule = choose_rule([other for other in sets if not other.is_talk and original(other.bench.name) != name])
        print(f"{each.bench.name}: coverage {rule[0]}, meaning {rule[1]} to {rule[2]}", flush=True)
        return dict.fromkeys(folds, note_weights(rule))
    talks = [other for other in sets if other.is_talk]
    return {
        fold: talk_weights([a for talk in talks for at, a in enumerate(talk.asked) if talk.fold_of(at) != fold])
        for fold in folds
    }


# searching


@contextmanager
def patched(weights: Weights) -> Iterator[None]:
    """Search with other weights."""
    shipped = {name: getattr(scores, name) for name in weights}
    try:
        for name, value in weights.items():
            setattr(scores, name, value)
        yield
    finally:
        for name, value in shipped.items():
            setattr(scores, name, value)


def search(each: PreparedSet, weights: Mapping[str, Weights]) -> dict[str, list[tuple[float, float]]]:
    """Return recall@10 and recall@5 of each question: held out, as shipped, and by words alone."""
    bench = each.bench
    figures: dict[str, list[tuple[float, float]]] = {"held out": [], "shipped": [], "words": []}
    with tempfile.TemporaryDirectory() as home:
        groups = lay_out(bench, load_config(home=home, environ={}).config, home)
        for name, group in groups.items():
            asked = [(at, query) for at, query in enumerate(each.queries) if query.group == name]
            for title in figures:
                config = with_baseline(group.config, "keyword") if title == "words" else group.config
                runner = QueryRunner(replace(group, config=config))
                with runner.memory as memory:
                    memory.sync()
                    most = _hits(bench, memory.status().chunks * len(groups))
                    for at, query in asked:
                        with patched(weights[each.fold_of(at)] if title == "held out" else {}):
                            hits = runner.ask(query, max_results=most)
                        values = evaluate(hits, bench.relevant[query.id])
                        figures[title].append((values["recall@10"], values["recall@5"]))
    return figures


def _hits(bench: BenchSet, chunks: int) -> int:
    texts = [*bench.files.values()] or [document.text for document in bench.documents]
    tokens = sum(map(estimate_tokens, texts))
    return hits_to_ask_for(tokens, sum(map(len, texts)), chunks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--queries", type=int, default=None, help="maximum number per set")
    options = parser.parse_args()
    sets = [prepare(folder, options.queries) for folder in options.sets]
    lines = []
    for each in sets:
        figures = search(each, weights_by_fold(each, sets))
        cells = (
            f"{title} {' / '.join(f'{value:.3f}' for value in np.mean(values, axis=0))}"
            for title, values in figures.items()
        )
        lines.append(f"{each.bench.name:<20} {len(each.queries):>5}  " + "   ".join(cells))
        print(lines[-1], flush=True)
    print("\nset, questions, recall@10 / recall@5", *lines, sep="\n")


if __name__ == "__main__":
    main()
