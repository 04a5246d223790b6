"""Words for dates and periods in fourteen languages, read from `date_words.json`.

The words are as they are indexed: lower case, without accents. Each line there holds the words of one month, weekday,
number or unit, English first. Chinese, Japanese and Korean have no spaces, so their words are looked up in a run of
characters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any


def _load() -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(__file__), "date_words.json"), encoding="utf-8") as file:
        data: dict[str, Any] = json.load(file)
    return data


_DATA = _load()


def _words(name: str) -> frozenset[str]:
    return frozenset(_DATA[name].split())


def _numbered(lines: Iterable[str], first: int) -> dict[str, int]:
    return {word: number for number, line in enumerate(lines, first) for word in line.split()}


def _offsets(name: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the phrases for a period relative to today, with a unit and the number of units from now."""
    for key, phrases in _DATA[name].items():
        unit, number = key.split()
        yield phrases, (unit, int(number))


MONTHS = _numbered(_DATA["months"], 1)
WEEKDAYS = _numbered(_DATA["weekdays"], 0)
NUMBERS = _numbered(_DATA["numbers"], 1)
UNITS = {word: unit for unit, line in _DATA["units"].items() for word in line.split()}
AMBIGUOUS = _words("ambiguous")
"""Months that are also other words. They count only if a word beside them shows that they are a date."""
SHORT_WEEKDAYS = _words("short_weekdays")
"""Weekdays that are also other words. They count only after a word such as "on"."""
IN, OF, ON, THIS, ARTICLES = map(_words, ("in", "of", "on", "this", "articles"))
AGO_AFTER, AGO_BEFORE = _words("ago_after"), _words("ago_before")
LAST, LAST_DAY, NEXT_DAY = map(_words, ("last", "last_day", "next_day"))
GERMAN = _words("german")
"""Words beside "hier" that show that it is German for here, not French for yesterday."""
GREETINGS = _words("greetings")
GENERAL, GENERAL_ELSEWHERE = _words("general"), _words("general_elsewhere")
"""Words that say nothing about the content, in English and in other languages."""
SINCE, UNTIL, AFTER, TO = map(_words, ("since", "until", "after", "to"))

RELATIVE = {tuple(phrase.split()): offset for text, offset in _offsets("relative") for phrase in text.split("|")}
"""Phrases for a period relative to today."""
PART_HOURS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 30)}
"""Hours from midnight. The small hours of a day belong to its morning, and to the night before."""
TELLING = frozenset((*MONTHS, *WEEKDAYS, *UNITS, *(phrase[-1] for phrase in RELATIVE)))
"""Every time expression in a script with spaces has one of these words, or a digit."""


@cache
def english_words() -> frozenset[str]:
    """Return the English words of time expressions: in other languages, other small words are around them."""
    lines = (*_DATA["months"], *_DATA["weekdays"], *_DATA["numbers"], *_DATA["units"].values())
    phrases = [text.partition("|")[0] for text in _DATA["relative"].values()]
    return frozenset(" ".join((*(line.split()[0] for line in lines), *phrases, _DATA["english"])).split())


@cache
def unspaced_relative() -> dict[str, tuple[str, int]]:
    """Return the phrases of scripts without spaces, as `RELATIVE` has those of others."""
    return {phrase: offset for phrases, offset in _offsets("unspaced_relative") for phrase in phrases.split()}
