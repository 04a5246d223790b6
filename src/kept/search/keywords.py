"""Keyword search: the best chunks by word, and how much of a query each of them has.

It is BM25, with scores that can be compared between queries. The store finds the best chunks. Their scores are computed
here, because the score of FTS5 depends on the query and vanishes in a small index. A term counts by its rarity (idf).
Each figure is a share of the most that the query could get: BM25 of the text (a chunk of mean length that has every
term once is at 1, before that is saturated into the range from 0 to 1), BM25 of its context, the share of the query in
the text, and the share of it in the text with its context. A term of the query may have other words that stand for it
(`expansion`). They count less, and of a term and its expansions the best counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from kept.base.records import Filter
from kept.base.values import frozen
from kept.base.words.equivalents import EQUIVALENTS
from kept.base.words.segment import segment
from kept.index.sqlite.phrases import CountedPhrase, KeywordMatch, PhraseCount
from kept.search.query import Expansion, ParsedQuery, Term

if TYPE_CHECKING:
    from kept.index.sqlite.word_index import WordIndex

K1 = 1.2
B = 0.6
STEEPNESS = 1.5
_MAX_COUNTED = 10_000
"""Rows that are counted to weigh a prefix."""
_MAX_PAIRS = 48
"""Pairs of characters of an unspaced script that are looked for. Of more, the rarest are: most are in many chunks, and
a sentence of Thai has fifty."""


@frozen
class WeightedTerm:
    term: Term
    idf: float
    rows: int
    """Number of chunks that have it."""


@frozen
class _Phrase:
    """A phrase of the full-text query: a term, or an expansion of it."""

    weighted: WeightedTerm
    source: WeightedTerm
    """The term of the query that it stands for: itself, or the one that it expands."""
    expansion: Expansion | None
    gain: float
    """Amount that counts towards the total of the query."""

    def lookup(self) -> CountedPhrase:
        return CountedPhrase(self.weighted.term.phrase, self.weighted.rows)


@frozen
class KeywordHit:
    row: int
    words: float
    """BM25 of the text."""
    around: float
    """BM25 of the context: headings, the date, neighbouring utterances."""
    coverage: float
    """Share of the query, weighted by rarity, in the text."""
    reach: float
    """Share of the query, weighted by rarity, in the text and the context together."""
    matched: tuple[str, ...]
    """Terms in the text or the context."""
    expansions: tuple[Expansion, ...] = ()
    """Words in the text or the context that stand for terms that it lacks."""


class KeywordSearch:
    """One query against the word index. Terms are weighted once, for finding and for scoring."""

    def __init__(self, words: WordIndex, query: ParsedQuery) -> None:
        self.words = words
        self.chunk_count = words.chunk_count()
        weighted = (_weigh(words, term, self.chunk_count) for term in query.terms)
        self.terms = _rarest_pairs([term for term in weighted if term is not None])
        expansions = self._weigh_expansions(query)
        if expansions:
            self.terms = [_replace_unknown(term, expansions) for term in self.terms]
        self.total_idf = sum(term.idf for term in self.terms)
        self._phrases = [phrase for term in self.terms for phrase in _phrases_of(term, expansions)]
        self._gains = [(phrase.gain, phrase.expansion, phrase.source.term.text) for phrase in self._phrases]
        self._has_expansions = bool(expansions)
        self._search = words.search([phrase.lookup() for phrase in self._phrases])

    def _weigh_expansions(self, query: ParsedQuery) -> list[tuple[Expansion, WeightedTerm]]:
        unknown = [term.term.text for term in self.terms if not term.rows and term.term.kind in ("word", "wildcard")]
        if not (unknown or self._has_other_words(query)):
            return []
        from kept.search.expansion import expand  # most queries do not need it

        weighted = [
            (item, _weigh(self.words, item.term, self.chunk_count)) for item in expand(self.words, query, unknown)
        ]
        return [(item, term) for item, term in weighted if term is not None and term.rows]

    def _has_other_words(self, query: ParsedQuery) -> bool:
        """Return whether a word of the query has equivalents or irregular forms, or the index has two adjacent words as
        one."""
        if any(term.term.text.lower() in EQUIVALENTS for term in self.terms):
            return True
        forms = self.words.irregular_forms
        if any(stem in forms for term in self.terms for stem in self.words.stems(term.term.text)):
            return True
        joined = " ".join(map("".join, query.pairs))
        return bool(joined) and bool(self.words.document_frequencies(self.words.stems(joined)))

    def find_best(self, limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 of text and context."""
        return self._search.find_best(limit, filters) if self._phrases else []

    def score_rows(self, best: Sequence[int], others: Iterable[int]) -> list[KeywordHit]:
        """Return the hits among the ``best`` rows, which `find_best` found, and others: chunks that are near in
        meaning may have some of the words too."""
        if not self._phrases:
            return []
        known = set(best)
        matches, mean_length = self._search.count(best, [row for row in dict.fromkeys(others) if row not in known])
        return [self._hit(match, mean_length) for match in matches]

    def _hit(self, match: KeywordMatch, mean_length: float) -> KeywordHit:
        words = around = coverage = reach = 0.0
        matched: list[str] = []
        expansions: dict[Expansion, None] = {}
        damping = K1 * (1 - B + B * match.length / max(1.0, mean_length))
        gains = self._gains
        for number, in_text, in_context in self._best_of_each(match.counts) if self._has_expansions else match.counts:
            gain, expansion, text = gains[number]
            if in_text:
                words += gain * in_text * (K1 + 1) / (in_text + damping)
                coverage += gain
            if in_context:
                around += gain * in_context * (K1 + 1) / (in_context + K1)
            reach += gain
            if expansion is None:
                matched.append(text)
            else:
                expansions[expansion] = None
        total = self.total_idf
        return KeywordHit(
            match.row,
            1 - math.exp(-STEEPNESS * (words / total)),  # saturated: from 0 to 1, in the same order
            1 - math.exp(-STEEPNESS * (around / total)),
            coverage / total,
            reach / total,
            tuple(matched),
            tuple(expansions),
        )

    def _best_of_each(self, counts: Iterable[PhraseCount]) -> Iterator[PhraseCount]:
        """Yield the best phrase for each term: one in the text before one in the context, then the one that counts
        most."""
        phrases = self._phrases
        for _, group in groupby(counts, key=lambda item: id(phrases[item[0]].source)):
            yield max(group, key=lambda item: (item[1] > 0, item[2] > 0, phrases[item[0]].gain))


