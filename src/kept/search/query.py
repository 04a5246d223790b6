"""Parsing a query into terms. Every string is a valid query except an empty one.

A term is looked up as a whole: a word, a quoted phrase, an identifier such as `ref-0200-3` or `src/app.py` (whole, and
also its parts), a wildcard such as `kube*` (all words that begin so), or a run of an unspaced script (its pairs, and
the whole run if it may be a word).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from kept.base.records import Filter
from kept.base.values import frozen
from kept.base.words.segment import fold, is_unspaced, normalise, segment_run, split_name, split_scripts
from kept.base.words.stopwords import ENGLISH, is_stopword_run, stopwords_for
from kept.config.schema import QuerySettings
from kept.errors import EmptyQuery
from kept.index.sqlite.word_index import Phrase

MAX_TERMS, MAX_CHARS = 96, 4_000
"""More is a text that was pasted. Each term is looked up, and the first ones tell what it is about."""
_MAX_WORD_RUN = 12
"""A longer run of an unspaced script is a sentence, not a word."""

TermKind = Literal["word", "phrase", "identifier", "pair", "prefix", "wildcard"]
"""A prefix is a lone character of an unspaced script, which the index may only have as the start of a pair."""

_CONTROL = r"[\x00-\x1f\x7f-\x9f]+"
# Compiled by `re` on first use: most queries have neither quotes nor control characters.
_QUOTED = '"([^"]*)"|[“„”]([^“”"]*)[”“]|«([^»]*)»|»([^«]*)«|「([^」]*)」|『([^』]*)』'
_APOSTROPHES = str.maketrans(dict.fromkeys("’‘ʼ`´", "'"))
_PUNCTUATION = "'\"()[].,;:!?…"
_PARTICLES = frozenset({"down", "in", "off", "on", "out", "over", "up"})
"""Stopwords that are also half of a compound: back up, sign in, on call."""
_MIN_COMPOUND = 5


class Term(NamedTuple):
    """A part of a query that is looked up as a whole. A tuple, because terms are compared and looked up often."""

    text: str
    kind: TermKind

    @property
    def phrase(self) -> Phrase:
        """What is looked up in the word index."""
        return Phrase(self.text, self.kind in ("prefix", "wildcard"))


@frozen
class Expansion:
    """A term that stands for others of the query, which the notes may have in another spelling."""

    term: Term
    sources: tuple[str, ...]
    """Texts of the terms that it stands for."""
    replaces: str
    """The words of the query that it stands for, as they were written."""
    share: float
    """Weight, relative to the terms it stands for."""
    is_certain: bool = True
    """False for one of several guesses."""

    def __str__(self) -> str:
        return f"{self.term.text}{'*' if self.term.kind == 'wildcard' else ''} for {self.replaces}"


@frozen
class ParsedQuery:
    text: str
    terms: tuple[Term, ...]
    quoted: tuple[str, ...] = ()
    """The quoted texts, verbatim."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Adjacent words that may be written as one, such as time zone."""


@frozen
class IndexQuery:
    """Query of the index and its limits, with its texts parsed and its names looked up."""

    query: ParsedQuery
    settings: QuerySettings
    filters: Filter = Filter()


def parse_query(raw: str) -> ParsedQuery:
    """Return the query with its terms. Raise `EmptyQuery` for an empty string."""
    text = normalise(raw)
    if not text.isprintable():
        text = re.sub(_CONTROL, " ", text)
    text = text.strip()
    if not text:
        raise EmptyQuery("There is nothing to look for: the query is empty.")
    unquoted = text[:MAX_CHARS]
    quoted: list[str] = []
    if '"' in unquoted or not unquoted.isascii():
        groups = (next(filter(None, match.groups()), "").strip() for match in re.finditer(_QUOTED, unquoted))
        quoted = list(filter(None, groups))
        unquoted = re.sub(_QUOTED, " ", unquoted)
    unquoted = fold(unquoted)
    terms = [*_iter_terms(unquoted)]
    folded = {term.text: fold(term.text.lower()) for term in terms if term.kind == "word"}
    stopwords = stopwords_for(folded.values())
    terms = [term for term in terms if folded.get(term.text) not in stopwords]
    terms = [*(term for inside in quoted for term in _quoted_terms(inside)), *terms]
    terms = terms or [*_iter_terms(unquoted, with_stopwords=True)]
    terms = list(dict.fromkeys(terms))[:MAX_TERMS]
    pairs = _adjacent_words(unquoted, {word for term, word in folded.items() if word not in stopwords})
    return ParsedQuery(text, tuple(terms), tuple(dict.fromkeys(quoted)), pairs)


