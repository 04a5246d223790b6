"""Where a threshold should stand: what it refuses, and what it costs. Pure, but for what it is told was returned."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence

from kept.bench.dataset import BenchSet
from kept.bench.metrics import Returned, first_ranks
from kept.chunking.segment import is_unspaced, split_scripts
from kept.values import frozen

NONSENSE = 60
"""Queries of each kind of nonsense."""
STEP = 0.05
WANTED_REFUSED = 0.9
ALLOWED_LOST = 0.05

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
"""Questions that few memories could answer, for when no other set is there to take some from."""


@frozen
class Probe:
    """The hits of one query, asked without a threshold."""

    hits: tuple[Returned, ...]
    relevant: Mapping[str, float]

    @property
    def best(self) -> float:
        return max((hit.score for hit in self.hits), default=-1.0)

    def answered(self, min_score: float) -> bool:
        left = [hit for hit in self.hits if hit.score >= min_score][:10]
        return bool(first_ranks(left, self.relevant))


@frozen
class Point:
    """A threshold, with the share of each kind of query that it refuses. None where there is no such query."""

    min_score: float
    random_refused: float | None
    foreign_refused: float | None
    adversarial_refused: float | None
    answers_lost: float | None


@frozen
class Probes:
    random: tuple[Probe, ...]
    foreign: tuple[Probe, ...]
    adversarial: tuple[Probe, ...]
    answerable: tuple[Probe, ...]


def measure_curve(probes: Probes, min_scores: Iterable[float]) -> list[Point]:
    found = [probe for probe in probes.answerable if probe.answered(0.0)]
    return [
        Point(
            min_score=min_score,
            random_refused=_refused(probes.random, min_score),
            foreign_refused=_refused(probes.foreign, min_score),
            adversarial_refused=_refused(probes.adversarial, min_score),
            answers_lost=_share(not probe.answered(min_score) for probe in found),
        )
        for min_score in min_scores
    ]


def thresholds(current: float) -> list[float]:
    return sorted({*(round(at * STEP, 2) for at in range(round(1 / STEP))), current})


def _refused(probes: Sequence[Probe], min_score: float) -> float | None:
    return _share(probe.best < min_score for probe in probes)


def _share(outcomes: Iterable[bool]) -> float | None:
    counted = [*outcomes]
    return sum(counted) / len(counted) if counted else None


# nonsense


def make_random_queries(bench: BenchSet, count: int = NONSENSE) -> dict[str, list[str]]:
    """By group: words of its own documents in no connection, three to six of them. The same every time."""
    chance = random.Random(_SEED)
    words: dict[str, list[str]] = {}
    for document in bench.documents:
        words.setdefault(document.group, []).extend(_vocabulary(document.text))
    ordered = {group: sorted(set(found)) for group, found in words.items() if found}
    queries: dict[str, list[str]] = {}
    for number in range(count if ordered else 0):
        group = [*ordered][number % len(ordered)]
        drawn = (chance.choice(ordered[group]) for _ in range(chance.randint(3, 6)))
        queries.setdefault(group, []).append(" ".join(_short(word, chance) for word in drawn))
    return queries


def _vocabulary(text: str) -> list[str]:
    return [piece for run in _WORD.findall(text.lower()) for piece in split_scripts(run)]


def _short(word: str, chance: random.Random) -> str:
    """A script without spaces has sentences where others have words: three signs of it."""
    if not is_unspaced(word) or len(word) <= 3:
        return word
    start = chance.randrange(len(word) - 2)
    return word[start : start + 3]


def make_foreign_queries(bench: BenchSet, others: Sequence[BenchSet], count: int = NONSENSE) -> list[str]:
    """Questions that belong to other sets. One that shares documents or questions with this set is no other set."""
    ids, texts = {one.id for one in bench.documents}, {one.text for one in bench.queries}
    strangers = [
        other
        for other in others
        if ids.isdisjoint(one.id for one in other.documents) and texts.isdisjoint(one.text for one in other.queries)
    ]
    if not strangers:
        return [*FOREIGN]
    chance = random.Random(_SEED)
    drawn = (chance.choice(strangers) for _ in range(count))
    return list(dict.fromkeys(chance.choice(other.queries).text for other in drawn))
