"""From any string to terms. Every string is a valid query; an empty one is the only one refused.

A term is what is looked up: a word, a quoted phrase, an identifier such as `ref-0200-3` or `src/app.py` (kept whole,
and also in its parts), or a run of an unspaced script (as pairs, and whole where it may be a word).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal

from kept.chunking.segment import is_unspaced, normalise, segment_run, split_scripts
from kept.errors import EmptyQuery
from kept.search.stopwords import ENGLISH
from kept.values import frozen

MAX_TERMS = 96
MAX_CHARS = 4_000
_LONGEST_WORD_RUN = 12
"""A run of an unspaced script longer than this is a sentence, not a word."""

Kind = Literal["word", "phrase", "identifier", "pair", "prefix"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_QUOTED = re.compile(r'"([^"]*)"|“([^”]*)”')
_APOSTROPHES = re.compile("[’‘ʼ`´]")
_POSSESSIVE = re.compile(r"'s$", re.IGNORECASE)


@frozen
class Term:
    text: str
    kind: Kind

    @property
    def expression(self) -> str:
        """As FTS5 reads it. Quoted, so that nothing in it is taken for syntax."""
        quoted = '"' + self.text.replace('"', '""') + '"'
        return quoted + " *" if self.kind == "prefix" else quoted


@frozen
class ParsedQuery:
    text: str
    terms: tuple[Term, ...]


def parse_query(raw: str) -> ParsedQuery:
    text = _CONTROL.sub(" ", normalise(raw)).strip()
    if not text:
        raise EmptyQuery("There is nothing to look for: the query is empty.")
    shortened = text[:MAX_CHARS]
    terms = list(dict.fromkeys(_phrases(shortened)))
    words = list(dict.fromkeys(_words(_QUOTED.sub(" ", shortened))))
    telling = [term for term in words if term.text.lower() not in ENGLISH]
    terms += telling if telling or terms else words
    return ParsedQuery(text, tuple(terms[:MAX_TERMS]))


def _phrases(text: str) -> Iterator[Term]:
    for found in _QUOTED.finditer(text):
        inside = (found.group(1) or found.group(2) or "").strip()
        words = [word.text for word in _words(inside) if word.kind != "identifier"]
        if len(words) > 1:
            yield Term(" ".join(words), "phrase")
        elif words:
            yield from _words(inside)


def _words(text: str) -> Iterator[Term]:
    for chunk in _APOSTROPHES.sub("'", text).split():
        bare = _POSSESSIVE.sub("", chunk.strip("'"))
        if bare.lower() in ENGLISH:  # "don't" is one word, and says nothing
            yield Term(bare, "word")
            continue
        parts = _parts(bare)
        if len(parts) > 1:
            yield Term(" ".join(parts), "identifier")
        for part in parts:
            for piece in split_scripts(part):
                yield from _run(piece) if is_unspaced(piece) else (Term(piece, "word"),)


def _parts(word: str) -> list[str]:
    """A word parted at whatever the index parts it at: anything but letters, marks, digits and pictures."""
    return "".join(sign if _is_word_sign(sign) else " " for sign in word).split()


def _is_word_sign(sign: str) -> bool:
    if sign.isascii():
        return sign.isalnum()
    kind = unicodedata.category(sign)
    return kind[0] in "LNM" or kind in ("So", "Co")


def _run(run: str) -> Iterator[Term]:
    if len(run) == 1:
        yield Term(run, "prefix")
        return
    pairs = segment_run(run)
    if 2 < len(run) <= _LONGEST_WORD_RUN:
        yield Term(" ".join(pairs), "phrase")
    for pair in pairs:
        yield Term(pair, "pair")
