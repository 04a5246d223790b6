"""The words of a text as the full-text index stores them, the same for notes and for queries.

**Folding** gives one spelling to words that people write in several ways. SQLite's tokenizer lowers case and removes
accents from Latin letters, and does nothing else. The rest is done here: ß becomes ss, ł becomes l, the dotless ı
becomes i, ё becomes е, Greek loses its accents, Arabic and Hebrew lose their vowel marks, and the variants of an Arabic
letter become one. A letter that merely resembles another letter with a mark stays: й is not и.

**Names in code** are split: `getUserName` is also found by "user name". The tokenizer splits names that are joined by
punctuation (`get_user_name`, `src/app.py`). It takes a name joined by capitals for one word, so the parts of such names
are added to the context of a chunk. There they break no phrase of the text, and count less than prose: as part of the
text they ranked code before explanations.

**Segmenting**: SQLite's tokenizer splits at spaces. Thai, Lao, Khmer, Burmese, Chinese, Japanese and Korean are written
without spaces, or with endings attached, so runs of these scripts are cut into overlapping pairs of characters, in
notes and in queries: a word inside a sentence is then a phrase of pairs. The index also holds the last character of a
run alone, so that a query of one character matches as the prefix of a pair. Example: "北京大学" is stored as "北京 京大
大学 学", and the query 京大学 is the phrase "京大 大学".

The **keys** of notes' names and of tags are at the end: two names that a person would call the same have the same key.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

SEGMENTER_VERSION = 2
"""Increase it when the same text would give other words, so that existing indexes are rebuilt."""

# folding

_LETTERS = (
    "ßss ẞSS æae ÆAE œoe ŒOE øo ØO đd ĐD ðd ÐD þth ÞTh łl ŁL ħh ĦH ıi İI ŋn ёе ЁЕ ςσ أا إا آا ٱا ىي یي کك ةه"
).split()
"""Letters, each with what it becomes behind it."""
_MARKS = (
    (0x0300, 0x036F),  # combining accents
    (0x0591, 0x05BD),  # Hebrew points
    (0x05BF, 0x05C7),
    (0x0610, 0x061A),  # Arabic vowels and marks
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06ED),
    (0x0640, 0x0640),  # tatweel, which stretches an Arabic word
)
_ACCENTED = ((0x00C0, 0x024F), (0x0370, 0x03FF), (0x1E00, 0x1FFF))
"""Latin and Greek letters with accents. In other scripts a mark may make a different letter."""


@cache
def _table() -> dict[int, str]:
    """Return the translation table. It is built on first use, because ASCII text does not need it."""
    table: dict[int, str] = {}
    for first, last in _ACCENTED:
        for code in range(first, last + 1):
            base = unicodedata.normalize("NFD", chr(code))[0]
            if base != chr(code):
                table[code] = base
    for first, last in _MARKS:
        table.update(dict.fromkeys(range(first, last + 1), ""))
    table.update((ord(pair[0]), pair[1:]) for pair in _LETTERS)
    return table


def fold(text: str) -> str:
    """Return the text with every letter in its plainest form. Case is preserved."""
    return text if text.isascii() else text.translate(_table())


# names in code

_MAX_NAME_CHARS = 64
"""A longer word is data, not a name: a key, a hash, an encoded image."""
_MAX_PARTS = 8

# A capital after a lower-case letter or a digit, or before a word. The capital comes first in the pattern because the
# regex engine can skip to it.
_JOINT = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?=[A-Z][a-z]{2}))")
_PART_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")


def split_name(word: str) -> list[str]:
    """Split `getUserName` into get, User, Name. Return an empty list for a word that is not joined by capitals."""
    if len(word) > _MAX_NAME_CHARS or not word.isascii() or not word.isalnum():
        return []
    parts = _PART_BOUNDARY.split(word)
    return parts if 1 < len(parts) <= _MAX_PARTS else []


def name_parts_in(text: str) -> str:
    """Return the parts of all names in a text that are joined by capitals, each name once."""
    names: dict[str, None] = {}
    end = 0
    for joint in _JOINT.finditer(text):
        if joint.start() < end:
            continue  # a further joint of the same name
        start = joint.start()
        while start > end and text[start - 1].isalnum() and text[start - 1].isascii():
            start -= 1
        name = _ALPHANUMERIC.match(text, start)
        if name:
            end = name.end()
            names[name.group()] = None
    return " ".join(" ".join(parts) for name in names if (parts := split_name(name)))


# segmenting

UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u3040-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "々〆〤"
)
# Patterns of characters beyond ASCII, compiled by `re` on first use: most queries need none of them.
_PICTOGRAMS = "[\u2190-\u2bff\U0001f000-\U0001faff]"
_UNBROKEN = "[^\x00-\x7f]{200,}"
"""Runs in which combining marks could pile up. Almost all writing has a space or other ASCII character before."""
_MAX_MARKS = 30
_COMPOSED_MARKS = "\u0f73\u0f75\u0f81"
"""Not combining marks by their class, but decomposed into them."""
_SELECTORS = "[\ufe00-\ufe0f\u200b-\u200d\u2060]"


@cache
def _unspaced_run() -> re.Pattern[str]:
    """Return the compiled pattern of a run. Compiling such wide ranges takes milliseconds, and ASCII needs none."""
    return re.compile(f"[{UNSPACED}]+")


def normalise(text: str) -> str:
    """Return one spelling for texts that look the same: composed (NFKC), with full-width letters narrowed."""
    if text.isascii():
        return text
    return re.sub(_SELECTORS, "", unicodedata.normalize("NFKC", re.sub(_UNBROKEN, _limit_marks, text)))


def _limit_marks(run: re.Match[str]) -> str:
    """Drop all but the first marks on a letter: no script needs more, and ordering them takes quadratic time."""
    characters: list[str] = []
    marks = 0
    for character in run.group():
        marks = marks + 1 if unicodedata.combining(character) or character in _COMPOSED_MARKS else 0
        if marks <= _MAX_MARKS:
            characters.append(character)
    return "".join(characters)


def segment(text: str) -> str:
    """Return the text as the full-text index stores it."""
    if text.isascii():
        return text
    text = re.sub(_PICTOGRAMS, lambda match: f" {match.group()} ", fold(normalise(text)))
    return _unspaced_run().sub(
        lambda match: f" {' '.join(match[0][at : at + 2] for at in range(len(match[0])))} ", text
    )


def segment_run(run: str) -> list[str]:
    """Return the words to look for in place of a run in a query: its pairs, without the lone last character."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def is_unspaced(text: str) -> bool:
    """Return whether a text consists of characters of unspaced scripts alone."""
    return not text.isascii() and _unspaced_run().fullmatch(text) is not None


def split_scripts(word: str) -> list[str]:
    """Split a word where an unspaced script begins or ends: 'GPT模型' is two words."""
    if word.isascii():
        return [word] if word else []
    parts: list[str] = []
    at = 0
    for run in _unspaced_run().finditer(word):
        if run.start() > at:
            parts.append(word[at : run.start()])
        parts.append(run.group())
        at = run.end()
    if at < len(word):
        parts.append(word[at:])
    return parts


# keys of names


def name_key(name: str) -> str:
    """Return the key of a note's name, a title or an alias: case, composition and white space do not count."""
    if not name.isascii():
        name = unicodedata.normalize("NFC", name)
    return " ".join(name.casefold().split())


def tag_key(tag: str) -> str:
    """Return the key of a tag: without '#', without empty levels. "" if nothing is left."""
    levels = (name_key(level) for level in tag.strip().lstrip("#").split("/"))
    return "/".join(level for level in levels if level)


def tag_levels(tag: str) -> list[str]:
    """Return a tag and the tags above it: area/home and area for area/home."""
    levels = [level for level in tag.split("/") if level]
    return ["/".join(levels[:count]) for count in range(len(levels), 0, -1)]
