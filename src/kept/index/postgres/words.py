"""Words of the live chunks in a database: how rare a stem is, and which chunks have the phrases of a query.

The server finds the chunks by their stems (GIN) and ranks them by BM25, computed as SQLite computes it: the same
numbers in the same order of additions. What is known of a stem is kept until the index changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from kept.base.records import Filter
from kept.base.values import frozen
from kept.base.words.equivalents import IRREGULAR_FORMS
from kept.index.postgres.filter_sql import filter_sql
from kept.index.postgres.stems import stems_of
from kept.index.sqlite.word_index import (
    CONTEXT_WEIGHT,
    ROWS_BUDGET,
    TEXT_WEIGHT,
    CountedPhrase,
    KeywordMatch,
    Phrase,
    rarest,
)

if TYPE_CHECKING:
    from kept.index.postgres.index import PostgresIndex

T = TypeVar("T")

_MAX_REMEMBERED = 20_000
_MIN_IDF = 1e-6
_ANYTHING = Filter()


@frozen
class _Known:
    id: int
    docs: int


@frozen
class PhraseIds:
    """A phrase as ids of stems. The last place of a prefix has those of all stems that begin so."""

    places: tuple[tuple[int, ...], ...]

    @property
    def stem(self) -> int | None:
        """The stem of a phrase of one word, which is counted in advance."""
        return self.places[0][0] if len(self.places) == 1 and len(self.places[0]) == 1 else None


class PostgresWords:
    def __init__(self, index: PostgresIndex) -> None:
        self._index = index
        self._remembered: dict[Hashable, Any] = {}
        self._known: dict[str, _Known | None] = {}
        self._version: tuple[int, int] | None = None

    def stems(self, text: str) -> list[str]:
        return stems_of(text)

    @cached_property
    def irregular_forms(self) -> dict[str, tuple[str, ...]]:
        return dict(zip(self.stems(" ".join(IRREGULAR_FORMS)), IRREGULAR_FORMS.values(), strict=True))

    def document_frequencies(self, stems: Iterable[str]) -> dict[str, int]:
        """Return how many chunks contain each stem, without those that none contains."""
        known_stems = self._find(stems)
        return {stem: known.docs for stem, known in known_stems.items() if known is not None and known.docs > 0}

    def _find(self, stems: Iterable[str]) -> dict[str, _Known | None]:
        self._refresh()
        wanted = list(dict.fromkeys(stems))
        missing = [stem for stem in wanted if stem not in self._known]
        if missing:
            rows = self._run(
                "SELECT stem, id, docs FROM kept.stems WHERE space = %(space)s AND stem = ANY(%(stems)s)",
                stems=missing,
            )
            self._known.update(dict.fromkeys(missing))
            self._known.update((stem, _Known(number, docs)) for stem, number, docs in rows)
        return {stem: self._known[stem] for stem in wanted}

    def stems_starting(self, start: str, *, limit: int) -> list[str]:
        """Return the first stems of the index that begin with a text, in the order of their characters."""
        rows = self._run(
            "SELECT stem FROM kept.stems WHERE space = %(space)s AND stem >= %(start)s AND stem < %(end)s"
            " AND docs > 0 ORDER BY stem LIMIT %(limit)s",
            start=start,
            end=f"{start}\U0010ffff",
            limit=limit,
        )
        return [stem for (stem,) in rows]

    def texts_with(self, stem: str, *, limit: int) -> list[str]:
        """Return the texts of some chunks that contain a stem, each with its headings and path."""
        rows = self._run(
            "SELECT c.text || chr(10) || c.heading || chr(10) || c.path FROM kept.chunks c JOIN kept.stems s"
            " ON s.space = c.space AND s.stem = %(stem)s WHERE c.space = %(space)s AND c.stems @> ARRAY[s.id]"
            " ORDER BY c.row LIMIT %(limit)s",
            stem=stem,
            limit=limit,
        )
        return list(dict.fromkeys(text for (text,) in rows))

    def phrase_frequency(self, phrase: Phrase, *, cap: int) -> int:
        """Return how many chunks contain a phrase, at most ``cap``."""

        def count() -> int:
            ids = self.ids_of(phrase)
            if ids is None:
                return 0
            rows = self._run(
                f"SELECT count(*) FROM (SELECT FROM kept.chunks c WHERE c.space = %(space)s AND {_has(ids)}"
                " LIMIT %(cap)s) t",
                cap=cap,
            )
            return int(rows[0][0])

        return self.remember((phrase, cap), count)

    def chunk_count(self) -> int:
        return self._index.state.chunks

    def remember(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return a value that was worked out in the current state of the index, or work it out."""
        self._refresh()
        if key not in self._remembered:
            self._remembered[key] = work_out()
        value: T = self._remembered[key]
        return value

    def forget(self) -> None:
        self._version = None

    def _refresh(self) -> None:
        version = self._index.state.space, self._index.state.version
        if version != self._version or len(self._known) + len(self._remembered) > _MAX_REMEMBERED:
            self._remembered, self._known, self._version = {}, {}, version

    def _run(self, query: str, **values: Any) -> list[Any]:
        return self._index.live.run(query, **values)

    # phrases

    def ids_of(self, phrase: Phrase) -> PhraseIds | None:
        """Return a phrase as ids, or None if no chunk can have it."""
        stems = self.stems(phrase.text)
        stem_rows = [self._find([stem])[stem] for stem in stems]
        whole = stem_rows[:-1] if phrase.is_prefix else stem_rows
        if not stems or None in whole:
            return None
        places = [(known.id,) for known in whole if known is not None]
        if phrase.is_prefix:
            rows = self._run(
                "SELECT id FROM kept.stems WHERE space = %(space)s AND stem >= %(start)s AND stem < %(end)s",
                start=stems[-1],
                end=f"{stems[-1]}\U0010ffff",
            )
            places.append(tuple(number for (number,) in rows))
        return PhraseIds(tuple(places)) if all(places) else None

    def search(self, phrases: Sequence[CountedPhrase]) -> PostgresPhraseSearch:
        """Begin a search for any of the phrases."""
        return PostgresPhraseSearch(self._index, self, phrases)

    def rows_with_every(
        self, phrases: Sequence[Phrase], *, limit: int, filters: Filter, in_context: bool = False
    ) -> list[int]:
        """Return the best chunks that have every phrase, in their context if ``in_context`` is set, best first."""
        ids = [self.ids_of(phrase) for phrase in phrases]
        known = [phrase for phrase in ids if phrase is not None]
        if len(known) < len(ids):
            return []
        column = ("context",) if in_context else ("words", "context")
        where = " AND ".join(_has(phrase, column) for phrase in known)
        weights = (0.0, 1.0) if in_context else (1.0, 1.0)
        counted = [
            (phrase, self.phrase_frequency(text, cap=1 << 30)) for phrase, text in zip(known, phrases, strict=True)
        ]
        return self.best_rows(counted, where, weights=weights, limit=limit, filters=filters)

    def best_rows(
        self,
        phrases: Sequence[tuple[PhraseIds, int]],
        where: str,
        *,
        weights: tuple[float, float],
        limit: int,
        filters: Filter,
    ) -> list[int]:
        """Return the best chunks by BM25, best first. Equal ones: the newest, then by path and line."""
        state = self._index.state
        total = max(1, state.chunks)
        mean = state.all_words / total
        parts = [_bm25(phrase, _idf(rows, total), weights, mean or 1.0) for phrase, rows in phrases]
        condition, values = filter_sql(filters)
        rows = self._run(
            f"SELECT row FROM (SELECT c.row, c.timestamp, c.path, c.start_line, {' + '.join(parts) or '0'} AS score"
            f" FROM kept.chunks c WHERE c.space = %(space)s AND ({where}) AND {condition}) c WHERE score > 0"
            " ORDER BY score DESC, timestamp DESC, path, start_line, row LIMIT %(limit)s",
            **values,
            limit=limit,
        )
        return [row for (row,) in rows]


