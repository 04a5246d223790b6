"""Expansion of a query: further terms for words that the notes have in another spelling.

A compound stands for its parts ("timezone" for "time zone"), and its parts for a compound that no chunk has. A word has
equivalents (k8s, Kubernetes) and irregular forms (run, ran). A word that no chunk has may be a typo, or longer or
shorter than the word in the notes.

Typos are compared with the index's own vocabulary. It holds stems, and a typo near the end of a word changes its stem,
so corrections of the whole word are stemmed and looked up, and the notes are asked for the spelling. All lookups of a
word are one statement. The module is imported only for queries that need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kept.base.words.equivalents import EQUIVALENTS
from kept.base.words.segment import fold, is_unspaced, segment
from kept.base.words.stopwords import ENGLISH
from kept.search.query import Expansion, ParsedQuery, Term
from kept.search.weights import BEGINNING_SHARE, COMPOUND_SHARE, EQUIVALENT_SHARE, FORM_SHARE, GUESS_SHARE, TYPO_SHARE

if TYPE_CHECKING:
    from kept.index.sqlite.word_index import WordIndex

MAX_UNKNOWN = 3
"""Unknown words that are expanded. In a longer query, one of them matters little."""
_MAX_GUESSES = 3
_MIN_TYPO, _MIN_CERTAIN_TYPO, _MIN_TWO_EDITS, _MAX_TYPO = 4, 5, 8, 24
"""Characters of a word: fewer have too many neighbours, more are data."""
_MIN_SUBSTITUTED = 6
"""Shorter words become other common words by one letter: oven and over, stop and shop."""
_MAX_SPELLINGS, _MAX_TEXTS = 8, 3
_MIN_PART = 2
_MAX_SPLITS = 3
_MIN_BEGINNING, _MIN_BEGINNING_SHARE = 5, 0.7
_MAX_CONTINUATIONS = 8
"""With more words that begin so, the beginning says too little."""
_SAME_START = 4
"""Characters at the start of a word in which two edits are not looked for, so that few stems have to be compared."""
_MAX_COMPARED = 1_000
_CERTAIN = (COMPOUND_SHARE, TYPO_SHARE)
"""Weights of what stands for an unknown word, and not for several that it may be."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


StandIn = tuple[Term, float]
"""A term for an unknown word, and its weight."""


def expand(words: WordIndex, query: ParsedQuery, unknown: Sequence[str]) -> list[Expansion]:
    """Return further terms for a query. ``unknown`` are the words of it that no chunk has."""
    quoted = {word for text in query.quoted for word in fold(text).split()}
    terms = [term for term in query.terms if term.kind in ("word", "wildcard") and term.text not in quoted]
    expansions = [*_compounds(words, query, terms), *_equivalents(words, terms)]
    done = {source for expansion in expansions for source in expansion.sources}
    missing = [term for term in terms if term.text in unknown and term.text not in done]
    for term in missing[:MAX_UNKNOWN]:
        expansions += words.remember(("unknown", term), partial(_for_unknown, words, term))
    return expansions


def _for_unknown(words: WordIndex, term: Term) -> list[Expansion]:
    word = fold(term.text).lower()
    if not word.isalpha() or not _MIN_TYPO <= len(word) <= _MAX_TYPO or is_unspaced(word):
        return []
    ways = (_beginning,) if term.kind == "wildcard" else (_parts, _one_edit, _beginning, _continuation, _more_edits)
    stand_ins = next(filter(None, (way(words, word) for way in ways)), [])
    return [Expansion(other, (term.text,), term.text, share, share in _CERTAIN) for other, share in stand_ins]


# compounds and equivalents


def _compounds(words: WordIndex, query: ParsedQuery, terms: Sequence[Term]) -> Iterator[Expansion]:
    """Yield the compounds of adjacent words that the index has."""
    text_of = {fold(term.text).lower(): term.text for term in terms}
    joined = {"".join(pair): pair for pair in query.pairs}
    for compound in _known(words, [word for word in joined if word not in text_of]):
        pair = joined[compound]
        sources = tuple(text_of[word] for word in pair if word in text_of)
        if sources:
            yield Expansion(Term(compound, "word"), sources, " ".join(pair), COMPOUND_SHARE)


def _equivalents(words: WordIndex, terms: Sequence[Term]) -> Iterator[Expansion]:
    present = {fold(term.text).lower() for term in terms}
    for term in terms:
        word = fold(term.text).lower()
        forms = words.irregular_forms.get("".join(words.stems(word)), ()) if term.kind == "word" else ()
        for others, share in ((EQUIVALENTS.get(word, ()), EQUIVALENT_SHARE), (forms, FORM_SHARE)):
            for other in _known(words, [other for other in others if other not in present]):
                yield Expansion(Term(other, "word"), (term.text,), term.text, share)


def _parts(words: WordIndex, word: str) -> list[StandIn]:
    """Return the two words that a compound consists of, if a chunk has them one after the other."""
    splits = [(word[:at], word[at:]) for at in range(_MIN_PART, len(word) - _MIN_PART + 1)]
    known = set(_known(words, {part for split in splits for part in split}))
    possible = [Term(" ".join(split), "phrase") for split in splits if known.issuperset(split)]
    # The longer the shorter part, the less likely the split is an accident.
    possible.sort(key=lambda term: -min(map(len, term.text.split())))
    for term in possible[:_MAX_SPLITS]:
        if words.phrase_frequency(term.phrase, cap=1):
            return [(term, COMPOUND_SHARE)]
    return []


