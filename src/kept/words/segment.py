"""Segmenting: the words of a text as the full-text index stores them.

SQLite's tokenizer splits at spaces. Thai, Lao, Khmer, Burmese, Chinese, Japanese and Korean are written without spaces,
or with endings attached, so runs of these scripts are cut into overlapping pairs of characters, in notes and in
queries: a word inside a sentence is then a phrase of pairs. The index also holds the last character of a run alone, so
that a query of one character matches as the prefix of a pair.

Example: "北京大学" is stored as "北京 京大 大学 学", and the query 京大学 is the phrase "京大 大学".

Letters are folded and names in code split on the way (`folding`, `identifiers`).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from kept.words.folding import fold
from kept.words.identifiers import name_parts_in

SEGMENTER_VERSION = 2
"""Increase it when the same text would give other words, so that existing indexes are rebuilt."""

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
    if not text.isascii():
        text = fold(normalise(text))
        text = re.sub(_PICTOGRAMS, lambda match: f" {match.group()} ", text)
        text = _unspaced_run().sub(lambda match: f" {' '.join(_indexed_pairs(match.group()))} ", text)
    return text


def segment_context(context: str, text: str) -> str:
    """Return a chunk's context as the full-text index stores it, with the parts of names in the chunk's text."""
    return f"{segment(context)} {name_parts_in(text)}".strip()


def _indexed_pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run))]


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
