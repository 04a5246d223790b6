"""Nearest neighbours, in plain tables of the same file and the same transaction as the chunks.

Each chunk's code is a row of `chunks_vec`. Scanning rows one by one is slow, so some thousand codes at a time are
also packed end to end. Rows that are not packed yet are scanned as they are; rows that are gone but still in a pack
are skipped; a pack that is mostly gone is dissolved. Up to a hundred thousand rows every code is compared; above
that, sign bits find the candidates and codes put them in order.
"""

from __future__ import annotations

import heapq
import importlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from kept.store.connection import IN_PLACE, IN_ROWS, packed_rows
from kept.store.kernels import cosine_distances, hamming_distances, sign_bits, smallest

PACK_ROWS = 4096
PACK_WHEN = 512
BITS_ABOVE = 100_000
_RESCORED_PER_RESULT = 24
_LEAST_RESCORED = 2_000
_FEW_ROWS = 5_000
_SCANS_WORTH_NUMPY, _ROWS_WORTH_NUMPY = 3, 8_000
"""A process that goes on searching among many rows earns back what importing numpy takes; one that ends does not."""


class VectorTable:
    def __init__(self, db: apsw.Connection, prefix: str = "") -> None:
        self.db = db
        self.prefix = prefix
        self.bits_above = BITS_ABOVE
        self._held: dict[tuple[str, int], tuple[array[int], bytes]] = {}
        self._held_generation: object = None
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
        """Dissolves packs that are mostly dead and packs what has gathered since."""
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
        """Drop vectors that belong to no chunk, and pack the others anew."""
        p = self.prefix
        self.db.execute(f"DELETE FROM {p}chunks_vec WHERE row NOT IN (SELECT row FROM {p}chunks)")
        self.db.execute(f"UPDATE {p}chunks_vec SET pack = NULL WHERE pack IS NOT NULL")
        self.db.execute(f"DELETE FROM {p}vec_packs")
        self.db.execute(f"DELETE FROM {p}vec_dead")
        self.maintain()

    def _pack_some(self) -> bool:
        unpacked: list[Any] = self.db.execute(
            f"SELECT row, code FROM {self.prefix}chunks_vec WHERE pack IS NULL ORDER BY row LIMIT ?", (PACK_ROWS,)
        ).fetchall()
        if len(unpacked) < PACK_WHEN:
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
        """Counted in the two indexes that part the table: they are a fraction of it, and this is asked often."""
        table = f"{self.prefix}chunks_vec"
        query = (
            f"SELECT (SELECT count(*) FROM {table} WHERE pack IS NULL)"
            f" + (SELECT count(*) FROM {table} WHERE pack IS NOT NULL)"
        )
        return int(self.db.execute(query).get)

    def nearest(
        self, code: bytes, limit: int, *, among: Sequence[int] | None = None, generation: object = None
    ) -> list[tuple[int, float]]:
        """The rows with the highest cosine, best first. ``generation`` tells when packs in memory are stale."""
        if generation != self._held_generation:
            self._held.clear()
            self._held_generation = generation
        if among is not None and len(among) <= _FEW_ROWS:
            return self._rescore(code, among, limit)
        allowed = None if among is None else set(among)
        packs = dict(self.db.execute(f"SELECT id, length(rows) / 8 FROM {self.prefix}vec_packs"))
        self._forget_missing(packs)
        self._scans += 1
        if self._scans == _SCANS_WORTH_NUMPY and sum(packs.values()) >= _ROWS_WORTH_NUMPY:
            importlib.import_module("numpy")
        if sum(packs.values()) > self.bits_above:
            wanted = max(_LEAST_RESCORED, limit * _RESCORED_PER_RESULT)
            near = _about(self._scan(sign_bits(code), packs, "bits", wanted, allowed), wanted, least=limit)
            unpacked = [row for row, _ in self._unpacked(len(code))]
            return self._rescore(code, [row for _, row in near] + unpacked, limit, allowed)
        near = self._scan(code, packs, "codes", limit, allowed)
        near += self._scan_unpacked(code, allowed)
        return self._first(near, limit)

    def similarities(self, code: bytes, rows: Sequence[int]) -> list[tuple[int, float]]:
        """The cosine of each of these rows that has a vector."""
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
                continue  # of another embedder; the tables are rebuilt before these are ever asked for
            distances = measure(query, packed)
            if allowed is None:
                close = smallest(distances, limit + len(dead))
            else:
                close = [(value, at) for at, value in enumerate(distances) if rows[at] in allowed]
            best += [(value, rows[at]) for value, at in close if rows[at] not in dead]
            best = _closest(best, limit)
        return best

    def _load(self, pack: int, column: str) -> tuple[array[int], bytes]:
        held = self._held.get((column, pack))
        if held is None:
            found: Any = self.db.execute(
                f"SELECT rows, {column} FROM {self.prefix}vec_packs WHERE id = ?", (pack,)
            ).fetchone()
            numbers, packed = found
            rows = array("q")
            rows.frombytes(numbers)
            held = self._held[column, pack] = (rows, packed)
        return held

    def _forget_missing(self, packs: dict[int, int]) -> None:
        for key in [key for key in self._held if key[1] not in packs]:
            del self._held[key]

    def _unpacked(self, width: int) -> list[tuple[int, bytes]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE pack IS NULL AND length(code) = ?"
        found: list[Any] = self.db.execute(query, (width,)).fetchall()
        return found

    def _scan_unpacked(self, code: bytes, allowed: set[int] | None) -> list[tuple[float, int]]:
        found = self._unpacked(len(code))
        if allowed is not None:
            found = [one for one in found if one[0] in allowed]
        if not found:
            return []
        distances = cosine_distances(code, b"".join(packed for _, packed in found))
        return list(zip(distances, (row for row, _ in found), strict=True))

    def _rescore(
        self, code: bytes, rows: Iterable[int], limit: int, allowed: set[int] | None = None
    ) -> list[tuple[int, float]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE {IN_ROWS} AND length(code) = ?"
        found: list[Any] = self.db.execute(query, (packed_rows(rows), len(code))).fetchall()
        if allowed is not None:
            found = [one for one in found if one[0] in allowed]
        if not found:
            return []
        distances = cosine_distances(code, b"".join(packed for _, packed in found))
        return self._first(list(zip(distances, (row for row, _ in found), strict=True)), limit)

    def _first(self, near: list[tuple[float, int]], limit: int) -> list[tuple[int, float]]:
        """The nearest, and how near they are. Of equally near ones at the end, those that come first by path and
        line."""
        best = sorted(_closest(near, limit))
        if len(best) > limit:
            bound = best[-1][0]
            tied = [row for distance, row in best if distance == bound]
            best = best[: len(best) - len(tied)]
            query = f"SELECT c.row FROM {self.prefix}chunks c WHERE c.{IN_ROWS} ORDER BY {IN_PLACE} LIMIT ?"
            rows = self.db.execute(query, (packed_rows(tied), limit - len(best)))
            best += [(bound, row) for (row,) in rows]
        return [(row, 1.0 - distance) for distance, row in best]


def _closest(near: list[tuple[float, int]], limit: int) -> list[tuple[float, int]]:
    """The nearest, and all that are as near as the last of them: which of these to leave out, others decide."""
    if len(near) <= limit:
        return near
    bound = heapq.nsmallest(limit, [distance for distance, _ in near])[-1]
    return [one for one in near if one[0] <= bound]


def _about(near: list[tuple[float, int]], wanted: int, *, least: int) -> list[tuple[float, int]]:
    """With or without those that are as near as the last, whichever is closer to how many are wanted: of sign bits,
    hundreds differ in as many, and every one that is kept has to be read."""
    bound = max((distance for distance, _ in near), default=0.0)
    closer = [one for one in near if one[0] < bound]
    return closer if len(near) - wanted > wanted - len(closer) and len(closer) >= least else near
