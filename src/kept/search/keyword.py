"""The keyword side: BM25, with a score that means the same for every query.

SQLite finds the best chunks; what their words are worth is computed here, because its own score cannot be compared
between queries and vanishes in a small index. A term counts by how rare it is. Each figure is a share of what the
query could have: how much the words say in the text (a chunk of mean length that has every term once is at 1 before
that is bent into the range from 0 to 1), the same in what stands around it, how much of the query the text has at
all, and how much of it the text has together with what stands around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kept.records import Filter
from kept.search.query import ParsedQuery, Term
from kept.store.words import KeywordMatch, WordIndex
from kept.values import frozen

K1 = 1.2
B = 0.6
CONTEXT_WEIGHT = 0.5
"""What a word in the headings above a chunk counts, against one in its text."""
STEEPNESS = 1.5
_FEW_MATCHES = 4_000
ROWS_BUDGET = 10_000
"""Above this many rows to rank, only those that have one of the rarer terms are looked at."""


@frozen
class WeightedTerm:
    term: Term
    idf: float
    rows: int


@frozen
class KeywordHit:
    row: int
    words: float
    """How much the text says of the query, often and in few words counting more."""
    around: float
    """The same of its context: headings, the date, neighbouring turns."""
    coverage: float
    """Which share of the query, by rarity, the text has."""
    reach: float
    """Which share of it the text and its context have together."""
    matched: tuple[str, ...]
    """The terms that it has, in the text or around it."""


class KeywordSearch:
    """One query against the word index. Terms are weighed once and used for finding and for scoring."""

    def __init__(self, words: WordIndex, query: ParsedQuery, *, match_all: bool) -> None:
        self.words = words
        self.match_all = match_all
        self.chunks = words.chunk_count()
        self.terms = [w for term in query.terms if (w := _weigh(words, term, self.chunks)) is not None]
        self.present = [w for w in self.terms if w.rows > 0]
        self.total_idf = sum(w.idf for w in self.terms)

    def best(self, limit: int, filters: Filter) -> list[KeywordHit]:
        if not self._can_match():
            return []
        expression, first = self._expression()
        phrases = range(first, first + len(self.present))
        matches, mean = self.words.match(
            expression, phrases=phrases, weights=(1.0, CONTEXT_WEIGHT), limit=limit, filters=filters
        )
        return [self._hit(m, mean) for m in matches]

    def score_rows(self, rows: Sequence[int]) -> list[KeywordHit]:
        """The scores of given rows: what the vector side found may have some of the words too."""
        if not rows or not self._can_match():
            return []
        joint = " AND " if self.match_all else " OR "
        expression = joint.join(w.term.expression for w in self.present)
        few = sum(w.rows for w in self.present) <= _FEW_MATCHES
        matches, mean = self.words.match_rows(expression, rows, few=few)
        return [self._hit(m, mean) for m in matches]

    def _can_match(self) -> bool:
        return len(self.present) == len(self.terms) > 0 if self.match_all else bool(self.present)

    def _expression(self) -> tuple[str, int]:
        """What SQLite is asked, and the number of its first phrase that counts."""
        expressions = [w.term.expression for w in self.present]
        if self.match_all:
            return " AND ".join(expressions), 0
        everything = " OR ".join(expressions)
        rare = self._rarest()
        if not rare:
            return everything, 0
        return f"({' OR '.join(w.term.expression for w in rare)}) AND ({everything})", len(rare)

    def _rarest(self) -> list[WeightedTerm]:
        """The rarer terms whose rows are within the budget, or nothing where all of them are."""
        if sum(w.rows for w in self.present) <= ROWS_BUDGET:
            return []
        rare: list[WeightedTerm] = []
        rows = 0
        for weighed in sorted(self.present, key=lambda w: w.rows):
            if rare and rows + weighed.rows > ROWS_BUDGET:
                break
            rare.append(weighed)
            rows += weighed.rows
        return rare if len(rare) < len(self.present) else []

    def _hit(self, match: KeywordMatch, mean_length: float) -> KeywordHit:
        words = around = coverage = reach = 0.0
        matched: list[str] = []
        damping = K1 * (1 - B + B * match.length / max(1.0, mean_length))
        for weighed, (in_text, in_context) in zip(self.present, match.counts, strict=True):
            if in_text:
                words += weighed.idf * in_text * (K1 + 1) / (in_text + damping)
                coverage += weighed.idf
            if in_context:
                around += weighed.idf * in_context * (K1 + 1) / (in_context + K1)
            if in_text or in_context:
                reach += weighed.idf
                matched.append(weighed.term.text)
        whole = self.total_idf
        return KeywordHit(
            match.row, bend(words / whole), bend(around / whole), coverage / whole, reach / whole, tuple(matched)
        )


def bend(fraction: float) -> float:
    """From 0 and up to 0…1, keeping the order."""
    return 1 - math.exp(-STEEPNESS * fraction)


def _rows_with(words: WordIndex, term: Term, stems: list[str]) -> int:
    if term.kind == "prefix":
        return words.phrase_frequency(term.expression, cap=ROWS_BUDGET)
    rows = min(words.document_frequency(stem) for stem in stems)
    if len(stems) == 1 or rows == 0:
        return rows
    return words.phrase_frequency(term.expression, cap=rows)


def _weigh(words: WordIndex, term: Term, chunks: int) -> WeightedTerm | None:
    stems = words.stems(term.text)
    if not stems:
        return None
    rows = _rows_with(words, term, stems)
    # A word that stands nowhere counts like one that stands once: in a few notes its absence says little.
    known = max(1, rows)
    return WeightedTerm(term, math.log(1 + (max(chunks, known) - known + 0.5) / (known + 0.5)), rows)
