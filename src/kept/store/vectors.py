"""Nearest neighbours, in plain tables of the same file and the same transaction as the chunks.

Each chunk's code is a row of `chunks_vec`. Scanning rows one by one is slow, so some thousand codes at a time are also
stored end to end as a pack. Codes that are not packed yet are scanned as rows; rows that were deleted but are still in
a pack are skipped; a pack that is mostly deleted rows is dissolved. Up to ``bits_above`` rows every code is compared;
above that, sign bits find the candidates and codes rank them.
"""

from __future__ import annotations

import heapq
import importlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from kept.sqlite import IN_ROWS, pack_rows
from kept.store.kernels import cosine_distances, hamming_distances, sign_bits, smallest
from kept.values import frozen

CHUNK_ORDER = "c.path, c.start_line, c.row"
"""Order of `chunks c` by content, regardless of when they were indexed. Within a line, row numbers follow the text:
its chunks are written together (`Generation.replace_file`)."""

_RESCORED_PER_RESULT = 24
_SCANS_WORTH_NUMPY, _ROWS_WORTH_NUMPY = 3, 8_000
"""Importing numpy takes longer than a search. A process that keeps searching many rows earns that back; one that ends
after a search does not."""


@frozen
class VectorLimits:
    """Numbers of rows."""

    pack_rows: int = 4096
    """Rows in a full pack."""
    pack_when: int = 512
    """Unpacked rows that are worth a pack."""
    bits_above: int = 100_000
    """Above this, candidates are found by their sign bits."""
    least_rescored: int = 2_000
    """Candidates by sign bits whose codes are compared, at least."""
    few_rows: int = 5_000
    """Up to this many rows, a filtered search compares the rows and not the packs."""


