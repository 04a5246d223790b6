"""Keyword search: BM25, with scores that can be compared between queries.

SQLite finds the best chunks. Their scores are computed here, because SQLite's own score depends on the query and
vanishes in a small index. A term counts by its rarity (idf). Each figure is a share of the most that the query could
get: BM25 of the text (a chunk of mean length that has every term once is at 1, before that is saturated into the range
from 0 to 1), BM25 of its context, the share of the query in the text, and the share of it in the text with its context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kept.records import Filter
from kept.search.query import ParsedQuery, Term
from kept.store.index import KeywordMatch, WordIndex
from kept.values import frozen

K1 = 1.2
B = 0.6
CONTEXT_WEIGHT = 0.5
"""Weight of a word in the context of a chunk, relative to one in its text, when SQLite picks the best chunks."""
STEEPNESS = 1.5
_FEW_MATCHES = 4_000
ROWS_BUDGET = 10_000
"""With more rows to rank than this, only rows with one of the rarer terms are looked at."""


@frozen
class WeightedTerm:
    term: Term
    idf: float
    rows: int
    """Number of chunks that have it."""


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


class KeywordSearch:
    """One query against the word index. Terms are weighted once, for finding and for scoring."""

    def __init__(self, words: WordIndex, query: ParsedQuery, *, match_all: bool) -> None:
        self.words = words
        self.match_all = match_all
        self.chunk_count = words.chunk_count()
        weighted = (_weigh(words, term, self.chunk_count) for term in query.terms)
        self.terms = [term for term in weighted if term is not None]
        self.present = [term for term in self.terms if term.rows > 0]
        self.total_idf = sum(term.idf for term in self.terms)

    def find_best(self, limit: int, filters: Filter) -> list[KeywordHit]:
        """Return the best chunks by BM25 of text and context."""
        if not self._can_match():
            return []
        expression, first = self._best_expression()
        phrases = range(first, first + len(self.present))
        matches, mean_length = self.words.match(
            expression, phrases=phrases, weights=(1.0, CONTEXT_WEIGHT), limit=limit, filters=filters
        )
        return [self._hit(match, mean_length) for match in matches]

    def score_rows(self, rows: Sequence[int]) -> list[KeywordHit]:
        """Return the hits among these rows: chunks that are near in meaning may have some of the words too."""
        if not rows or not self._can_match():
            return []
        is_selective = sum(term.rows for term in self.present) <= _FEW_MATCHES
        matches, mean_length = self.words.match_rows(_join(self.present, self._operator), rows, few=is_selective)
        return [self._hit(match, mean_length) for match in matches]

    def _can_match(self) -> bool:
        return len(self.present) == len(self.terms) > 0 if self.match_all else bool(self.present)

    @property
    def _operator(self) -> str:
        return " AND " if self.match_all else " OR "

    def _best_expression(self) -> tuple[str, int]:
        """Return the FTS5 expression, and the number of the first phrase in it that counts for the score."""
        everything = _join(self.present, self._operator)
        rare_terms = [] if self.match_all else self._rare_terms()
        if not rare_terms:
            return everything, 0
        return f"({_join(rare_terms, ' OR ')}) AND ({everything})", len(rare_terms)

    def _rare_terms(self) -> list[WeightedTerm]:
        """Return the rarest terms whose rows fit the budget, or an empty list if all terms fit it."""
        if sum(term.rows for term in self.present) <= ROWS_BUDGET:
            return []
        rare_terms: list[WeightedTerm] = []
        rows = 0
        for term in sorted(self.present, key=lambda term: term.rows):
            if rare_terms and rows + term.rows > ROWS_BUDGET:
                break
            rare_terms.append(term)
            rows += term.rows
        return rare_terms if len(rare_terms) < len(self.present) else []

    def _hit(self, match: KeywordMatch, mean_length: float) -> KeywordHit:
        words = around = coverage = reach = 0.0
        matched: list[str] = []
        damping = K1 * (1 - B + B * match.length / max(1.0, mean_length))
        for weighted, (in_text, in_context) in zip(self.present, match.counts, strict=True):
            if in_text:
                words += weighted.idf * in_text * (K1 + 1) / (in_text + damping)
                coverage += weighted.idf
            if in_context:
                around += weighted.idf * in_context * (K1 + 1) / (in_context + K1)
            if in_text or in_context:
                reach += weighted.idf
                matched.append(weighted.term.text)
        total = self.total_idf
        return KeywordHit(
            match.row,
            saturate(words / total),
            saturate(around / total),
            coverage / total,
            reach / total,
            tuple(matched),
        )


def saturate(share: float) -> float:
    """Map 0 and above to the range from 0 to 1, keeping the order."""
    return 1 - math.exp(-STEEPNESS * share)


def _join(terms: Sequence[WeightedTerm], operator: str) -> str:
    return operator.join(weighted.term.expression for weighted in terms)


def _weigh(words: WordIndex, term: Term, chunk_count: int) -> WeightedTerm | None:
    stems = words.stems(term.text)
    if not stems:
        return None
    rows = _count_rows(words, term, stems)
    # A word that is nowhere counts like one that is in one chunk: in a few notes its absence says little.
    known = max(1, rows)
    return WeightedTerm(term, math.log(1 + (max(chunk_count, known) - known + 0.5) / (known + 0.5)), rows)


def _count_rows(words: WordIndex, term: Term, stems: list[str]) -> int:
    if term.kind == "prefix":
        return words.phrase_frequency(term.expression, cap=ROWS_BUDGET)
    rows = min(words.document_frequency(stem) for stem in stems)
    if len(stems) == 1 or rows == 0:
        return rows
    return words.phrase_frequency(term.expression, cap=rows)
