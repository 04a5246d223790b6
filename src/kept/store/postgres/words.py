"""The words of the live generation. Lists are read from the server and ranked here (`listed_search`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from typing import TypeVar

import numpy as np

from kept.records import Filter
from kept.store.listed_search import ListedPhraseSearch, best_with_all
from kept.store.memo import StateMemo
from kept.store.phrases import AllOf, CountedPhrase, KeywordMatch, Phrase
from kept.store.postgres.filter_sql import filter_sql
from kept.store.postgres.index_session import IndexSession
from kept.store.postgres.posting_tables import POSITION_BITS, ROW_BITS, PostingTables, unpack
from kept.store.postgres.stems import Stemmer
from kept.store.posting_lists import (
    Array,
    PostingCache,
    Postings,
    WordTotals,
    count_postings,
    make_postings,
)
from kept.store.vector_scan import CHUNK_ORDER

T = TypeVar("T")

_LAST = "\U0010ffff"
_HELD_ENTRIES = 4_000_000
"""Entries of stems that are held, of 8 bytes each, for phrases."""


class ChunkLengthTable:
    """Number of words of each chunk by row, and whether it is alive. Only new segments are read."""

    def __init__(self, session: IndexSession, postings: PostingTables) -> None:
        self._session = session
        self._postings = postings
        self._state: Hashable = None
        self._generation = -1
        self._server_start = 0
        self._segment = 0
        self.text: Array = np.zeros(0, dtype=np.int32)
        self.all: Array = np.zeros(0, dtype=np.int32)
        self.is_alive: Array = np.zeros(0, dtype=bool)

    def refresh(self) -> None:
        state = self._session.state()
        if state == self._state:
            return
        if (self._session.live, self._session.server_start) != (self._generation, self._server_start):
            self._generation, self._server_start, self._segment = self._session.live, self._session.server_start, 0
            self.text = self.all = np.zeros(0, dtype=np.int32)
        query = (
            "SELECT segment, rows, text_words, all_words FROM segments WHERE generation = %s AND segment > %s"
            " ORDER BY segment"
        )
        for segment, *columns in self._session.fetch(query, [self._generation, self._segment]):
            self._add(*(unpack(column, "<i4") for column in columns))
            self._segment = segment
        self.is_alive = np.ones(len(self.text), dtype=bool)
        self.is_alive[self._postings.read_dead(self._generation)] = False
        self._state = state

    def _add(self, rows: Array, text: Array, all_: Array) -> None:
        size = max(len(self.text), int(rows.max(initial=-1)) + 1)
        if size > len(self.text):
            self.text, self.all = (np.pad(old, (0, size - len(old))) for old in (self.text, self.all))
        self.text[rows], self.all[rows] = text, all_


class PostgresWords:
    def __init__(self, session: IndexSession, stemmer: Stemmer) -> None:
        self._session = session
        self._stemmer = stemmer
        self._postings = PostingTables(session)
        self._memo = StateMemo()
        self._lists = PostingCache()
        self._entries = PostingCache(max_held=_HELD_ENTRIES)
        self.lengths = ChunkLengthTable(session, self._postings)

    def stems(self, text: str) -> list[str]:
        return self._stemmer.stems(text)

    def remember(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return a value that was worked out in the current state of the index, or work it out."""
        return self._memo.remember(self._session.state(), key, work_out)

    # frequencies

    def prepare(self, texts: Iterable[str]) -> None:
        """Read the frequencies of all words of these texts at once."""
        self._read_frequencies({stem for text in texts for stem in self.stems(text)})

    def _read_frequencies(self, stems: Iterable[str]) -> dict[str, int]:
        known = self._memo.find(self._session.state())
        wanted = [*dict.fromkeys(stems)]
        missing = [stem for stem in wanted if ("stem", stem) not in known]
        if missing:
            query = "SELECT stem, sum(docs) FROM postings WHERE generation = %s AND stem = ANY(%s) GROUP BY stem"
            counts = dict(self._session.fetch(query, [self._session.live, missing]))
            known |= {("stem", stem): int(counts.get(stem, 0)) for stem in missing}
        return {stem: count for stem in wanted if (count := known["stem", stem])}

    def document_frequency(self, stem: str) -> int:
        """Return how many chunks contain a stem."""
        return self._read_frequencies([stem]).get(stem, 0)

    def document_frequencies(self, stems: Iterable[str]) -> dict[str, int]:
        """Return how many chunks contain each stem, without those that none contains."""
        return self._read_frequencies(stems)

    def stems_starting(self, start: str, *, limit: int) -> list[str]:
        """Return the first stems of the index that begin with a text, in the order of their characters."""
        query = (
            "SELECT stem FROM postings WHERE generation = %s AND stem >= %s AND stem < %s"
            " GROUP BY stem HAVING sum(docs) > 0 ORDER BY stem LIMIT %s"
        )
        return [stem for (stem,) in self._session.fetch(query, [self._session.live, start, start + _LAST, limit])]

    def stems_after(self, stem: str, *, limit: int) -> list[str]:
        """Return the next stems of the index, in the order of their characters."""
        query = (
            "SELECT stem FROM postings WHERE generation = %s AND stem > %s"
            " GROUP BY stem HAVING sum(docs) > 0 ORDER BY stem LIMIT %s"
        )
        return [following for (following,) in self._session.fetch(query, [self._session.live, stem, limit])]

    def phrase_frequency(self, phrase: Phrase, *, cap: int) -> int:
        """Return how many chunks contain a phrase, at most ``cap``."""
        return min(cap, len(self.read([phrase])[phrase].rows))

    def chunk_count(self) -> int:
        return self.totals(()).chunks

    def totals(self, phrases: Sequence[CountedPhrase]) -> WordTotals:
        query = "SELECT chunks, text_words, all_words FROM generations WHERE id = %s"
        return self.remember("totals", lambda: WordTotals(*self._session.fetch(query, [self._session.live])[0]))

    # chunks

    def texts_with(self, stem: str, *, limit: int) -> list[str]:
        """Return the texts of some chunks that contain a stem, each with its headings and path."""
        texts: dict[str, None] = {}
        rows = self._rows_with(stem)
        query = "SELECT text, heading, path FROM chunks WHERE generation = %s AND row = ANY(%s) ORDER BY row"
        for first in range(0, len(rows), 50):
            values = [self._session.live, rows[first : first + 50]]
            for text, heading, path in self._session.fetch(query, values):
                texts[f"{text.decode()}\n{heading.decode()}\n{path}"] = None
            if len(texts) >= limit:
                break
        return [*texts][:limit]

    def notes_with(self, stem: str, *, limit: int) -> list[str]:
        """Return the paths of some notes that contain a stem, in their order."""
        query = (
            "SELECT DISTINCT path FROM chunks WHERE generation = %s AND row = ANY(%s) AND source = 'memory'"
            " ORDER BY path LIMIT %s"
        )
        return [path for (path,) in self._session.fetch(query, [self._session.live, self._rows_with(stem), limit])]

    def _rows_with(self, stem: str) -> list[int]:
        entries = self.read_entries([stem]).get(stem)
        return [] if entries is None else np.unique(entries >> ROW_BITS).tolist()

    def passing(self, rows: Sequence[int], filters: Filter) -> list[int]:
        where, values = filter_sql(filters)
        query = f"SELECT c.row FROM chunks c WHERE c.generation = %s AND c.row = ANY(%s) AND {where}"
        return [row for (row,) in self._session.fetch(query, [self._session.live, [*rows], *values])]

    def newest_first(self, rows: Sequence[int], limit: int) -> list[int]:
        query = (
            "SELECT c.row FROM chunks c WHERE c.generation = %s AND c.row = ANY(%s)"
            f" ORDER BY c.timestamp DESC, {CHUNK_ORDER} LIMIT %s"
        )
        return [row for (row,) in self._session.fetch(query, [self._session.live, [*rows], limit])]

    # searching

    def search(self, groups: Sequence[Sequence[CountedPhrase]], *, match_all: bool) -> ListedPhraseSearch:
        """Begin a search for phrases, in groups of those that stand for each other."""
        return ListedPhraseSearch(self, groups, match_all=match_all)

    def best_with_all(self, query: AllOf, *, weights: tuple[float, float], limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 that have every phrase."""
        return best_with_all(self, query, weights=weights, limit=limit, filters=filters)

    def postings_within(self, phrase: Phrase, within: Sequence[CountedPhrase]) -> Postings:
        """Return the chunks that have a phrase and any of the phrases ``within``, as if each had the phrase once."""
        lists = self.read([phrase, *(other.phrase for other in within)])
        others = np.concatenate([lists[other.phrase].rows for other in within])
        rows = lists[phrase].rows
        rows = rows[np.isin(rows, others)]
        return make_postings(rows, np.ones(len(rows)), np.zeros(len(rows)))

    def count_common(self, phrases: Sequence[CountedPhrase], rows: Sequence[int]) -> list[KeywordMatch]:
        """Return how often rows have phrases whose lists are not read."""
        lists = self.read(phrase.phrase for phrase in phrases)
        counts: dict[int, list[tuple[int, int, int]]] = {}
        for number, phrase in enumerate(phrases):
            postings = lists[phrase.phrase]
            at = np.flatnonzero(np.isin(postings.rows, rows))
            columns = (column[at].tolist() for column in (postings.rows, postings.text, postings.context))
            for row, text, context in zip(*columns, strict=True):
                counts.setdefault(row, []).append((number, text, context))
        return [KeywordMatch(row, tuple(counted), int(self.lengths.text[row])) for row, counted in counts.items()]

    def read(self, phrases: Iterable[Phrase]) -> dict[Phrase, Postings]:
        """Return all chunks that have each phrase, and how often."""
        state = self._session.state()
        lists: dict[Phrase, Postings] = {}
        missing: list[Phrase] = []
        for phrase in phrases:
            postings = self._lists.find(phrase, state)
            if postings is None:
                missing.append(phrase)
            else:
                lists[phrase] = postings
        if missing:
            words = {phrase: self._words_of(phrase) for phrase in dict.fromkeys(missing)}
            self.read_entries({stem for places in words.values() for stems in places for stem in stems})
            for phrase, places in words.items():
                lists[phrase] = self._count(places)
                self._lists.put(phrase, lists[phrase])
        return lists

    def _words_of(self, phrase: Phrase) -> list[list[str]]:
        """Return the stems that may stand at each place of a phrase."""
        stems = self.stems(phrase.text)
        places = [[stem] for stem in stems]
        if phrase.is_prefix and stems:
            places[-1] = self.stems_starting(stems[-1], limit=1_000_000)
        return places

    def _count(self, places: Sequence[Sequence[str]]) -> Postings:
        """Return the chunks that have the stems of all places one after the other."""
        if not places:
            return count_postings(np.zeros(0, dtype=np.int64))
        at_each = [self._entries_of(stems) - offset for offset, stems in enumerate(places)]
        at_each.sort(key=len)
        entries = reduce(_in_both, at_each)
        return count_postings(entries >> POSITION_BITS)

    def _entries_of(self, stems: Sequence[str]) -> Array:
        """Return the entries of any of these stems, in order."""
        lists = [entries for entries in self.read_entries(stems).values() if len(entries)]
        if not lists:
            return np.zeros(0, dtype=np.int64)
        return lists[0] if len(lists) == 1 else np.sort(np.concatenate(lists))

    def read_entries(self, stems: Iterable[str]) -> dict[str, Array]:
        """Return the entries of stems in chunks that are alive."""
        state = self._session.state()
        held: dict[str, Array] = {}
        missing: list[str] = []
        for stem in dict.fromkeys(stems):
            postings = self._entries.find(stem, state)
            if postings is None:
                missing.append(stem)
            else:
                held[stem] = postings.rows
        if missing:
            self.lengths.refresh()
            is_alive = self.lengths.is_alive
            has_dead = not bool(is_alive.all())
            read = self._postings.read_entries(self._session.live, missing)
            for stem in missing:
                entries = read.get(stem, np.zeros(0, dtype=np.int64))
                if has_dead:
                    entries = entries[is_alive[entries >> ROW_BITS]]
                held[stem] = entries
                self._entries.put(stem, Postings(entries, None, None))
        return held


def _in_both(left: Array, right: Array) -> Array:
    """Return the entries of the shorter list that are also in the longer one. Both are sorted."""
    if not len(left) or not len(right):
        return left[:0]
    at = np.minimum(np.searchsorted(right, left), len(right) - 1)
    return left[right[at] == left]
