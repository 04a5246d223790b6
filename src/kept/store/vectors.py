"""Vectors of chunks: arithmetic on packed codes, and nearest neighbours in plain tables of the index file.

A code is a vector's components as int8, scaled so that the largest fills the range. Cosine ignores the scale, so it is
not stored.

Each chunk's code is a row of `chunks_vec`. Scanning rows one by one is slow, so some thousand codes at a time are also
stored end to end as a pack. Codes that are not packed yet are scanned as rows; rows that were deleted but are still in
a pack are skipped; a pack that is mostly deleted rows is dissolved. Up to ``bits_above`` rows every code is compared;
above that, sign bits find the candidates and codes rank them.
"""

from __future__ import annotations

import heapq
import importlib
import math
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import apsw

from kept.sqlite import IN_ROWS, pack_rows
from kept.values import frozen

CHUNK_ORDER = "c.path, c.start_line, c.row"
"""Order of `chunks c` by content, regardless of when they were indexed. Within a line, row numbers follow the text:
its chunks are written together (`Generation.replace_file`)."""

_RESCORED_PER_RESULT = 24
_SCANS_WORTH_NUMPY, _ROWS_WORTH_NUMPY = 3, 8_000
"""Importing numpy takes longer than a search. A process that keeps searching many rows earns that back; one that ends
after a search does not."""


# codes


def quantise(row: bytes) -> bytes:
    """Convert float32 to int8."""
    values = struct.unpack(f"<{len(row) // 4}f", row)
    largest = max(map(abs, values), default=0.0)
    if largest == 0.0:
        return bytes(len(values))
    scale = 127.0 / largest
    return array("b", [round(value * scale) for value in values]).tobytes()


def dequantise(code: bytes) -> bytes:
    """Convert int8 to float32 of unit length, which `quantise` converts back to the same code."""
    values = array("b", code).tolist()
    norm = math.sqrt(sum(value * value for value in values))
    return struct.pack(f"<{len(values)}f", *(value / norm for value in values)) if norm else bytes(4 * len(values))


