"""The words by which `facts` reads a line: their stems, and the lists of `fact_words.txt`."""

from __future__ import annotations

import os
import re
from functools import cache, lru_cache

from kept.base.words.equivalents import EQUIVALENTS, IRREGULAR_FORMS
from kept.base.words.segment import fold
from kept.base.words.stopwords import ENGLISH

PLACES = frozenset(
    "in on next under at behind near beside above below inside to into auf unter bei hinter nach zu im am dans sous sur"
    " chez en bij op".split()
)
PREPOSITIONS = PLACES | frozenset(
    "by from with for of as until about within per after before because mit von fur um avec de du pour con voor di"
    " da".split()
)
SPEAKER = frozenset(
    "i we my our me us mine ours ich wir mein meine unser unsere je nous mon ma notre yo mi nuestro".split()
)
ARTICLES = frozenset(
    "the a an my our his her their der die das dem den ein eine le la les un une el los una il".split()
)
_EMPTY = PREPOSITIONS | ARTICLES | SPEAKER | ENGLISH | {"may", "must"}
_SIGNALS = frozenset(("end", "instead", "turn", "now", "added", "passing", "hedged", "same", "not"))


def is_empty(word: str) -> bool:
    """Return whether a word tells nothing about what a text is about."""
    return word in _EMPTY or word in words_of("be") or word in words_of("have") or stem(word) in stems_of("light")


def has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def is_past(word: str) -> bool:
    is_regular = word.endswith("ed") and len(word) > 4 and not word.startswith("un")
    return is_regular or (word in IRREGULAR_FORMS and _first_forms()[word] != word)


@lru_cache(maxsize=20_000)
def base_form(word: str) -> str:
    """Return a word without the endings of English plurals and verbs. An irregular form has its first form."""
    if not word.isalpha():
        return word
    word = _first_forms().get(word, word)
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            word = word[:-1] if word[-1] == word[-2] and word[-1] not in "ls" else word
    return word.removesuffix("e") if len(word) > 2 else word


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word without its endings, those by which one word is made from another included."""
    word = base_form(word if has_digit(word) else word.replace("-", ""))
    return re.sub(r"(?:ation|anc|enc|ion|al|er|or|ly|ity)$", "", word) if len(word) > 6 else word


@cache
def _first_forms() -> dict[str, str]:
    """Return the first word of its group for each irregular form and each equivalent."""
    first: dict[str, str] = {}
    for groups in (EQUIVALENTS, IRREGULAR_FORMS):
        for word, others in groups.items():
            for other in (word, *others):
                first.setdefault(other, first.get(word, word))
    return first


@cache
def _lists() -> dict[str, str]:
    with open(os.path.join(os.path.dirname(__file__), "fact_words.txt"), encoding="utf-8") as file:
        return dict(part.split("]\n", 1) for part in file.read().split("\n[")[1:])


@cache
def words_of(name: str) -> frozenset[str]:
    return frozenset(_lists()[name].split())


@cache
def stems_of(name: str) -> frozenset[str]:
    return frozenset(map(stem, words_of(name)))


@cache
def phrases() -> dict[tuple[str, ...], frozenset[str]]:
    """Return what each phrase signals. Verbs are in their base form, which no other phrase has."""
    by_words: dict[tuple[str, ...], frozenset[str]] = {}
    for name, text in _lists().items():
        kind, _, form = name.partition(" ")
        for phrase in re.split(r"[;\n]", text) if kind in _SIGNALS else ():
            words = tuple(map(base_form, phrase.split())) if form else tuple(phrase.split())
            by_words[words] = by_words.get(words, frozenset()) | {kind}
    by_words.pop((), None)
    return by_words


@cache
def first_words() -> frozenset[str]:
    return frozenset(words[0] for words in phrases())


@cache
def names_of(name: str) -> dict[str, int]:
    """Return the names of days, months or numbers, and the English ones in short, each with its number."""
    groups = [group.split() for group in _lists()[name].split(";")]
    names = {word: at for at, group in enumerate(groups, 1) for word in group}
    return names if name == "number" else names | {group[0][:3]: at for at, group in enumerate(groups, 1)}


@cache
def units_of() -> dict[str, tuple[str, float]]:
    """Return the kind of each unit, and its size."""
    units = {}
    for line in _lists()["unit"].splitlines():
        kind, *words = line.split()
        size = 1.0
        for word in words:
            if has_digit(word):
                size = float(word)
            else:
                units[fold(word)] = units[stem(fold(word))] = (kind, size)
    return units


@cache
def opposites() -> frozenset[tuple[str, ...]]:
    pairs = [tuple(map(stem, pair.split())) for pair in _lists()["opposites"].split(";")]
    return frozenset(pairs) | {pair[::-1] for pair in pairs}
