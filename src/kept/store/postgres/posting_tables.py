"""Postings of stems: writes, merges and reads the segments of one generation.

An entry is an integer: the row of the chunk, a bit for its context, and the position of the word. So the entries of a
stem in the order of segments are in the order of chunks and positions, since a row's number is never used again. A
chunk that is gone stays in its segment until that is purged; `dead_rows` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from kept.errors import StoreDamaged
from kept.store.postgres.index_session import IndexSession
from kept.store.postgres.stems import Stemmer
from kept.values import frozen

Array = Any
"""An array of numpy."""

POSITION_BITS, ROW_BITS = 32, 33
"""Bits of an entry below the bit for the context, and below the row."""
_MERGE_SHARE = 10
"""All segments are merged if one chunk in ten has changed, or as many rows are dead."""
_MAX_SEGMENTS = 64
"""Segments of one transaction that are not merged yet. The same number for segments that were merged once."""
_FULL_CHUNKS = 1_000_000
"""A segment of so many chunks is not merged with others: a value of PostgreSQL has at most 1 GB, which the entries of
the most common word reach at some ten million chunks."""
_LEAST_DEAD = 512
_PURGED_LISTS = 2_000
_SEVERAL, _ALL, _FULL = 1, 2, 3
"""Levels of merged segments: of several transactions, of all, and of all as far as a segment has room."""
_POSTING_COLUMNS = (
    ("generation", "int4"),
    ("stem", "text"),
    ("segment", "int4"),
    ("docs", "int4"),
    ("entries", "bytea"),
)


def unpack(packed: bytes, kind: Literal["<i4", "<i8"]) -> Array:
    """Return stored integers. Raise StoreDamaged if these bytes cannot be some."""
    try:
        return np.frombuffer(packed, dtype=kind)
    except ValueError:
        raise StoreDamaged("The index is damaged: a list of words was cut off.") from None


@frozen
class StemmedChunk:
    """The stems of a chunk, in order."""

    row: int
    text: list[str]
    context: list[str]

    def distinct(self) -> bytes:
        """Return each stem once, as `chunks.stems` has them."""
        return " ".join(dict.fromkeys([*self.text, *self.context])).encode()


def stem_chunk(stemmer: Stemmer, row: int, words: str, context_words: str) -> StemmedChunk:
    return StemmedChunk(row, stemmer.stems(words), stemmer.stems(context_words))


class PostingTables:
    """Segments of one generation. Callers hold the transaction."""

    def __init__(self, session: IndexSession) -> None:
        self._session = session

    # writing

    def add(self, generation: int, chunks: Sequence[StemmedChunk], removed_stems: Iterable[bytes]) -> None:
        """Store the stems of new chunks as one segment, without those of removed ones."""
        segment = self._next_segment(generation)
        docs: dict[str, int] = {}
        entries: dict[str, bytes] = {}
        for stem, count, packed in invert(chunks):
            docs[stem], entries[stem] = count, packed
        for stems in removed_stems:
            for stem in stems.decode().split(" "):
                docs[stem] = docs.get(stem, 0) - 1
        docs.pop("", None)
        rows = [(generation, stem, segment, count, entries.get(stem, b"")) for stem, count in docs.items()]
        self._session.copy("postings", _POSTING_COLUMNS, rows)
        lengths = np.array(
            [(chunk.row, len(chunk.text), len(chunk.text) + len(chunk.context)) for chunk in chunks], dtype=np.int32
        ).reshape(-1, 3)
        self._session.execute(
            "INSERT INTO segments (generation, segment, level, rows, text_words, all_words)"
            " VALUES (%s, %s, 0, %s, %s, %s)",
            [generation, segment, *(np.ascontiguousarray(column).tobytes() for column in lengths.T)],
        )

    def _next_segment(self, generation: int) -> int:
        query = "UPDATE generations SET segment = segment + 1 WHERE id = %s RETURNING segment"
        return int(self._session.fetch_written(query, [generation])[0][0])

    # merging

    def merge(self, generation: int, *, changed_chunks: int, chunks: int) -> None:
        """Merge segments, if there are many or a good part of the index is new."""
        session = self._session
        levels: dict[int, int] = dict(
            session.fetch("SELECT level, count(*) FROM segments WHERE generation = %s GROUP BY level", [generation])
        )
        dead = self.count_dead(generation)
        unmerged = sum(count for level, count in levels.items() if level != _FULL)
        if dead >= _LEAST_DEAD and dead * _MERGE_SHARE > chunks:
            self.purge(generation)
        elif unmerged > 1 and (changed_chunks * _MERGE_SHARE >= chunks or levels.get(_SEVERAL, 0) > _MAX_SEGMENTS):
            self.merge_all(generation)
        elif levels.get(0, 0) > _MAX_SEGMENTS:
            self._merge_above(generation, self._last_segment(generation, above_level=0), level=_SEVERAL)

    def merge_all(self, generation: int) -> None:
        """Merge all segments that are not full."""
        self._merge_above(generation, self._last_segment(generation, above_level=_ALL), level=_ALL)

    def _last_segment(self, generation: int, *, above_level: int) -> int:
        query = "SELECT max(segment) FROM segments WHERE generation = %s AND level > %s"
        return self._session.fetch_value(query, [generation, above_level]) or 0

    def _merge_above(self, generation: int, segment: int, *, level: int) -> None:
        """Merge the segments with higher numbers: those of a million chunks each into one, and the rest into one."""
        sizes = self._session.fetch(
            "SELECT segment, octet_length(rows) / 4 FROM segments WHERE generation = %s AND segment > %s"
            " ORDER BY segment",
            [generation, segment],
        )
        chunks = 0
        for last, size in sizes:
            chunks += size
            if chunks >= _FULL_CHUNKS:
                self._merge_between(generation, segment, last, level=_FULL if level == _ALL else level)
                segment, chunks = last, 0
        if sizes and segment < sizes[-1][0]:
            self._merge_between(generation, segment, sizes[-1][0], level=level)

    def _merge_between(self, generation: int, after: int, last: int, *, level: int) -> None:
        """Merge the segments with higher numbers than ``after``, up to ``last``, into one."""
        session, merged = self._session, self._next_segment(generation)
        values = {"g": generation, "a": after, "z": last, "m": merged, "l": level}
        session.execute(
            "WITH old AS (DELETE FROM postings WHERE generation = %(g)s AND segment > %(a)s AND segment <= %(z)s"
            " RETURNING *)"
            " INSERT INTO postings (generation, stem, segment, docs, entries)"
            " SELECT %(g)s, stem, %(m)s, sum(docs), string_agg(entries, ''::bytea ORDER BY segment) FROM old"
            " GROUP BY stem",
            values,
        )
        session.execute(
            "WITH old AS (DELETE FROM segments WHERE generation = %(g)s AND segment > %(a)s AND segment <= %(z)s"
            " RETURNING *)"
            " INSERT INTO segments (generation, segment, level, rows, text_words, all_words)"
            " SELECT %(g)s, %(m)s, %(l)s, string_agg(rows, ''::bytea ORDER BY segment),"
            " string_agg(text_words, ''::bytea ORDER BY segment), string_agg(all_words, ''::bytea ORDER BY segment)"
            " FROM old HAVING count(*) > 0",
            values,
        )

    def count_dead(self, generation: int) -> int:
        return int(self._session.fetch_value("SELECT count(*) FROM dead_rows WHERE generation = %s", [generation]))

    def purge(self, generation: int) -> None:
        """Merge all segments, without rows that are dead. The caller drops them from packs of vectors too."""
        session = self._session
        dead = self.read_dead(generation)
        self.merge_all(generation)
        session.execute(
            "DELETE FROM postings WHERE generation = %(g)s AND stem IN"
            " (SELECT stem FROM postings WHERE generation = %(g)s GROUP BY stem HAVING sum(docs) <= 0)",
            {"g": generation},
        )
        after = ("", 0)
        while lists := session.fetch(
            "SELECT stem, segment, entries FROM postings WHERE generation = %s AND (stem, segment) > (%s, %s)"
            " ORDER BY stem, segment LIMIT %s",
            [generation, *after, _PURGED_LISTS],
        ):
            after = lists[-1][:2]
            changed = []
            for stem, segment, packed in lists:
                entries = unpack(packed, "<i8")
                alive = entries[~np.isin(entries >> ROW_BITS, dead)]
                if len(alive) < len(entries):
                    changed.append((stem, segment, alive.tobytes()))
            session.execute(
                "UPDATE postings p SET entries = v.entries"
                " FROM unnest(%s::text[], %s::int[], %s::bytea[]) v(stem, segment, entries)"
                " WHERE p.generation = %s AND p.stem = v.stem AND p.segment = v.segment",
                [*([row[at] for row in changed] for at in range(3)), generation],
            )
        self._purge_segments(generation, dead)
        session.execute("DELETE FROM dead_rows WHERE generation = %s", [generation])

    def _purge_segments(self, generation: int, dead: Array) -> None:
        query = "SELECT segment, rows, text_words, all_words FROM segments WHERE generation = %s"
        for segment, *columns in self._session.fetch(query, [generation]):
            rows, text, all_ = (unpack(column, "<i4") for column in columns)
            alive = ~np.isin(rows, dead)
            self._session.execute(
                "UPDATE segments SET rows = %s, text_words = %s, all_words = %s WHERE generation = %s AND segment = %s",
                [*(column[alive].tobytes() for column in (rows, text, all_)), generation, segment],
            )

    # reading

    def read_dead(self, generation: int) -> Array:
        rows = self._session.fetch("SELECT row FROM dead_rows WHERE generation = %s", [generation])
        return np.array([row for (row,) in rows], dtype=np.int64)

    def read_entries(self, generation: int, stems: Sequence[str]) -> dict[str, Array]:
        """Return the entries of each stem, those of dead rows included."""
        packed: dict[str, list[bytes]] = {}
        query = "SELECT stem, entries FROM postings WHERE generation = %s AND stem = ANY(%s) ORDER BY stem, segment"
        for stem, entries in self._session.fetch(query, [generation, [*stems]]):
            packed.setdefault(stem, []).append(entries)
        return {stem: unpack(b"".join(parts), "<i8") for stem, parts in packed.items()}


def invert(chunks: Sequence[StemmedChunk]) -> Iterable[tuple[str, int, bytes]]:
    """Yield each stem with the number of chunks that have it and its packed entries."""
    numbers: dict[str, int] = {}
    occurrences: list[int] = []
    starts: list[int] = []
    lengths: list[int] = []
    for chunk in chunks:
        for is_context, stems in enumerate((chunk.text, chunk.context)):
            occurrences += [numbers.setdefault(stem, len(numbers)) for stem in stems]
            starts.append((chunk.row << 1 | is_context) << POSITION_BITS)
            lengths.append(len(stems))
    if not occurrences:
        return
    stem_of = np.array(occurrences, dtype=np.int32)
    ends = np.cumsum(lengths)
    first = np.repeat(ends - lengths, lengths)
    entries: Array = np.repeat(np.array(starts, dtype=np.int64), lengths) + (np.arange(len(stem_of)) - first)
    order = np.argsort(stem_of, kind="stable")
    entries = entries[order].astype("<i8")
    counts = np.bincount(stem_of, minlength=len(numbers))
    bounds = np.concatenate(([0], np.cumsum(counts)))
    rows: Array = entries >> ROW_BITS
    is_first = np.ones(len(rows), dtype=np.int64)
    is_first[1:] = rows[1:] != rows[:-1]
    is_first[bounds[:-1]] = 1
    docs = np.add.reduceat(is_first, bounds[:-1])
    packed = entries.tobytes()
    for number, stem in enumerate(numbers):
        yield stem, int(docs[number]), packed[8 * int(bounds[number]) : 8 * int(bounds[number + 1])]