def sign_bits(code: bytes) -> bytes:
    """Return one bit per dimension, set if the component is positive."""
    signs = "".join("1" if 0 < byte < 128 else "0" for byte in code)
    return int(signs.ljust(-(-len(signs) // 8) * 8, "0"), 2).to_bytes(-(-len(signs) // 8), "big")


def cosine_distances(query: bytes, codes: bytes | memoryview) -> memoryview[float]:
    """Return one minus the cosine of a code with each of the codes packed end to end, as float64."""
    simsimd = _simsimd()
    if simsimd is None:
        return numpy_cosine_distances(query, codes)
    if not any(query):  # zeros have no direction, but the kernel would call two codes of zeros equal
        return memoryview(array("d", [1.0]) * (len(codes) // len(query)))
    return _simd_distances(simsimd, query, codes, form="b", metric="cosine", dtype="int8")


def hamming_distances(query: bytes, bits: bytes | memoryview) -> memoryview[float]:
    """Return the number of bits in which a row of bits differs from each packed row, as float64."""
    simsimd = _simsimd()
    if simsimd is None:
        return numpy_hamming_distances(query, bits)
    return _simd_distances(simsimd, query, bits, form="B", metric="hamming", dtype="bin8")


@cache
def _simsimd() -> Any:
    """Return the module with the SIMD kernels, or None if it is not installed: then numpy does the work."""
    try:
        import simsimd
    except ImportError:
        return None
    return simsimd


def _simd_distances(
    simsimd: Any, query: bytes, packed: bytes | memoryview, *, form: str, metric: str, dtype: str
) -> memoryview[float]:
    if not packed:
        return memoryview(array("d"))
    shape = (len(packed) // len(query), len(query))
    single = memoryview(query).cast(form, (1, shape[1]))  # type: ignore[call-overload]
    rows = memoryview(packed).cast(form, shape)  # type: ignore[call-overload]
    return memoryview(simsimd.cdist(single, rows, metric, dtype=dtype)).cast("B").cast("d")


def smallest(distances: memoryview[float], limit: int) -> list[tuple[float, int]]:
    """Return the smallest distances with their positions, unordered, and all that tie with the largest of them.

    Uses numpy only if the process has imported it already: importing it takes longer than a search.
    """
    np: Any = sys.modules.get("numpy")
    if np is None or len(distances) <= limit:
        values: Sequence[float] = distances.tolist()
        bound = heapq.nsmallest(limit, values)[-1] if values else 0.0
        return [(value, at) for at, value in enumerate(values) if value <= bound]
    array_ = np.frombuffer(distances)
    bound = np.partition(array_, limit - 1)[limit - 1]
    positions = np.flatnonzero(array_ <= bound)
    return list(zip(array_[positions].tolist(), positions.tolist(), strict=True))


def numpy_cosine_distances(query: bytes, codes: bytes | memoryview) -> memoryview[float]:
    import numpy as np

    single = np.frombuffer(query, dtype=np.int8).astype(np.float64)
    rows = np.frombuffer(codes, dtype=np.int8).reshape(-1, len(query)).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(single)
    return memoryview(1.0 - np.divide(rows @ single, norms, out=np.zeros(len(rows)), where=norms > 0))


def numpy_hamming_distances(query: bytes, bits: bytes | memoryview) -> memoryview[float]:
    import numpy as np

    single = np.frombuffer(query, dtype=np.uint8)
    rows = np.frombuffer(bits, dtype=np.uint8).reshape(-1, len(query))
    return memoryview(np.unpackbits(rows ^ single, axis=1).sum(axis=1).astype(np.float64))


# tables


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
        while True:
            unpacked: list[Any] = self.db.execute(
                f"SELECT row, code FROM {self.prefix}chunks_vec WHERE pack IS NULL ORDER BY row LIMIT ?",
                (self.limits.pack_rows,),
            ).fetchall()
            if len(unpacked) < self.limits.pack_when:
                break
            rows = array("q", [row for row, _ in unpacked])
            codes = b"".join(code for _, code in unpacked)
            bits = b"".join(sign_bits(code) for _, code in unpacked)
            self.db.execute(
                f"INSERT INTO {self.prefix}vec_packs (rows, codes, bits) VALUES (?, ?, ?)",
                (rows.tobytes(), codes, bits),
            )
            members = [(self.db.last_insert_rowid(), row) for row in rows]
            self.db.executemany(f"UPDATE {self.prefix}chunks_vec SET pack = ? WHERE row = ?", members)

    def repair(self) -> None:
        """Drop vectors that belong to no chunk, and pack the others again."""
        p = self.prefix
        self.db.execute(f"DELETE FROM {p}chunks_vec WHERE row NOT IN (SELECT row FROM {p}chunks)")
        self.db.execute(f"UPDATE {p}chunks_vec SET pack = NULL WHERE pack IS NOT NULL")
        self.db.execute(f"DELETE FROM {p}vec_packs")
        self.db.execute(f"DELETE FROM {p}vec_dead")
        self.maintain()

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
            self._packs, self._packs_generation = {}, generation
        if among is not None and len(among) <= self.limits.few_rows:
            return self.similarities(code, among, limit=limit)
        allowed = None if among is None else set(among)
        packs = dict(self.db.execute(f"SELECT id, length(rows) / 8 FROM {self.prefix}vec_packs"))
        self._packs = {key: pack for key, pack in self._packs.items() if key[1] in packs}
        packed_rows = sum(packs.values())
        self._scans += 1
        if self._scans == _SCANS_WORTH_NUMPY and packed_rows >= _ROWS_WORTH_NUMPY:
            importlib.import_module("numpy")
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE pack IS NULL AND length(code) = ?"
        unpacked: list[Any] = self.db.execute(query, (len(code),)).fetchall()
        if packed_rows > self.limits.bits_above:
            candidates = max(self.limits.least_rescored, limit * _RESCORED_PER_RESULT)
            near = _trim_ties(self._scan(sign_bits(code), packs, "bits", candidates, allowed), candidates, least=limit)
            rows = [row for _, row in near] + [row for row, _ in unpacked]
            return self.similarities(code, rows, limit=limit, allowed=allowed)
        near = self._scan(code, packs, "codes", limit, allowed)
        return self._first(near + self._measure(code, unpacked, allowed), limit)

    def similarities(
        self, code: bytes, rows: Sequence[int], *, limit: int | None = None, allowed: set[int] | None = None
    ) -> list[tuple[int, float]]:
        """Return the cosine of each of these rows that has a vector, best first."""
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE {IN_ROWS} AND length(code) = ?"
        codes: list[Any] = self.db.execute(query, (pack_rows(rows), len(code))).fetchall()
        return self._first(self._measure(code, codes, allowed), len(rows) if limit is None else limit)

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