def _rarest_pairs(terms: list[WeightedTerm]) -> list[WeightedTerm]:
    """Return the terms without the most common pairs above `_MAX_PAIRS`."""
    pairs = [term for term in terms if term.term.kind == "pair"]
    if len(pairs) <= _MAX_PAIRS:
        return terms
    common = {id(term) for term in sorted(pairs, key=lambda term: term.rows)[_MAX_PAIRS:]}
    return [term for term in terms if id(term) not in common]


def _phrases_of(term: WeightedTerm, expansions: Sequence[tuple[Expansion, WeightedTerm]]) -> list[_Phrase]:
    phrases = [_Phrase(term, term, None, term.idf)] if term.rows else []
    for expansion, weighted in expansions:
        if term.term.text in expansion.sources:
            phrases.append(_Phrase(weighted, term, expansion, expansion.share * min(term.idf, weighted.idf)))
    return phrases


def _replace_unknown(term: WeightedTerm, expansions: Sequence[tuple[Expansion, WeightedTerm]]) -> WeightedTerm:
    """Return a term that no chunk has with the rarity of the word that certainly stands for it, if there is one."""
    others = [
        weighted.idf
        for expansion, weighted in expansions
        if expansion.is_certain and term.term.text in expansion.sources
    ]
    return term if term.rows or not others else WeightedTerm(term.term, min(term.idf, max(others)), 0)


def _weigh(words: WordIndex, term: Term, chunk_count: int) -> WeightedTerm | None:
    stems = words.stems(term.text)
    if not stems:
        return None
    if term.kind in ("prefix", "wildcard"):
        rows = words.phrase_frequency(term.phrase, cap=_MAX_COUNTED)
    else:
        rows = min(words.document_frequency(stem) for stem in stems)
        if rows and len(stems) > 1:
            rows = words.phrase_frequency(term.phrase, cap=rows)
    # A word that is nowhere counts like one that is in one chunk: in a few notes its absence says little.
    known = max(1, rows)
    return WeightedTerm(term, math.log(1 + (max(chunk_count, known) - known + 0.5) / (known + 0.5)), rows)


def share_of_unknown_words(words: WordIndex, text: str) -> float:
    """Return the share of a text's words that no chunk has. Stopwords count: they tell its language best."""
    stems = set(words.stems(segment(text)))
    return 1.0 - len(words.document_frequencies(stems)) / len(stems) if stems else 0.0
