"""Learn the weights of the ranking, and print their recall on held-out questions.

    python -m benchmarks.ranking SET… [--queries N]

Read the sets in the format of `kept bench`, index them, and take the evidence of each candidate from the ordinary
search. The learned weights make the chunks that answer a question most likely among its candidates: a softmax over the
candidates of each question, without negative weights. Every figure is held out: conversations are judged by weights
that were learned from other conversations, sets of notes by weights from the other sets. The last lines of each kind
are learned from everything, with the same weight for each set; `kept/search/weights.py` starts from them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from kept.config import Config, load_config
from kept.memory import Memory
from kept.search.candidates import Evidence, gather_pool
from kept.search.pipeline import embed_query
from kept.search.query import IndexQuery, parse_query
from kept.search.weights import EvidenceWeights
from kept.server.bench.sets import BenchGroup, BenchSet, lay_out, read_set, sample

NAMES = [field.name for field in fields(Evidence) if field.type == "float"]
TEXT = ["words", "around", "coverage", "reach", "answers"]
VECTOR = ["meaning", "beside"]
AGAINST = ["question", "speaker", "machine"]
NOTES_ONLY = ["words", "around", "coverage", "reach", "meaning"]
RIDGE = 1.0
TOP = 10


@dataclass
class Asked:
    """Question with the evidence of its candidates, and which of them answer it."""

    fold: str
    evidence: np.ndarray
    answers: np.ndarray
    documents: list[frozenset[str]]
    wanted: frozenset[str]
    weight: float = 1.0


# evidence from the search


def gather(bench: BenchSet, config: Config, folder: str, limit: int | None) -> list[Asked]:
    found = []
    groups = lay_out(bench, config, folder)
    queries = sample(tuple(one for one in bench.queries if one.answerable and one.id in bench.relevant), limit)
    for name, group in groups.items():
        with Memory(group.config) as memory:
            memory.sync()
            for query in queries:
                if query.group == name:
                    wanted = frozenset(bench.relevant[query.id])
                    fold = f"{bench.name}/{name}" if len(groups) > 1 else bench.name
                    found.append(ask(memory, group, query.text, wanted, fold))
    for one in found:
        one.weight = 1.0 / len(found)
    return found


def ask(memory: Memory, group: BenchGroup, text: str, wanted: frozenset[str], fold: str) -> Asked:
    embedder = memory.index_service.embedder
    query = parse_query(text)
    vector, _ = embed_query(embedder, query) if embedder else (None, ())
    settings = replace(memory.settings.query, max_results=50)
    with memory.index_service.inspecting() as (index, _), index.reading():
        pool = gather_pool(index, IndexQuery(query, settings), vector)
    found = pool.find_evidence(text)
    documents = [documents_of(group, pool.chunks[row]) for row in found]
    evidence = np.array([[getattr(one, name) for name in NAMES] for one in found.values()])
    evidence = evidence.reshape(len(found), len(NAMES))
    return Asked(fold, evidence, np.array([bool(one & wanted) for one in documents]), documents, wanted)


def documents_of(group: BenchGroup, chunk) -> frozenset[str]:
    units = group.units.get(chunk.path, ())
    inside = (u for u in units if u.lines is None or chunk.start_line <= u.lines[0] <= u.lines[1] <= chunk.end_line)
    return frozenset(unit.document for unit in inside)


# learning


def learn(asked: Sequence[Asked], names: Sequence[str]) -> dict[str, float]:
    """Fit the weights with Newton's method, halving a step until the loss falls.

    A weight that would turn negative stays at 0 until its gradient turns positive.
    """
    usable = [one for one in asked if one.answers.any() and not one.answers.all()]
    signs = np.array([-1.0 if name in AGAINST else 1.0 for name in names])
    columns = [NAMES.index(name) for name in names]
    matrix = np.concatenate([one.evidence[:, columns] for one in usable]) * signs
    sizes = np.array([len(one.answers) for one in usable])
    starts, owner = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    target = np.concatenate([one.answers / one.answers.sum() for one in usable])
    weight = np.array([one.weight for one in usable])
    weight *= len(weight) / weight.sum()
    scale = matrix.std(axis=0) + 1e-9
    matrix = matrix / scale

    def chances(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = matrix @ found
        highest = np.maximum.reduceat(scores, starts)
        powers = np.exp(scores - highest[owner])
        total = np.add.reduceat(powers, starts)
        return powers / total[owner], highest + np.log(total)

    def loss(found: np.ndarray) -> float:
        _, norms = chances(found)
        return float(
            (weight * norms).sum() - (weight[owner] * target * (matrix @ found)).sum() + RIDGE / 2 * found @ found
        )

    found = np.zeros(len(names))
    for _ in range(60):
        chance, _ = chances(found)
        gradient = matrix.T @ (weight[owner] * (target - chance)) - RIDGE * found
        weighed = matrix * (weight[owner] * chance)[:, None]
        means = np.add.reduceat(matrix * chance[:, None], starts, axis=0)
        curve = weighed.T @ matrix - (means * weight[:, None]).T @ means + RIDGE * np.eye(len(names))
        free = (found > 0) | (gradient > 0)
        step = np.zeros(len(names))
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], gradient[free])
        size = 1.0
        now = loss(found)
        while size > 1e-6 and loss(np.maximum(0.0, found + size * step)) > now:
            size /= 2
        moved = np.maximum(0.0, found + size * step) - found
        found = found + moved
        if np.abs(moved).max() < 1e-4:
            break
    return dict(zip(names, found / scale, strict=True))


def to_mix(learned: dict[str, float]) -> tuple[EvidenceWeights, float]:
    """Return the weights in the form of `weights.py`, and the share of meaning."""
    text, vector = (sum(learned.get(name, 0.0) for name in side) for side in (TEXT, VECTOR))
    both = text + vector
    shares = (
        {name: learned.get(name, 0.0) / (total or 1.0) for name in side}
        for side, total in ((TEXT, text), (VECTOR, vector), (AGAINST, both))
    )
    return EvidenceWeights(*shares), vector / ((text + vector) or 1.0)


# judging


def recall(one: Asked, learned: dict[str, float], top: int = TOP) -> float:
    """Return the share of the relevant documents that are among the first ``top``."""
    signed = np.array([learned.get(name, 0.0) * (-1.0 if name in AGAINST else 1.0) for name in NAMES])
    order = np.argsort(-(one.evidence @ signed), kind="stable") if len(one.evidence) else []
    seen: dict[str, None] = {}
    for at in order:
        seen.update(dict.fromkeys(one.documents[at]))
        if len(seen) >= top:
            break
    return len(set(list(seen)[:top]) & one.wanted) / len(one.wanted)


def held_out(asked: Sequence[Asked], names: Sequence[str], fold_of: Callable[[Asked], str]) -> dict[str, float]:
    figures: dict[str, list[float]] = {}
    for fold in dict.fromkeys(fold_of(one) for one in asked):
        learned = learn([one for one in asked if fold_of(one) != fold], names)
        for one in asked:
            if fold_of(one) == fold:
                figures.setdefault(one.fold.partition("/")[0], []).append(recall(one, learned))
    return {name: float(np.mean(values)) for name, values in figures.items()}


def report(title: str, figures: dict[str, float]) -> None:
    print(f"{title:<44}", "  ".join(f"{name} {value:.3f}" for name, value in figures.items()), flush=True)


def ablate(asked: Sequence[Asked], names: Sequence[str], fold_of: Callable[[Asked], str]) -> None:
    report("all", held_out(asked, names, fold_of))
    for name in names:
        report(f"without {name}", held_out(asked, [one for one in names if one != name], fold_of))


def main(folders: Sequence[str], limit: int | None) -> None:
    turns: list[Asked] = []
    notes: list[Asked] = []
    for folder in folders:
        bench = read_set(folder)
        with tempfile.TemporaryDirectory() as home:
            asked = gather(bench, load_config(home=home, workspace=home).config, home, limit)
        (turns if any(document.session for document in bench.documents) else notes).extend(asked)
        print(f"{bench.name}: {len(asked)} questions", flush=True)
    for title, asked, names in (("UTTERANCES", turns, TEXT + VECTOR + AGAINST), ("NOTES", notes, NOTES_ONLY)):
        if asked:
            print(f"\n{title}: recall@{TOP} of single chunks, held out")
            ablate(asked, names, lambda one: one.fold)
            mix, share = to_mix(learn(asked, names))
            print(f"{title} = {mix}\nshare of meaning: {share:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn the weights of the ranking.")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--queries", type=int, default=None, help="maximum number per set")
    chosen = parser.parse_args()
    main(chosen.sets, chosen.queries)