class VectorTable:
    def __init__(self, db: apsw.Connection, prefix: str = "", limits: VectorLimits | None = None) -> None:
        self.db = db
        self.prefix = prefix
        self.limits = limits or VectorLimits()
        self._packs: dict[tuple[str, int], tuple[array[int], bytes]] = {}
        """Packs in memory, by column and id."""
        self._packs_generation: object = None
        self._scans = 0

    # writing

    def put(self, codes: Iterable[tuple[int, bytes]]) -> None:
        self.db.executemany(
            f"INSERT OR REPLACE INTO {self.prefix}chunks_vec (row, code, pack) VALUES (?, ?, NULL)", codes
        )

    def remove(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.db.execute(
                f"INSERT OR IGNORE INTO {self.prefix}vec_dead (row, pack)"
                f" SELECT row, pack FROM {self.prefix}chunks_vec WHERE row = ? AND pack IS NOT NULL",
                (row,),
            )
            self.db.execute(f"DELETE FROM {self.prefix}chunks_vec WHERE row = ?", (row,))

    def maintain(self) -> None:
        """Dissolve packs that are mostly deleted rows, and pack the rows that are not packed."""
        mostly_dead = self.db.execute(
            f"SELECT p.id FROM {self.prefix}vec_packs p WHERE"
            f" (SELECT count(*) FROM {self.prefix}vec_dead d WHERE d.pack = p.id) * 16 > length(p.rows)"
        ).fetchall()
        for (pack,) in mostly_dead:
            self.db.execute(f"UPDATE {self.prefix}chunks_vec SET pack = NULL WHERE pack = ?", (pack,))
            self.db.execute(f"DELETE FROM {self.prefix}vec_packs WHERE id = ?", (pack,))
            self.db.execute(f"DELETE FROM {self.prefix}vec_dead WHERE pack = ?", (pack,))
        while self._pack_some():
            pass

    def repair(self) -> None:
        """Drop vectors that belong to no chunk, and pack the others again."""
        p = self.prefix
        self.db.execute(f"DELETE FROM {p}chunks_vec WHERE row NOT IN (SELECT row FROM {p}chunks)")
        self.db.execute(f"UPDATE {p}chunks_vec SET pack = NULL WHERE pack IS NOT NULL")
        self.db.execute(f"DELETE FROM {p}vec_packs")
        self.db.execute(f"DELETE FROM {p}vec_dead")
        self.maintain()

    def _pack_some(self) -> bool:
        unpacked: list[Any] = self.db.execute(
            f"SELECT row, code FROM {self.prefix}chunks_vec WHERE pack IS NULL ORDER BY row LIMIT ?",
            (self.limits.pack_rows,),
        ).fetchall()
        if len(unpacked) < self.limits.pack_when:
            return False
        rows = array("q", [row for row, _ in unpacked])
        codes = b"".join(code for _, code in unpacked)
        bits = b"".join(sign_bits(code) for _, code in unpacked)
        self.db.execute(
            f"INSERT INTO {self.prefix}vec_packs (rows, codes, bits) VALUES (?, ?, ?)", (rows.tobytes(), codes, bits)
        )
        pack = self.db.last_insert_rowid()
        self.db.executemany(f"UPDATE {self.prefix}chunks_vec SET pack = ? WHERE row = ?", ((pack, row) for row in rows))
        return True

    # reading

    def count(self) -> int:
        """Return the number of vectors. Counted in the two partial indexes, which are a fraction of the table."""
        table = f"{self.prefix}chunks_vec"
        query = (
            f"SELECT (SELECT count(*) FROM {table} WHERE pack IS NULL)"
            f" + (SELECT count(*) FROM {table} WHERE pack IS NOT NULL)"
        )
        return int(self.db.execute(query).get)

    def nearest(
        self, code: bytes, limit: int, *, among: Sequence[int] | None = None, generation: object = None
    ) -> list[tuple[int, float]]:
        """Return the rows with the highest cosine, best first.

        ``among`` limits the rows. A new ``generation`` tells that packs in memory are stale.
        """
        if generation != self._packs_generation:
            self._packs.clear()
            self._packs_generation = generation
        if among is not None and len(among) <= self.limits.few_rows:
            return self._rescore(code, among, limit)
        allowed = None if among is None else set(among)
        packs = dict(self.db.execute(f"SELECT id, length(rows) / 8 FROM {self.prefix}vec_packs"))
        self._forget_missing(packs)
        self._scans += 1
        if self._scans == _SCANS_WORTH_NUMPY and sum(packs.values()) >= _ROWS_WORTH_NUMPY:
            importlib.import_module("numpy")
        if sum(packs.values()) > self.limits.bits_above:
            candidates = max(self.limits.least_rescored, limit * _RESCORED_PER_RESULT)
            near = _trim_ties(self._scan(sign_bits(code), packs, "bits", candidates, allowed), candidates, least=limit)
            unpacked = [row for row, _ in self._unpacked(len(code))]
            return self._rescore(code, [row for _, row in near] + unpacked, limit, allowed)
        near = self._scan(code, packs, "codes", limit, allowed)
        near += self._scan_unpacked(code, allowed)
        return self._first(near, limit)

    def similarities(self, code: bytes, rows: Sequence[int]) -> list[tuple[int, float]]:
        """Return the cosine of each of these rows that has a vector."""
        return self._rescore(code, rows, len(rows))

    def _scan(
        self, query: bytes, packs: Iterable[int], column: str, limit: int, allowed: set[int] | None
    ) -> list[tuple[float, int]]:
        dead = {row for (row,) in self.db.execute(f"SELECT row FROM {self.prefix}vec_dead")}
        measure = cosine_distances if column == "codes" else hamming_distances
        best: list[tuple[float, int]] = []
        for pack in packs:
            rows, packed = self._load(pack, column)
            if len(packed) != len(rows) * len(query):
                continue  # of another embedder; the tables are rebuilt before a search needs these
            distances = measure(query, packed)
            if allowed is None:
                close = smallest(distances, limit + len(dead))
            else:
                close = [(value, at) for at, value in enumerate(distances) if rows[at] in allowed]
            best += [(value, rows[at]) for value, at in close if rows[at] not in dead]
            best = _closest(best, limit)
        return best

    def _load(self, pack: int, column: str) -> tuple[array[int], bytes]:
        loaded = self._packs.get((column, pack))
        if loaded is None:
            values: Any = self.db.execute(
                f"SELECT rows, {column} FROM {self.prefix}vec_packs WHERE id = ?", (pack,)
            ).fetchone()
            numbers, packed = values
            rows = array("q")
            rows.frombytes(numbers)
            loaded = self._packs[column, pack] = (rows, packed)
        return loaded

    def _forget_missing(self, packs: dict[int, int]) -> None:
        for key in [key for key in self._packs if key[1] not in packs]:
            del self._packs[key]

    def _unpacked(self, width: int) -> list[tuple[int, bytes]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE pack IS NULL AND length(code) = ?"
        unpacked: list[Any] = self.db.execute(query, (width,)).fetchall()
        return unpacked

    def _scan_unpacked(self, code: bytes, allowed: set[int] | None) -> list[tuple[float, int]]:
        return self._measure(code, self._unpacked(len(code)), allowed)

    def _rescore(
        self, code: bytes, rows: Iterable[int], limit: int, allowed: set[int] | None = None
    ) -> list[tuple[int, float]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE {IN_ROWS} AND length(code) = ?"
        codes: list[Any] = self.db.execute(query, (pack_rows(rows), len(code))).fetchall()
        return self._first(self._measure(code, codes, allowed), limit)

    def _measure(self, code: bytes, rows: list[tuple[int, bytes]], allowed: set[int] | None) -> list[tuple[float, int]]:
        """Return the distance of each row, given as row number and code."""
        if allowed is not None:
            rows = [(row, packed) for row, packed in rows if row in allowed]
        if not rows:
            return []
        distances = cosine_distances(code, b"".join(packed for _, packed in rows))
        return list(zip(distances, (row for row, _ in rows), strict=True))

    def _first(self, near: list[tuple[float, int]], limit: int) -> list[tuple[int, float]]:
        """Return the nearest rows with their cosine. Of equally near rows at the end, the first by path and line."""
        best = sorted(_closest(near, limit))
        if len(best) > limit:
            bound = best[-1][0]
            tied = [row for distance, row in best if distance == bound]
            best = best[: len(best) - len(tied)]
            query = f"SELECT c.row FROM {self.prefix}chunks c WHERE c.{IN_ROWS} ORDER BY {CHUNK_ORDER} LIMIT ?"
            rows = self.db.execute(query, (pack_rows(tied), limit - len(best)))
            best += [(bound, row) for (row,) in rows]
        return [(row, 1.0 - distance) for distance, row in best]


def _closest(near: list[tuple[float, int]], limit: int) -> list[tuple[float, int]]:
    """Return the nearest, and all that tie with the last of them: the caller decides between those."""
    if len(near) <= limit:
        return near
    bound = heapq.nsmallest(limit, [distance for distance, _ in near])[-1]
    return [(distance, row) for distance, row in near if distance <= bound]


def _trim_ties(near: list[tuple[float, int]], count: int, *, least: int) -> list[tuple[float, int]]:
    """Keep or drop the rows tied for last, whichever comes closer to ``count``.

    With sign bits, hundreds of rows have the same distance, and every row that is kept has to be read.
    """
    bound = max((distance for distance, _ in near), default=0.0)
    closer = [(distance, row) for distance, row in near if distance < bound]
    return closer if len(near) - count > count - len(closer) and len(closer) >= least else near
