"""Words for the full-text index.

SQLite's tokenizer parts words at spaces. Thai, Lao, Khmer, Burmese, Chinese, Japanese and Korean are written without
them, or with endings glued on, so runs of these scripts are cut into overlapping pairs of characters here, on both
sides: a word inside a sentence is then a phrase of pairs. The last character of a run also stands alone, so that a
single character is found as the beginning of a pair.

Letters are folded on the way, and names in code taken apart (`folding`, `identifiers`).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from kept.chunking.folding import fold
from kept.chunking.identifiers import name_parts_in

SEGMENTER_VERSION = 2
"""Raised when the same text would give other words, so that existing indexes are rebuilt."""

UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u3040-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "々〆〤"
)
_PICTURES = re.compile("[\u2190-\u2bff\U0001f000-\U0001faff]")
_UNBROKEN = re.compile("[^\x00-\x7f]{200,}")
"""Where a run of marks could be long. Nearly all writing has a space or a sign of ASCII before that."""
_MAX_MARKS = 30
_MARKS_IN_DISGUISE = "\u0f73\u0f75\u0f81"
"""Letters by their class, which are taken apart into marks."""
_SELECTORS = re.compile("[\ufe00-\ufe0f\u200b-\u200d\u2060]")


@cache
def _runs() -> re.Pattern[str]:
    """Compiled when it is first needed: such wide ranges take milliseconds, and ASCII text needs none of them."""
    return re.compile(f"[{UNSPACED}]+")


def normalise(text: str) -> str:
    """One spelling for what looks the same: composed, with full-width letters narrowed."""
    if text.isascii():
        return text
    return _SELECTORS.sub("", unicodedata.normalize("NFKC", _UNBROKEN.sub(_with_fewer_marks, text)))


def _with_fewer_marks(run: re.Match[str]) -> str:
    """Drop all but the first marks on a letter: no script has so many, and ordering them takes quadratic time."""
    kept: list[str] = []
    marks = 0
    for sign in run.group():
        marks = marks + 1 if unicodedata.combining(sign) or sign in _MARKS_IN_DISGUISE else 0
        if marks <= _MAX_MARKS:
            kept.append(sign)
    return "".join(kept)


def segment(text: str) -> str:
    """The text as the full-text index stores it."""
    if not text.isascii():
        text = fold(normalise(text))
        text = _PICTURES.sub(lambda found: f" {found.group()} ", text)
        text = _runs().sub(lambda found: f" {' '.join(_pairs(found.group()))} ", text)
    return text


def segment_context(context: str, text: str) -> str:
    """The same for what a chunk is found by besides its text, the parts of names in its text among it."""
    return f"{segment(context)} {name_parts_in(text)}".strip()


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run))]


def segment_run(run: str) -> list[str]:
    """The words a run in a query stands for: all of its pairs, and not the lone last character."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def is_unspaced(text: str) -> bool:
    return not text.isascii() and _runs().fullmatch(text) is not None


def split_scripts(word: str) -> list[str]:
    """A word parted where an unspaced script begins or ends: 'GPT模型' is two words."""
    if word.isascii():
        return [word] if word else []
    parts: list[str] = []
    at = 0
    for found in _runs().finditer(word):
        if found.start() > at:
            parts.append(word[at : found.start()])
        parts.append(found.group())
        at = found.end()
    if at < len(word):
        parts.append(word[at:])
    return parts
