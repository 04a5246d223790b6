"""Full-text search: which chunks have which words, how often, and how rare a word is. A query is a list of phrases.

SQLite has no stored frequency of a word: it counts the chunks in the list of the word, each time. A process that
searches often keeps what it has counted until the index changes, and ranks in memory (`word_lists`). Which words no
chunk has is known beyond a write of its own: they are asked for most, because there are hundreds of ways to correct a
word, and a new chunk tells its words.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import apsw

from kept.base.records import Filter
from kept.base.sqlite import pack_rows
from kept.base.values import frozen
from kept.base.words.equivalents import IRREGULAR_FORMS
from kept.index.sqlite.filter_sql import filter_sql
from kept.index.sqlite.vectors import CHUNK_ORDER

if TYPE_CHECKING:
    from kept.index.sqlite.word_lists import ListedPhraseSearch, WordLists

# Weights of a word in the text and in the context of a chunk when the best chunks are picked.
TEXT_WEIGHT, CONTEXT_WEIGHT = 1.0, 0.5
# Rows with a phrase of the query, up to which reading them all is faster than looking up each candidate.
ONE_PASS = 25_000
# With more rows to rank than this, only rows with one of the rarer phrases are looked at.
ROWS_BUDGET = 6_000

# Number of a phrase in a query, and how often the text and the context of a chunk have it.
PhraseCount = tuple[int, int, int]


class Phrase(NamedTuple):
    """Words that stand one after the other. A tuple, because phrases are compared and looked up often."""

    text: str
    is_prefix: bool = False
    """True if the last word may go on."""


@frozen
class CountedPhrase:
    """A phrase of a query with the number of chunks that have it."""

    phrase: Phrase
    rows: int


@frozen
class KeywordMatch:
    """A chunk with at least one of the phrases of a query."""

    row: int
    counts: tuple[PhraseCount, ...]
    """The phrases that it has, in order."""
    length: int


def rarest(phrases: Iterable[CountedPhrase], budget: int) -> list[CountedPhrase]:
    """Return the rarest phrases whose rows fit the budget, rarest first, and at least one."""
    chosen: list[CountedPhrase] = []
    rows = 0
    for phrase in sorted(phrases, key=lambda phrase: phrase.rows):
        if chosen and rows + phrase.rows > budget:
            break
        chosen.append(phrase)
        rows += phrase.rows
    return chosen


class PhraseSearch:
    """The phrases of one query. A chunk must have any of them."""

    def __init__(self, words: WordIndex, phrases: Sequence[CountedPhrase], *, rows_budget: int = ROWS_BUDGET) -> None:
        self._words = words
        self._expression = either(phrases)
        self._rows = sum(phrase.rows for phrase in phrases)
        self._rare_expression, self._rare_count = "", 0
        """Matches only rows with one of the rarer phrases, and their number, which are before the others in it."""
        if self._rows > rows_budget:
            rare = rarest(phrases, rows_budget)
            if len(rare) < len(phrases):
                self._rare_expression, self._rare_count = f"({either(rare)}) AND ({self._expression})", len(rare)

    def find_best(self, limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 of text and context."""
        expression = self._rare_expression if self._rare_count else self._expression
        weights = (TEXT_WEIGHT, CONTEXT_WEIGHT)
        return self._words.best_rows(expression, weights=weights, limit=limit, filters=filters)

    def count(self, best: Sequence[int], others: Sequence[int]) -> tuple[list[KeywordMatch], float]:
        """Return how often rows have each phrase, without rows that have none, and the mean length of a chunk.

        ``best`` are rows that `find_best` returned.
        """
        in_one_pass, count = self._rows <= ONE_PASS, self._words.count_phrases
        if in_one_pass or not self._rare_count:
            return count(self._expression, [*best, *others], in_one_pass=in_one_pass)
        matches, mean_length = count(self._rare_expression, best, in_one_pass=True, first=self._rare_count)
        further, other_mean = count(self._expression, others, in_one_pass=False)
        return matches + further, max(mean_length, other_mean)


def quote(phrase: Phrase) -> str:
    """Return a phrase, quoted so that no part of it is read as syntax."""
    quoted = '"' + phrase.text.replace('"', '""') + '"'
    return quoted + " *" if phrase.is_prefix else quoted


