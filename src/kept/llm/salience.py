"""Which sentences of a conversation are worth keeping, by what can be seen of them without a model. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from kept.values import frozen

MAX_SENTENCE_CHARS = 400
_MIN_LETTERS = 8
_ENOUGH_OVERLAP = 0.7
"""Two sentences that share this much of their words say the same; the later one counts."""


@frozen
class Sentence:
    text: str
    at: int
    """Which of the things said it belongs to."""
    order: int
    """Its place among all sentences."""
    score: float


@frozen
class SalienceCue:
    pattern: str
    weight: float


# What makes a sentence worth keeping, or not. Words are English; numbers, names, addresses and code any language has.
SIGNS = (
    SalienceCue(r"(?i)\b(?:remember|don'?t forget|note that|for the record|important(?:ly)?|keep in mind)\b", 3.0),
    SalienceCue(
        r"(?i)\b(?:decid\w+|agree[ds]?|chose\w*|settled on|going with|plan(?:s|ned)? to|conclu\w+|resolved)\b", 2.5
    ),
    SalienceCue(r"(?i)\bmy (?!god|goodness|bad\b)\w+(?:\s\w+){0,3} (?:is|are|was|were|has|lives?|works?)\b", 2.5),
    SalienceCue(
        r"(?i)\bI(?:'m| am| live| work| moved| was born| have| own| use| prefer| like| love| hate| need| want)\b", 1.5
    ),
    SalienceCue(
        r"(?i)\b(?:always|never|must|should|prefer\w*|favou?rite|allerg\w+|birthday|anniversary|deadline|due)\b", 1.5
    ),
    SalienceCue(
        r"(?i)\b(?:because|instead|no longer|from now on|changed?|moved?|switch\w+|renamed?|fixed|root cause)\b", 1.0
    ),
    SalienceCue(
        r"(?i)\b(?:called|named|address|phone|port|version|password|server|account|budget|costs?|price)\b", 1.0
    ),
    SalienceCue(r"\d", 1.0),
    SalienceCue(r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[:.]\d\d\b|(?i:\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b)", 1.0),
    SalienceCue(r"https?://|[\w.+-]+@[\w-]+\.\w|(?:^|\s)[~./]?\w+/[\w./-]+|\b\w+_\w+\b|`[^`]+`", 1.0),
    SalienceCue(r"(?<=[\w,;] )[A-Z][a-z]+", 1.0),
    SalienceCue(r"""["“«「][^"”»」]{3,}["”»」]""", 0.5),
    SalienceCue(r"[?？]\s*$", -2.0),
    SalienceCue(
        r"(?i)^\W*(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|sure|great|yes|no|bye|good (?:morning|night)|lol)\b", -2.0
    ),
    SalienceCue(r"(?i)\bI(?:'m| am) (?:fine|good|well|glad|happy|sorry|afraid|not sure|ready|here)\b", -3.0),
    SalienceCue(
        r"(?i)\b(?:let me know|happy to help|feel free|would you like|can i help|you'?re welcome|as an ai)\b", -3.0
    ),
)

_ENDS = re.compile(r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]]))\s+(?=[^a-z\s])|(?<=[。！？])|\n+")
_ABBREVIATION = re.compile(r"(?i)(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|vs|etc|e\.g|i\.e|no|approx|[a-z])\.$")
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"^\s*(?:[-*+>]\s+|#{1,6}\s+|\d+[.)]\s+)+")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_STOP = frozenset(
    "a an and are as at be been but by can could did do does for from had has have he her him his how i if in into is"
    " it its just me my no not of on or our she so some than that the their them then there they this to up us was we"
    " were what when which who will with would you your".split()
)


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], float], ...]:
    return tuple((re.compile(sign.pattern), sign.weight) for sign in SIGNS)


def split_sentences(text: str) -> list[str]:
    """Sentences on one line each. Code blocks are left out: they are read in the transcript, not in a summary."""
    parts: list[list[str]] = [[]]
    for part in _ENDS.split(_FENCE.sub("\n", text)):
        parts[-1].append(part)
        if not _ABBREVIATION.search(part[-12:]):
            parts.append([])
    tidy = (" ".join(_MARKUP.sub("", " ".join(part)).split()) for part in parts)
    return [_cut(part) for part in tidy if len(part) >= _MIN_LETTERS or _is_dense(part)]


def _is_dense(part: str) -> bool:
    return not part.isascii() and len(part) >= 4


def _cut(sentence: str) -> str:
    if len(sentence) <= MAX_SENTENCE_CHARS:
        return sentence
    start = sentence[: MAX_SENTENCE_CHARS - 1]
    return (start.rpartition(" ")[0] or start) + "…"


def words_of(text: str) -> frozenset[str]:
    """What two sentences are compared by. Where words are not parted by spaces, pairs of characters are words."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if word.isascii():
            found.add(word)
        else:
            found.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
    return frozenset(found - _STOP) or frozenset(found)


def score_sentences(said: Sequence[str]) -> list[Sentence]:
    """Every sentence with its score, in order: its signs, and how much of it the conversation comes back to."""
    found = [(at, text, words_of(text)) for at, one in enumerate(said) for text in split_sentences(one)]
    counts = Counter(word for _, _, words in found for word in words)
    return [
        Sentence(text, at, order, _signs_of(text) + _centrality(words, counts) + _recency(at, len(said)))
        for order, (at, text, words) in enumerate(found)
    ]


def _signs_of(text: str) -> float:
    return sum(weight for pattern, weight in _compiled() if pattern.search(text))


def _centrality(words: Iterable[str], counts: Counter[str]) -> float:
    """A word that comes up again is what the talk is about; the logarithm keeps a word of every line from ruling."""
    weights = [math.log1p(counts[word] - 1) for word in words]
    return sum(weights) / (3 + len(weights))


def _recency(at: int, length: int) -> float:
    """Breaks ties in favour of what was said later, and no more."""
    return 0.2 * at / length


def pick(sentences: Iterable[Sentence], *, min_score: float) -> Iterator[Sentence]:
    """The best first, each thing once. It costs what is taken from it, not what a long conversation has."""
    picked: list[frozenset[str]] = []
    for one in sorted(sentences, key=lambda one: (-one.score, -one.at, one.text)):
        if one.score < min_score:
            return
        words = words_of(one.text)
        if not any(_alike(words, other) for other in picked):
            picked.append(words)
            yield one


def _alike(left: frozenset[str], right: frozenset[str]) -> bool:
    """Sentences with different numbers in them never are: 'port 5432' is not 'port 5433'."""
    if len(left & right) < _ENOUGH_OVERLAP * len(left | right):
        return False
    return not any(word.isdigit() for word in left ^ right)
