"""The texts to look for: words that were forgotten, and whole lines that were removed.

Words match in any case, over line breaks, and only as whole words: forgetting "ann" leaves "planning". A removed line
matches a line with the same text, and any text that contains it if it is one of the longest.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

from kept.base.values import frozen
from kept.sessions.forgotten_text import MIN_LINE_CHARS, iter_long_lines, normalise_line

SEARCHED_LINES = 200
"""Lines that are also looked for inside of other lines, and in all bytes: the longest ones."""
_LEAST_ALNUM = 3
_GAP = r"(?:\s|\\[nrt])+"
"""White space, also as JSON writes it."""


@frozen
class Needles:
    words: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Without list marks, each long enough to be told from others."""

    @classmethod
    def of_texts(cls, texts: Iterable[str], words: tuple[str, ...] = ()) -> Needles:
        lines = dict.fromkeys(line.strip().lstrip("-*+>#•| ") for text in texts for line in text.splitlines())
        return cls(words, tuple(line for line in lines if len(normalise_line(line)) >= MIN_LINE_CHARS))

    def __bool__(self) -> bool:
        return bool(self.words or self.lines)

    @property
    def longest_lines(self) -> list[str]:
        return sorted(self.lines, key=len, reverse=True)[:SEARCHED_LINES]


def is_too_short(words: str) -> bool:
    """Return whether words are so short that they are probably everywhere."""
    return sum(map(str.isalnum, words)) < _LEAST_ALNUM


_OWN_NAMES = frozenset(
    {"memory", "projects", "private", "sessions", ".kept", "history", "proposals", "workspace", "memory.md"}
)
"""Names that Kept gives to files and folders. They say nothing about what is in them."""


def words_of(path: str) -> str:
    """Return the names in a path as they are and as words, each in a line, without those that Kept gives itself."""
    names = [name for name in path.split("/") if name.lower() not in _OWN_NAMES]
    return "\n".join([*names, *(re.sub(r"[-_.+%]+", " ", os.path.splitext(name)[0]) for name in names)])


class Matcher:
    """Finds needles in texts."""

    def __init__(self, needles: Needles) -> None:
        self.needles = needles
        patterns = dict.fromkeys(_phrase_pattern(phrase, form) for phrase in needles.words for form in ("NFC", "NFD"))
        self._words = re.compile("|".join(filter(None, patterns)) or r"(?!)", re.IGNORECASE)
        self._lines = frozenset(map(normalise_line, needles.lines))
        self._contained = [normalise_line(line) for line in needles.longest_lines]

    def has_words(self, text: str) -> bool:
        return self._words.search(text) is not None

    def has_line(self, text: str) -> bool:
        if not self._lines or len(text) < MIN_LINE_CHARS:
            return False
        if not self._lines.isdisjoint(iter_long_lines(text)):
            return True
        plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        return any(line in plain for line in self._contained)

    def matches(self, text: str) -> bool:
        return self.has_words(text) or self.has_line(text)

    def may_match_raw(self, raw: bytes) -> bool:
        """Return whether a line of JSON may have a match. It need not be parsed otherwise."""
        return b"\\u" in raw or b"\\\\" in raw or self.matches(raw.decode("utf-8", "replace"))


def _phrase_pattern(phrase: str, form: Literal["NFC", "NFD"]) -> str:
    """Return the pattern of a phrase, with composed or with decomposed characters."""
    parts = unicodedata.normalize(form, phrase).split()
    before = r"(?<!\w)" if re.match(r"\w", "".join(parts)) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", "".join(parts)) else ""
    return before + _GAP.join(map(re.escape, parts)) + after


# bytes


def byte_forms(text: str) -> set[bytes]:
    """Return how a text may be stored: in each encoding and escaped as in JSON, in lower case as far as ASCII goes."""
    spelled = {text, text.lower(), text.upper(), text.title(), text.casefold()}
    spelled = {unicodedata.normalize(form, spelling) for spelling in spelled for form in ("NFC", "NFD")} | spelled
    spelled |= {gap.join(spelling.split()) for spelling in spelled for gap in (" ", "\n", "\r\n")}
    forms: set[bytes] = set()
    for plain in filter(None, spelled):
        escaped, readable = (json.dumps(plain, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
        forms |= {escaped.encode(), json.dumps(escaped)[1:-1].encode(), plain.encode("latin-1", "xmlcharrefreplace")}
        forms |= {
            form.encode(name, "surrogatepass")
            for form in (plain, readable)
            for name in ("utf-8", "utf-16-le", "utf-16-be")
        }
    return {form.lower() for form in forms}
