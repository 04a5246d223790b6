"""Nearest neighbours among the vectors of chunks.

A process reads the codes once and keeps them end to end in memory, where one call of a kernel compares
them all: for 100,000 that takes 2 ms and 38 MB. After a change it reads the codes of new rows, and drops those of rows
that are gone. It knows which ones it has written itself; what another process wrote, it finds by the numbers of rows.

A code is a vector's components as int8, scaled so that the largest fills the range. Cosine ignores the scale, so it is
not stored. Dot products of codes are integers, so distances are the same with every kernel and on every machine.
"""

from __future__ import annotations

import heapq
import importlib
import math
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

import apsw

from kept.base.sqlite import IN_ROWS, pack_rows
from kept.base.values import frozen

# Order of `chunks c` by content, regardless of when they were indexed. Within a line, row numbers follow the text: its
# chunks are written together (`Generation.replace_file`).
CHUNK_ORDER = "c.path, c.start_line, c.row"

# Scans, and rows from which on numpy is imported then. That takes longer than a search. A process that keeps searching
# earns it back, sooner with many rows; one that ends after a search does not.
_WORTH_NUMPY = ((3, 8_000), (20, 200))
# Up to this many rows, a filtered search reads the codes of these rows and compares no others.
_FEW_ROWS = 5_000


@frozen
class _VectorBlock:
    """Codes of rows, end to end, in no order."""

    dims: int
    rows: array[int] = field(default_factory=lambda: array("q"))
    """Row numbers."""
    packed: bytearray = field(default_factory=bytearray)
    norms: array[float] = field(default_factory=lambda: array("d"))

    def drop(self, rows: set[int]) -> None:
        """Drop rows. The last one takes the place of each, so that the others need not move."""
        for at in reversed(_positions(self.rows, rows) if rows else []):
            row, norm, code = self.rows.pop(), self.norms.pop(), self.packed[-self.dims :]
            del self.packed[-self.dims :]
            if at < len(self.rows):
                self.rows[at], self.norms[at] = row, norm
                self.packed[at * self.dims : (at + 1) * self.dims] = code