class PostgresPhraseSearch:
    """The phrases of one query. A chunk must have any of them."""

    def __init__(self, index: PostgresIndex, words: PostgresWords, phrases: Sequence[CountedPhrase]) -> None:
        self._index, self._words = index, words
        self._phrases = [(words.ids_of(counted.phrase), counted) for counted in phrases]
        self._rare = rarest(phrases, ROWS_BUDGET)

    def find_best(self, limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 of text and context."""
        rare = self._rare if len(self._rare) < len(self._phrases) else []
        ids = {id(counted): phrase for phrase, counted in self._phrases}
        # Only chunks with a rare phrase are looked at; then these count twice, as in SQLite's `(rare) AND (all)`.
        ranked = [*rare, *(counted for _, counted in self._phrases)]
        known = [(phrase, counted.rows) for counted in ranked if (phrase := ids[id(counted)]) is not None]
        looked_for = [phrase for counted in rare or ranked if (phrase := ids[id(counted)]) is not None]
        if not looked_for:
            return []
        weights = (TEXT_WEIGHT, CONTEXT_WEIGHT)
        return self._words.best_rows(known, _has_any(looked_for), weights=weights, limit=limit, filters=filters)

    def count(self, best: Sequence[int], others: Sequence[int]) -> tuple[list[KeywordMatch], float]:
        """Return how often rows have each phrase, without rows that have none, and the mean length of a chunk."""
        rows = [*best, *others]
        numbered = [(number, phrase) for number, (phrase, _) in enumerate(self._phrases) if phrase is not None]
        state = self._index.state
        mean = state.text_words / max(1, state.chunks)
        if not rows or not numbered:
            return [], mean if rows else 1.0
        counts = ", ".join(count for _, phrase in numbered for count in _counts(phrase))
        counted_rows = self._index.live.run(
            f"SELECT c.row, cardinality(c.words), ARRAY[{counts}] FROM kept.chunks c"
            " WHERE c.space = %(space)s AND c.row = ANY(%(rows)s)",
            rows=rows,
        )
        matches = []
        for row, length, figures in counted_rows:
            pairs = zip(numbered, figures[::2], figures[1::2], strict=True)
            having = tuple((number, text, context) for (number, _), text, context in pairs if text or context)
            if having:
                matches.append(KeywordMatch(row, having, length))
        return matches, mean


def _idf(rows: int, total: int) -> float:
    return max(_MIN_IDF, math.log((total - rows + 0.5) / (rows + 0.5))) if rows else _MIN_IDF


def _bm25(phrase: PhraseIds, idf: float, weights: tuple[float, float], mean: float) -> str:
    """Return the share of a phrase in BM25 as SQL. All numbers are doubles, and are combined as FTS5 combines them."""
    text, context = _counts(phrase)
    frequency = f"({weights[0]!r}::float8 * {text} + {weights[1]!r}::float8 * {context})"
    length = "(cardinality(c.words) + cardinality(c.context))::float8"
    return (
        f"({idf!r}::float8 * (({frequency} * 2.2::float8) / ({frequency}"
        f" + 1.2::float8 * (0.25::float8 + 0.75::float8 * {length} / {mean!r}::float8))))"
    )


def _counts(phrase: PhraseIds) -> tuple[str, str]:
    """Return how often text and context have a phrase, as SQL."""
    if phrase.stem is not None:
        place = f"public.idx(c.stems, {phrase.stem})"
        return f"coalesce(c.in_text[{place}], 0)", f"coalesce(c.in_context[{place}], 0)"
    return _count_in("c.words", phrase), _count_in("c.context", phrase)


def _count_in(column: str, phrase: PhraseIds) -> str:
    """Return how often a column has the words of a phrase one after the other, as SQL."""
    tests = " AND ".join(f"{column}[g + {at}] = ANY({_array(place)})" for at, place in enumerate(phrase.places))
    return (
        f"CASE WHEN {_may_have(phrase)}"
        f" THEN (SELECT count(*) FROM generate_subscripts({column}, 1) g WHERE {tests}) ELSE 0 END"
    )


def _has(phrase: PhraseIds, columns: Sequence[str] = ("words", "context")) -> str:
    """Return the condition that a chunk has a phrase, as SQL."""
    if phrase.stem is not None and len(columns) == 2:
        return _may_have(phrase)
    counts = " + ".join(_count_in(f"c.{column}", phrase) for column in columns)
    return f"({_may_have(phrase)} AND {counts} > 0)"


def _has_any(phrases: Iterable[PhraseIds]) -> str:
    return " OR ".join(map(_may_have, phrases))


def _may_have(phrase: PhraseIds) -> str:
    """Return the condition that a chunk has the stems of a phrase anywhere, which the index answers."""
    return "(" + " AND ".join(f"c.stems && {_array(place)}" for place in phrase.places) + ")"


def _array(place: Sequence[int]) -> str:
    return f"'{{{','.join(map(str, place))}}}'::int[]"
