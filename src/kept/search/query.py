"""From any string to terms. Every string is a valid query; an empty one is the only one refused.

A term is what is looked up: a word, a quoted phrase, an identifier such as `ref-0200-3` or `src/app.py` (kept whole,
and also in its parts), or a run of an unspaced script (as pairs, and whole where it may be a word).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

from kept.errors import EmptyQuery
from kept.values import frozen
from kept.words.folding import fold
from kept.words.identifiers import is_code_name, split_name
from kept.words.segment import is_unspaced, normalise, segment_run, split_scripts
from kept.words.stopwords import ENGLISH, is_stopword_run, stopwords_for

MAX_TERMS = 96
MAX_CHARS = 4_000
_LONGEST_WORD_RUN = 12
"""A run of an unspaced script longer than this is a sentence, not a word."""

Kind = Literal["word", "phrase", "identifier", "pair", "prefix"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_QUOTED = re.compile('"([^"]*)"|[“„”]([^“”"]*)[”“]|«([^»]*)»|»([^«]*)«|「([^」]*)」|『([^』]*)』')
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
    quoted: tuple[str, ...] = ()
    """What stood in quotes, as it stood there."""


def parse_query(raw: str) -> ParsedQuery:
    text = _CONTROL.sub(" ", normalise(raw)).strip()
    if not text:
        raise EmptyQuery("There is nothing to look for: the query is empty.")
    shortened = text[:MAX_CHARS]
    quoted = [inside.strip() for found in _QUOTED.finditer(shortened) if (inside := _inside(found)).strip()]
    terms = [term for inside in quoted for term in _quoted_terms(inside)]
    rest = fold(_QUOTED.sub(" ", shortened))
    terms += _telling([*_words(rest)])
    terms = terms or [*_words(rest, everything=True)]
    return ParsedQuery(text, tuple(dict.fromkeys(terms))[:MAX_TERMS], tuple(dict.fromkeys(quoted)))


def phrase_of(text: str) -> Term | None:
    """A text as one phrase, word for word as the index has it. None where it has no words."""
    pieces = [piece for part in _parts(fold(text)) for piece in split_scripts(part)]
    if not pieces:
        return None
    tokens = [token for piece in pieces[:-1] for token in _indexed(piece)]
    last = pieces[-1]
    open_ended = len(last) == 1 and is_unspaced(last)  # the beginning of a pair, which is all the index may have
    tokens += segment_run(last) if is_unspaced(last) else [last]
    return Term(" ".join(tokens), "prefix" if open_ended else "phrase" if len(tokens) > 1 else "word")


def _indexed(piece: str) -> list[str]:
    """A piece with something behind it: the index then has the last character of a run by itself as well."""
    return [*segment_run(piece), piece[-1]] if is_unspaced(piece) and len(piece) > 1 else [piece]


def _inside(found: re.Match[str]) -> str:
    return next((inside for inside in found.groups() if inside is not None), "")


def _quoted_terms(inside: str) -> Iterator[Term]:
    phrase = phrase_of(inside)
    if phrase is None:
        return
    yield phrase
    if phrase.kind == "word" or any(is_unspaced(part) for part in _parts(inside)):
        yield from _words(fold(inside))  # a word of an unspaced script is a phrase already


def _telling(words: Sequence[Term]) -> list[Term]:
    """The words that say what is looked for."""
    plain = {word.text: fold(word.text.lower()) for word in words if word.kind == "word"}
    stop_words = stopwords_for(plain.values())
    return [word for word in words if plain.get(word.text) not in stop_words]


def _words(text: str, *, everything: bool = False) -> Iterator[Term]:
    """``everything`` leaves in what says nothing in scripts without spaces, where it cannot be taken out afterwards."""
    for chunk in _APOSTROPHES.sub("'", text).split():
        bare = _POSSESSIVE.sub("", chunk.strip("'"))
        if bare.lower() in ENGLISH:  # "don't" is one word, and says nothing
            yield Term(bare, "word")
            continue
        parts = _parts(bare)
        if len(parts) > 1 and "'" not in bare:  # "l'avion" is two words and no name
            yield Term(" ".join(parts), "identifier")
        for part in parts:
            yield from _part(part, everything=everything)


def _part(part: str, *, everything: bool) -> Iterator[Term]:
    if is_code_name(part):
        yield Term(" ".join(split_name(part)), "identifier")
    for piece in split_scripts(part):
        if is_unspaced(piece):
            yield from _run(piece, everything=everything)
        else:
            yield Term(piece, "word")


def _parts(word: str) -> list[str]:
    """A word parted at whatever the index parts it at: anything but letters, marks, digits and pictures."""
    return "".join(sign if _is_word_sign(sign) else " " for sign in word).split()


def _is_word_sign(sign: str) -> bool:
    if sign.isascii():
        return sign.isalnum()
    kind = unicodedata.category(sign)
    return kind[0] in "LNM" or kind in ("So", "Co")


def _run(run: str, *, everything: bool) -> Iterator[Term]:
    if len(run) == 1:
        yield Term(run, "prefix")
        return
    if is_stopword_run(run) and not everything:
        return
    pairs = segment_run(run)
    if 2 < len(run) <= _LONGEST_WORD_RUN:
        yield Term(" ".join(pairs), "phrase")
    for pair in pairs:
        yield Term(pair, "pair")
