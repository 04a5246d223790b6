"""Print what each bound between weak and likely would refuse and lose.

    python -m benchmarks.threshold SET…

Each set is asked its own questions, random words of its own documents, and questions of the other sets that share
neither documents nor queries with it. Nonsense is refused if all its hits are weak. An answer is lost if something
relevant is among the first ten hits, but only among the weak ones. Some questions of another set may have an answer
here, and an `adversarial` question usually misquotes something that was said: read the whole curve, not one number.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence

from kept.base.records import LIKELY_FROM
from kept.base.values import frozen
from kept.base.words.segment import is_unspaced, split_scripts
from kept.config import Config, load_config
from kept.memory import Memory
from kept.server.bench.measurement import ask_all, first_ranks
from kept.server.bench.sets import BenchGroup, BenchQuery, BenchSet, ReturnedHit, lay_out, read_set

NONSENSE_QUERIES = 60
"""Number of queries of each kind of nonsense."""
STEP = 0.05
ASKED_FOR = 12
"""Number of hits requested for each query."""

_WORD = re.compile(r"[^\W\d_]{3,}")
_SEED = 20260314

FOREIGN = (
    "How long should sourdough proof in a cold kitchen?",
    "Which clamp holds a mitred corner while the glue sets?",
    "What gear ratio suits a touring bicycle in the Alps?",
    "When do barn swallows leave for the south?",
    "How is the tension of a loom's warp kept even?",
    "Why does a harpsichord not play louder when struck harder?",
    "What was the toll for a barge on the upper canal in 1820?",
    "How deep must a fence post stand in sandy soil?",
    "Which lichen tells that the air is clean?",
    "What does a referee do when both sails touch the buoy?",
    "How many stitches make the heel of a sock?",
    "Where does the river Tagus rise?",
    "How do beekeepers calm a swarm before moving it?",
    "Which knot would a tree surgeon tie above the branch?",
    "What temperature melts bell metal?",
    "Who printed the first atlas of the moon?",
    "How is saffron told from dyed safflower?",
    "What is the penalty for a late declaration in duplicate bridge?",
    "Why do violin makers prefer spruce that grew slowly?",
    "How far can a carrier pigeon fly in a day?",
)
"""Questions that few memories can answer, used without another set to take some from."""


@frozen
class Probe:
    """Hits of one query that was asked without a threshold."""

    hits: tuple[ReturnedHit, ...]
    relevant: Mapping[str, float]

    @property
    def best(self) -> float:
        return max((hit.score for hit in self.hits), default=-1.0)

    def is_answered(self, min_score: float) -> bool:
        remaining = [hit for hit in self.hits if hit.score >= min_score][:10]
        return bool(first_ranks(remaining, self.relevant))


@frozen
class ThresholdPoint:
    """A threshold, with the share of each kind of query that it refuses. None without such queries."""

    min_score: float
    random_refused: float | None
    foreign_refused: float | None
    adversarial_refused: float | None
    answers_lost: float | None


@frozen
class ProbeSet:
    random: tuple[Probe, ...]
    foreign: tuple[Probe, ...]
    adversarial: tuple[Probe, ...]
    answerable: tuple[Probe, ...]


def measure_curve(probes: ProbeSet, min_scores: Iterable[float]) -> list[ThresholdPoint]:
    """Return a point for each threshold. An answer is lost if the query is answered without that threshold only."""
    answered = [probe for probe in probes.answerable if probe.is_answered(0.0)]
    return [
        ThresholdPoint(
            min_score=min_score,
            random_refused=_refused(probes.random, min_score),
            foreign_refused=_refused(probes.foreign, min_score),
            adversarial_refused=_refused(probes.adversarial, min_score),
            answers_lost=_share(not probe.is_answered(min_score) for probe in answered),
        )
        for min_score in min_scores
    ]


def thresholds(current: float) -> list[float]:
    """Return the thresholds to measure, among them the current one."""
    return sorted({*(round(number * STEP, 2) for number in range(round(1 / STEP))), current})


def _refused(probes: Sequence[Probe], min_score: float) -> float | None:
    return _share(probe.best < min_score for probe in probes)


def _share(outcomes: Iterable[bool]) -> float | None:
    flags = [*outcomes]
    return sum(flags) / len(flags) if flags else None


# nonsense


def make_random_queries(bench: BenchSet, count: int = NONSENSE_QUERIES) -> dict[str, list[str]]:
    """Return, by group, queries of three to six random words from its documents. They are the same every time."""
    rng = random.Random(_SEED)
    words: dict[str, list[str]] = {}
    for document in bench.documents:
        words.setdefault(document.group, []).extend(_vocabulary(document.text))
    ordered = {group: sorted(set(group_words)) for group, group_words in words.items() if group_words}
    queries: dict[str, list[str]] = {}
    for number in range(count if ordered else 0):
        group = [*ordered][number % len(ordered)]
        picks = (rng.choice(ordered[group]) for _ in range(rng.randint(3, 6)))
        queries.setdefault(group, []).append(" ".join(_short_word(word, rng) for word in picks))
    return queries


def _vocabulary(text: str) -> list[str]:
    return [piece for run in _WORD.findall(text.lower()) for piece in split_scripts(run)]


def _short_word(word: str, rng: random.Random) -> str:
    """Return three characters of a "word" in a script without spaces, which is a whole sentence there."""
    if not is_unspaced(word) or len(word) <= 3:
        return word
    start = rng.randrange(len(word) - 2)
    return word[start : start + 3]


def make_foreign_queries(bench: BenchSet, others: Sequence[BenchSet], count: int = NONSENSE_QUERIES) -> list[str]:
    """Return questions of other sets. A set that shares documents or questions with this one is left out."""
    ids, texts = {document.id for document in bench.documents}, {query.text for query in bench.queries}
    unrelated = [
        other
        for other in others
        if ids.isdisjoint(document.id for document in other.documents)
        and texts.isdisjoint(query.text for query in other.queries)
    ]
    if not unrelated:
        return [*FOREIGN]
    rng = random.Random(_SEED)
    picks = (rng.choice(unrelated) for _ in range(count))
    return list(dict.fromkeys(rng.choice(other.queries).text for other in picks))


# asking


def ask_probes(bench: BenchSet, foreign: Sequence[str], config: Config, folder: str) -> ProbeSet:
    """Index a set below a folder and ask it its own queries and nonsense, without a threshold."""
    groups = lay_out(bench, config, folder)
    for group in groups.values():
        with Memory(group.config) as memory:
            memory.sync()
    answers = ask_all(groups, bench.queries, max_results=ASKED_FOR, min_score=0.0)[0]
    relevant = bench.relevant
    probes = {query.id: Probe(answers[query.id], relevant.get(query.id, {})) for query in bench.queries}
    names = [*groups]
    foreign_texts: dict[str, list[str]] = {}
    for number, text in enumerate(foreign):
        foreign_texts.setdefault(names[number % len(names)], []).append(text)
    return ProbeSet(
        random=_ask_nonsense(groups, make_random_queries(bench)),
        foreign=_ask_nonsense(groups, foreign_texts),
        adversarial=tuple(probes[query.id] for query in bench.queries if not query.answerable),
        answerable=tuple(
            probes[query.id] for query in bench.queries if query.answerable and query.id in bench.relevant
        ),
    )


def _ask_nonsense(groups: Mapping[str, BenchGroup], texts: Mapping[str, Sequence[str]]) -> tuple[Probe, ...]:
    queries = [
        BenchQuery(f"{group}:{number}", text, group=group)
        for group, group_texts in texts.items()
        for number, text in enumerate(group_texts)
    ]
    answers = ask_all(groups, queries, max_results=ASKED_FOR, min_score=0.0)[0]
    return tuple(Probe(answer, {}) for answer in answers.values())


def main() -> None:
    sets = [read_set(folder) for folder in sys.argv[1:]]
    for bench in sets:
        foreign = make_foreign_queries(bench, [other for other in sets if other is not bench])
        with tempfile.TemporaryDirectory(prefix="kept-threshold-") as folder:
            probes = ask_probes(bench, foreign, load_config(home=folder, environ={}).config, folder)
        print(f"\n{bench.name:<12}{'random':>12}{'foreign':>12}{'adversarial':>12}{'lost':>12}")
        for point in measure_curve(probes, thresholds(LIKELY_FROM)):
            shares = (point.random_refused, point.foreign_refused, point.adversarial_refused, point.answers_lost)
            mark = " <" if point.min_score == LIKELY_FROM else ""
            cells = ("-" if share is None else f"{share:.0%}" for share in shares)
            print(f"{point.min_score:<12.2f}" + "".join(f"{cell:>12}" for cell in cells) + mark)


if __name__ == "__main__":
    main()