def either(phrases: Iterable[CountedPhrase]) -> str:
    """Return the expression that matches chunks with any of the phrases."""
    return " OR ".join(quote(phrase.phrase) for phrase in phrases)


# Name and arguments of the tokenizer of FTS5 that makes stems of words.
TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So"])
_MAX_REMEMBERED = 20_000
T = TypeVar("T")


class WordIndex:
    """Words of the live chunks."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self._remembered: dict[Hashable, Any] = {}
        self._absent: set[str] = set()
        """Stems that no chunk has."""
        self._state = (0, 0)
        """Numbers of changes by other connections and by this one, up to which both are true."""
        db.register_fts5_function("phrase_counts", _phrase_counts)
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'chunks_fts', 'row')")
        db.execute("CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab('main', 'chunks_fts', 'instance')")
        self._tokenizer = db.fts5_tokenizer(*TOKENIZER)

    @cached_property
    def lists(self) -> WordLists:
        """The same in memory, for a process that keeps searching and has imported numpy."""
        from kept.index.sqlite.word_lists import WordLists

        return WordLists(self)

    def stems(self, text: str) -> list[str]:
        """Return the words of a text as the index stores them."""
        tokens: Any = self._tokenizer(text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_QUERY, None)
        return [token[2] for token in tokens]

    @cached_property
    def irregular_forms(self) -> dict[str, tuple[str, ...]]:
        """The other forms of irregular English words, by stem: running and runs have those of run."""
        return dict(zip(self.stems(" ".join(IRREGULAR_FORMS)), IRREGULAR_FORMS.values(), strict=True))

    def document_frequencies(self, stems: Iterable[str]) -> dict[str, int]:
        """Return how many chunks contain each stem, without those that none contains."""
        known = self.remember("stems", dict[str, int])
        wanted = set(stems) - self._absent
        if missing := wanted.difference(known):
            query = "SELECT term, doc FROM temp.vocabulary WHERE term IN (SELECT value FROM json_each(?))"
            rows: Iterable[Any] = self.db.execute(query, (json.dumps([*missing]),))
            known.update(rows)
            self._absent |= missing.difference(known)
        return {stem: known[stem] for stem in wanted if stem in known}

    def stems_starting(self, start: str, *, limit: int) -> list[str]:
        """Return the first stems of the index that begin with a text, in the order of their characters."""
        query = "SELECT term FROM temp.vocabulary WHERE term >= ? AND term < ? LIMIT ?"
        return [stem for (stem,) in self.db.execute(query, (start, f"{start}\U0010ffff", limit))]

    def texts_with(self, stem: str, *, limit: int) -> list[str]:
        """Return the texts of some chunks that contain a stem, each with its headings and path.

        A stem cannot be looked up by a full-text query, which would stem it again.
        """
        query = (
            "SELECT DISTINCT chunks.text || char(10) || heading || char(10) || path"
            " FROM temp.occurrences JOIN chunks ON chunks.row = occurrences.doc WHERE term = ? LIMIT ?"
        )
        return [text for (text,) in self.db.execute(query, (stem, limit))]

    def phrase_frequency(self, phrase: Phrase, *, cap: int) -> int:
        """Return how many chunks contain a phrase, at most ``cap``. The frequencies of its words do not tell."""
        query = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
        return self.remember((phrase, cap), lambda: int(self.db.execute(query, (quote(phrase), cap)).get))

    def chunk_count(self) -> int:
        return self.remember("chunks", lambda: int(self.db.execute("SELECT count(*) FROM chunks").get))

    def remember(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return a value that was worked out in the current state of the index, or work it out."""
        if key not in self._remembered:
            self._remembered[key] = work_out()
        value: T = self._remembered[key]
        return value

    def refresh(self) -> None:
        """Forget what is not true any more. Called when a transaction begins to read."""
        # The pragma begins to read: `Connection.data_version` does not, and would report the state of the last read.
        state = int(self.db.execute("PRAGMA data_version").get), self.db.total_changes()
        if state[0] != self._state[0] or len(self._absent) > _MAX_REMEMBERED:
            self._absent = set()
        if state != self._state or len(self._remembered) > _MAX_REMEMBERED:
            self._remembered, self._state = {}, state

    def take_in(self, new_texts: Sequence[str]) -> None:
        """Take in the words of chunks that this connection has written."""
        if self._absent:
            self._absent.difference_update(self.stems("\n".join(new_texts)))

    def forget(self) -> None:
        """Forget everything, after a rebuild."""
        self._remembered, self._absent = {}, set()

    def search(self, phrases: Sequence[CountedPhrase]) -> PhraseSearch | ListedPhraseSearch:
        """Begin a search for any of the phrases."""
        if "numpy" not in sys.modules:  # importing numpy takes longer than a search
            return PhraseSearch(self, phrases)
        from kept.index.sqlite.word_lists import ListedPhraseSearch

        return ListedPhraseSearch(self.lists, phrases)

    def rows_with_every(
        self, phrases: Sequence[Phrase], *, limit: int, filters: Filter, in_context: bool = False
    ) -> list[int]:
        """Return the best chunks that have every phrase, in their context if ``in_context`` is set, best first."""
        expression = " AND ".join(map(quote, phrases))
        expression = f"context : ({expression})" if in_context else expression
        return self.best_rows(expression, weights=(1.0, 1.0), limit=limit, filters=filters)

    def best_rows(self, expression: str, *, weights: tuple[float, float], limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25, best first. Equal ones at the end: the newest, then by path and line."""
        rank = f"bm25(chunks_fts, {weights[0]}, {weights[1]})"
        join = " JOIN chunks c ON c.row = chunks_fts.rowid"
        where, values = filter_sql(filters) if filters else ("1", [])
        select = f"SELECT chunks_fts.rowid, {rank} AS score FROM chunks_fts"
        condition = f" WHERE {where} AND chunks_fts MATCH ?"
        # Sorted by the function: with `ORDER BY rank`, FTS5 would read all rows twice.
        ranked: list[Any] = self.db.execute(
            f"{select}{join if filters else ''}{condition} ORDER BY score LIMIT ?", (*values, expression, limit + 1)
        ).fetchall()
        if len(ranked) > limit and ranked[-1][1] == ranked[-2][1]:
            last = ranked[-1][1]
            ranked = [row for row in ranked if row[1] != last]
            ranked += self.db.execute(
                f"{select}{join}{condition} AND {rank} = ? ORDER BY c.timestamp DESC, {CHUNK_ORDER} LIMIT ?",
                (*values, expression, last, limit - len(ranked)),
            )
        return [row for row, _ in ranked[:limit]]

    def count_phrases(
        self, expression: str, rows: Iterable[int], *, in_one_pass: bool, first: int = 0
    ) -> tuple[list[KeywordMatch], float]:
        """Return how often those of the given rows that match have each phrase of the expression, from the ``first``
        on, and the mean length of a chunk in words.

        Unless very many rows match, it is faster to read them all in one pass than to look up each given row. The plus
        makes SQLite do that.
        """
        rowid = "+rowid" if in_one_pass else "rowid"
        matches = self.db.execute(
            "SELECT rowid, phrase_counts(chunks_fts) FROM chunks_fts"
            f" WHERE chunks_fts MATCH ? AND {rowid} IN (SELECT value FROM json_each(?))",
            (expression, pack_rows(rows)),
        )
        return unpack_counts(matches, first)


def unpack_counts(rows: Iterable[Sequence[Any]], first: int = 0) -> tuple[list[KeywordMatch], float]:
    """Return the rows with their counts, from the ``first`` phrase on, and the mean length of a chunk in words."""
    matches: list[KeywordMatch] = []
    mean = 1.0
    for row, packed in rows:
        length, total, chunks, *numbers = array("I", packed)
        mean = total / max(1, chunks)
        pairs = zip(numbers[2 * first :: 2], numbers[2 * first + 1 :: 2], strict=True)
        counts = [(number, text, context) for number, (text, context) in enumerate(pairs) if text or context]
        matches.append(KeywordMatch(row, tuple(counts), length))
    return matches, mean


def _phrase_counts(api: apsw.FTS5ExtensionApi, /, *_: Any) -> bytes:
    """Return the numbers that BM25 needs for one row, packed: its length, the sum of all lengths, the number of rows,
    and for each phrase how often the text and the context contain it. Called only for rows that are returned."""
    numbers = [api.column_size(0), min(api.column_total_size(0), 0xFFFFFFFF), api.row_count]
    for phrase in range(api.phrase_count):
        text, context = api.phrase_locations(phrase)
        numbers += (len(text), len(context))
    return array("I", numbers).tobytes()