def make_phrase(text: str) -> Term | None:
    """Return a text as one phrase, word for word as the index stores it, or None if it has no words."""
    pieces = [piece for part in _split_like_index(fold(text)) for piece in split_scripts(part)]
    if not pieces:
        return None
    tokens: list[str] = []
    for piece in pieces[:-1]:
        # Of an unspaced piece that others follow, the index also has the last character alone.
        tokens += [*segment_run(piece), piece[-1]] if is_unspaced(piece) and len(piece) > 1 else [piece]
    last = pieces[-1]
    open_ended = len(last) == 1 and is_unspaced(last)  # the index may only have it as the start of a pair
    tokens += segment_run(last) if is_unspaced(last) else [last]
    return Term(" ".join(tokens), "prefix" if open_ended else "phrase" if len(tokens) > 1 else "word")


def _adjacent_words(text: str, content: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of adjacent words that may form a compound. At least one is of the query's ``content``."""
    pairs = []
    for left, right in pairwise(text.lower().replace("-", " ").split()[:MAX_TERMS]):
        left, right = left.lstrip(_PUNCTUATION), right.rstrip(_PUNCTUATION)
        if left not in content and right not in content:
            continue
        is_compound = all(word in content or word in _PARTICLES for word in (left, right))
        if is_compound and min(len(left), len(right)) > 1 and len(left) + len(right) >= _MIN_COMPOUND:
            pairs.append((left, right))
    return tuple(dict.fromkeys(pairs))


def _quoted_terms(inside: str) -> Iterator[Term]:
    phrase = make_phrase(inside)
    if phrase is None:
        return
    yield phrase
    if phrase.kind == "word" or any(is_unspaced(part) for part in _split_like_index(inside)):
        yield from _iter_terms(fold(inside))  # a word of an unspaced script is already a phrase


def _iter_terms(text: str, *, with_stopwords: bool = False) -> Iterator[Term]:
    """Yield the terms of a text in order.

    ``with_stopwords`` only concerns unspaced scripts, whose stopwords cannot be removed from the terms afterwards.
    """
    for token in text.translate(_APOSTROPHES).split():
        bare = token.strip("'")
        if bare.endswith(("'s", "'S")):
            bare = bare[:-2]
        if bare.lower() in ENGLISH:  # "don't" is one word, and a stopword
            yield Term(bare, "word")
            continue
        if "*" in bare and (start := _wildcard_start(bare)):
            yield Term(start, "wildcard")
            continue
        parts = _split_like_index(bare)
        if len(parts) > 1 and "'" not in bare:  # "l'avion" is two words, not a name
            yield Term(" ".join(parts), "identifier")
        for part in parts:
            names = split_name(part)
            first, last = (names[0], names[-1]) if names else ("", "")
            # Of two words, only some are also written apart: `getUser` is, `GitHub` and `macOS` are not.
            if len(names) > 2 or (len(first) > 1 and first.islower() and not last.isupper()):
                yield Term(" ".join(names), "identifier")
            for piece in split_scripts(part):
                if is_unspaced(piece):
                    yield from _run_terms(piece, with_stopwords=with_stopwords)
                else:
                    yield Term(piece, "word")


def _wildcard_start(token: str) -> str | None:
    """Return `kube` for `kube*`, or None if the token is not the start of a word and one asterisk."""
    start = token.strip(_PUNCTUATION)[:-1]
    is_start = len(start) > 1 and start.isalnum() and not any(map(is_unspaced, start))
    return start if is_start and token.strip(_PUNCTUATION) == f"{start}*" else None


def _split_like_index(word: str) -> list[str]:
    """Split a word where the index splits it: at anything but letters, marks, digits and pictograms."""
    categories = map(unicodedata.category, word)
    is_word = (category[0] in "LNM" or category in ("So", "Co") for category in categories)
    return "".join(character if keep else " " for character, keep in zip(word, is_word, strict=True)).split()


def _run_terms(run: str, *, with_stopwords: bool) -> Iterator[Term]:
    if len(run) == 1:
        yield Term(run, "prefix")
        return
    if is_stopword_run(run) and not with_stopwords:
        return
    pairs = segment_run(run)
    if 2 < len(run) <= _MAX_WORD_RUN:
        yield Term(" ".join(pairs), "phrase")
    for pair in pairs:
        yield Term(pair, "pair")