class VectorTable:
    """Vectors of the chunks of one generation. Each code is a row of `chunks_vec`, empty for a text that the embedder
    refuses. Callers hold the transaction."""

    def __init__(self, db: apsw.Connection, prefix: str = "") -> None:
        self.db = db
        self.prefix = prefix
        self._block: _VectorBlock | None = None
        self._block_state: tuple[object, ...] = ()
        """Generation, dimensions, and the number of commits by others with which the block was read."""
        self._written: set[int] = set()
        """Rows that this connection has put or removed since then. They are read again, rather than taken in at once:
        the transaction may have been rolled back."""
        self._newest = 0
        """Largest row in the block. Greater numbers are new: no number is used again."""
        self._scans = 0

    def put(self, codes: Sequence[tuple[int, bytes]]) -> None:
        self._written.update(row for row, _ in codes)
        self.db.executemany(f"INSERT OR REPLACE INTO {self.prefix}chunks_vec (row, code) VALUES (?, ?)", codes)

    def remove(self, rows: Sequence[int]) -> None:
        self._written.update(rows)
        self.db.executemany(f"DELETE FROM {self.prefix}chunks_vec WHERE row = ?", ((row,) for row in rows))

    def count(self) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {self.prefix}chunks_vec").get)

    def sizes(self) -> set[int]:
        """Return the dimensions of the oldest and the newest code, which are the same in a sound index."""
        query = f"SELECT length(code) FROM {self.prefix}chunks_vec WHERE length(code) > 0 ORDER BY row"
        return {size for end in ("", "DESC") for (size,) in self.db.execute(f"{query} {end} LIMIT 1")}

    # the nearest

    def nearest(
        self, code: bytes, limit: int, *, among: Sequence[int] | None = None, generation: object = None
    ) -> list[tuple[int, float]]:
        """Return the rows with the highest cosine, best first.

        ``among`` limits the rows. A new ``generation`` tells that what is in memory is stale.
        """
        if among is not None and len(among) <= _FEW_ROWS:
            return self.similarities(code, among, limit=limit)
        block = self._load(len(code), generation)  # of this length only: a rebuild may have left others
        self._scans += 1
        if any(self._scans == scans and len(block.rows) >= rows for scans, rows in _WORTH_NUMPY):
            importlib.import_module("numpy")
        distances = cosine_distances(code, block.packed, block.norms)
        if among is None:
            close = smallest(distances, limit)
        else:
            allowed = _positions(block.rows, set(among))
            within: memoryview[float] = memoryview(array("d", [distances[at] for at in allowed]))
            close = [(distance, allowed[at]) for distance, at in smallest(within, limit)]
        return self._first([(distance, block.rows[at]) for distance, at in close], limit)

    def similarities(self, code: bytes, rows: Sequence[int], *, limit: int | None = None) -> list[tuple[int, float]]:
        """Return the cosine of each of these rows that has a vector, best first."""
        codes = self._codes_of(rows, len(code)) if rows else []
        distances = cosine_distances(code, b"".join(packed for _, packed in codes))
        limit = len(codes) if limit is None else limit
        return self._first([(distance, codes[at][0]) for distance, at in smallest(distances, limit)], limit)

    def _load(self, dims: int, generation: object) -> _VectorBlock:
        """Return the codes of these dimensions. What is in memory is not read again."""
        state = (generation, dims, self.db.execute("PRAGMA data_version").get)
        block, before = self._block, self._block_state
        self._block, self._block_state = None, state  # until it is complete: reading may fail
        query = f"FROM {self.prefix}chunks_vec WHERE length(code) = ?"
        new: list[Any] = []
        if block is not None and before == state:
            if self._written:
                block.drop({row for row in self._written if row <= self._newest})
                new = self._codes_of(sorted(self._written), dims)
        elif block is not None and before[:2] == state[:2]:  # another process has written
            current = {row for (row,) in self.db.execute(f"SELECT row {query}", (dims,))}
            block.drop(set(block.rows) - current)
            new = self._codes_of(sorted(current.difference(block.rows)), dims)
        else:
            block = _VectorBlock(dims)
            new = self.db.execute(f"SELECT row, code {query}", (dims,)).fetchall()
        packed = b"".join(code for _, code in new)
        block.rows.extend(row for row, _ in new)
        block.packed.extend(packed)
        block.norms.extend(code_norms(packed, dims))
        self._newest = max(self._newest, max((row for row, _ in new), default=0))
        self._written.clear()
        self._block = block
        return block

    def _codes_of(self, rows: Sequence[int], dims: int) -> list[tuple[int, bytes]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE {IN_ROWS} AND length(code) = ?"
        codes: list[Any] = self.db.execute(query, (pack_rows(rows), dims)).fetchall()
        return codes

    def _first(self, near: list[tuple[float, int]], limit: int) -> list[tuple[int, float]]:
        """Return the nearest rows with their cosine. Of equally near rows at the end, the first by path and line."""
        best = sorted(near)
        if len(best) > limit:
            bound = best[limit - 1][0]
            tied = pack_rows([row for distance, row in best if distance == bound])
            best = [(distance, row) for distance, row in best if distance < bound]
            query = f"SELECT row FROM {self.prefix}chunks c WHERE {IN_ROWS} ORDER BY {CHUNK_ORDER} LIMIT ?"
            best += [(bound, row) for (row,) in self.db.execute(query, (tied, limit - len(best)))]
        return [(row, 1.0 - distance) for distance, row in best]


def _positions(rows: array[int], allowed: set[int]) -> list[int]:
    """Return where the allowed rows are."""
    np = loaded_numpy()
    if np is None:
        return [at for at, row in enumerate(rows) if row in allowed]
    wanted = np.fromiter(allowed, dtype=np.int64, count=len(allowed))
    positions: list[int] = np.flatnonzero(np.isin(np.frombuffer(rows, dtype=np.int64), wanted)).tolist()
    return positions


_SAMPLE_STEP = 16


def loaded_numpy() -> Any:
    """Return numpy if the process has imported it, else None: importing it takes longer than a small index needs."""
    if "numpy" not in sys.modules:
        return None
    import numpy as np  # waits if another thread is importing it

    return np


def quantise(row: bytes) -> bytes:
    """Convert float32 to int8."""
    values = memoryview(row).cast("f") if sys.byteorder == "little" else struct.unpack(f"<{len(row) // 4}f", row)
    scale = 127.0 / (max(map(abs, values), default=0.0) or 1.0)
    np = loaded_numpy()
    if np is not None:  # ten times as fast, with the same result: both round halves to even
        code: bytes = np.rint(np.array(values, dtype=np.float64) * scale).astype(np.int8).tobytes()
        return code
    return array("b", [round(value * scale) for value in values]).tobytes()


# distances


def cosine_distances(query: bytes, codes: bytes | bytearray, norms: array[float] | None = None) -> memoryview[float]:
    """Return one minus the cosine of a code with each of the codes packed end to end, as float64.

    ``norms`` are those of the codes, if they are known. Zeros have no direction: their cosine is 0.
    """
    if norms is None:
        norms = code_norms(codes, len(query))
    norm = math.sqrt(sum(value * value for value in array("b", query)))
    dots = _simd_distances(query, codes, "dot")
    np = loaded_numpy()
    if np is not None:
        lengths = norm * np.frombuffer(norms)
        lengths[lengths == 0] = np.inf
        return memoryview(1.0 - np.frombuffer(dots) / lengths)
    pairs = zip(dots, norms, strict=True)
    return memoryview(array("d", [1.0 - dot / (norm * other) if norm * other else 1.0 for dot, other in pairs]))


def code_norms(codes: bytes | bytearray, dims: int) -> array[float]:
    """Return the length of each of the codes packed end to end, as float64."""
    return array("d", map(math.sqrt, _simd_distances(bytes(dims), codes, "sqeuclidean")))


def _simd_distances(
    query: bytes, packed: bytes | bytearray, metric: Literal["dot", "sqeuclidean"]
) -> memoryview[float]:
    import simsimd

    if not packed:
        return memoryview(array("d"))
    shape = (len(packed) // len(query), len(query))
    single = memoryview(query).cast("b", (1, shape[1]))
    rows = memoryview(packed).cast("b", shape)
    distances: Any = simsimd.cdist(single, rows, metric, dtype="int8")
    return memoryview(distances).cast("B").cast("d")


def smallest(distances: memoryview[float], limit: int) -> list[tuple[float, int]]:
    """Return the smallest distances with their positions, unordered, and all that tie with the largest of them.

    Uses numpy only if the process has imported it already: importing it takes longer than a search.
    """
    np = loaded_numpy()
    if np is None or len(distances) <= limit:
        values: Sequence[float] = distances.tolist()
        bound = heapq.nsmallest(limit, values)[-1] if values else 0.0
        return [(value, at) for at, value in enumerate(values) if value <= bound]
    array_ = np.frombuffer(distances)
    sample = array_[::_SAMPLE_STEP]  # tells how small the smallest are: partitioning all takes ten times as long
    at = min(len(sample) - 1, 2 * limit // _SAMPLE_STEP + _SAMPLE_STEP)
    near = np.flatnonzero(array_ <= np.partition(sample, at)[at])
    near = near if len(near) >= limit else np.arange(len(array_))
    close = array_[near]
    closest = close <= np.partition(close, limit - 1)[limit - 1]
    return list(zip(close[closest].tolist(), near[closest].tolist(), strict=True))