def _known(words: WordIndex, candidates: Iterable[str]) -> list[str]:
    """Return those of the words that the index has, in any form."""
    stems = {word: words.stems(word) for word in candidates}
    frequencies = words.document_frequencies({stem[0] for stem in stems.values() if stem})
    return [word for word, stem in stems.items() if stem and stem[0] in frequencies]


# beginnings


def _beginning(words: WordIndex, word: str) -> list[StandIn]:
    """Return the longest beginning of a word that is a word of the index: postgres for postgresql."""
    shortest = max(_MIN_BEGINNING, round(_MIN_BEGINNING_SHARE * len(word)))
    beginnings = _known(words, [word[:length] for length in range(len(word) - 1, shortest - 1, -1)])
    spelling = _find_spelling(words, words.stems(beginnings[0])[0], word) if beginnings else None
    return [(Term(spelling, "word"), BEGINNING_SHARE)] if spelling else []


def _continuation(words: WordIndex, word: str) -> list[StandIn]:
    """Return the words of the index that begin with a word: physiotherapy for physio."""
    stem = "".join(words.stems(word))
    if len(stem) < _MIN_BEGINNING:
        return []
    count = len(words.stems_starting(stem, limit=_MAX_CONTINUATIONS + 1))
    return [(Term(word, "wildcard"), BEGINNING_SHARE)] if 0 < count <= _MAX_CONTINUATIONS else []


# typos


def _one_edit(words: WordIndex, word: str) -> list[StandIn]:
    """Return the words of the index that one edit makes of a word."""
    if not word.isascii():
        return []  # which letters to try depends on the language; `_more_edits` compares with the vocabulary instead
    edits = sorted({*iter_edits(word, substitute=len(word) >= _MIN_SUBSTITUTED)})
    stem_of = dict(zip(edits, words.stems(" ".join(edits)), strict=True))
    frequencies = words.document_frequencies(set(stem_of.values()))
    # Few people mistype the first letter, so a word with another one is only looked at if there is nothing better.
    same_start = {stem for edit, stem in stem_of.items() if edit[0] == word[0] and stem in frequencies}
    if not same_start and len(word) < _MIN_SUBSTITUTED:
        return []
    stems = sorted(same_start or frequencies, key=lambda stem: (-frequencies[stem], stem))
    is_certain = bool(same_start) and len(word) >= _MIN_CERTAIN_TYPO
    return _corrections(words, word, stems, is_certain=is_certain)


def _more_edits(words: WordIndex, word: str) -> list[StandIn]:
    """Return the words of the index that are at most two edits from a long word, and begin with the same letters."""
    stem = "".join(words.stems(word))
    most = 1 + (len(word) >= _MIN_TWO_EDITS)
    others = words.stems_starting(stem[:_SAME_START], limit=_MAX_COMPARED)
    # Lengths and letters tell most of them apart in less time than the distance.
    near = (other for other in others if abs(len(other) - len(stem)) <= most and len({*other} ^ {*stem}) <= 2 * most)
    distances = {other: edit_distance(stem, other) for other in near}
    least = min(distances.values(), default=most)
    stems = [other for other, distance in distances.items() if distance == least <= most]
    return _corrections(words, word, stems, is_certain=len(word) >= _MIN_CERTAIN_TYPO)


def _corrections(words: WordIndex, word: str, stems: Sequence[str], *, is_certain: bool) -> list[StandIn]:
    """Return a word of the notes for each of the first stems, if it is a few edits from ``word``.

    Stems alone do not tell: an edit makes "mooring" of "morning", whose stem is that of "moor".
    """
    most = 1 + (len(word) >= _MIN_TWO_EDITS)
    nearest = (_find_spelling(words, stem, word) for stem in stems[:_MAX_SPELLINGS])
    spellings = [spelling for spelling in nearest if spelling and edit_distance(spelling, word) <= most]
    share = TYPO_SHARE if is_certain and len(spellings) == 1 else GUESS_SHARE
    return [(Term(spelling, "word"), share) for spelling in spellings[:_MAX_GUESSES]]


def _find_spelling(words: WordIndex, stem: str, word: str) -> str | None:
    """Return the word of the notes that has this stem and is nearest to ``word``, in lower case."""
    start = re.compile(rf"\b{re.escape(stem[:3])}[^\W_]*")
    texts = words.texts_with(stem, limit=_MAX_TEXTS)
    spellings = {spelling for text in texts for spelling in start.findall(segment(text).lower())}
    spellings = {spelling for spelling in spellings - ENGLISH if words.stems(spelling) == [stem]}
    return min(spellings, key=lambda spelling: (edit_distance(spelling, word), spelling), default=None)


def iter_edits(word: str, *, substitute: bool) -> Iterator[str]:
    """Yield the words at a distance of one edit: a letter more or less, two swapped, or another letter instead."""
    for at in range(len(word) + 1):
        head, tail = word[:at], word[at:]
        yield from (head + letter + tail for letter in _LETTERS)
        if tail:
            yield head + tail[1:]
        if tail and substitute:
            yield from (head + letter + tail[1:] for letter in _LETTERS if letter != tail[0])
        if len(tail) > 1 and tail[0] != tail[1]:
            yield head + tail[1] + tail[0] + tail[2:]


def edit_distance(left: str, right: str) -> int:
    """Return the Damerau-Levenshtein distance in which no letter is edited twice."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for at, letter in enumerate(left, start=1):
        before, above, row = row, before, [at]
        for to, other in enumerate(right, start=1):
            cost = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != other))
            if min(at, to) > 1 and letter == right[to - 2] and other == left[at - 2]:
                cost = min(cost, above[to - 2] + 1)
            row.append(cost)
    return row[-1]
