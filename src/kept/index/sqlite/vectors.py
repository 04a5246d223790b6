"""Nearest neighbours among the vectors of chunks.

A process reads the codes (`vector_codes`) once and keeps them end to end in memory, where one call of a kernel compares
them all: for 100,000 that takes 2 ms and 38 MB. After a change it reads the codes of new rows, and drops those of rows
that are gone. It knows which ones it has written itself; what another process wrote, it finds by the numbers of rows.
"""

from __future__ import annotations

import heapq
import importlib
from array import array
from collections.abc import Sequence
from typing import Any

import apsw

from kept.base.sqlite import IN_ROWS, pack_rows
from kept.index.sqlite.vector_codes import code_norms, cosine_distances, loaded_numpy, smallest

CHUNK_ORDER = "c.path, c.start_line, c.row"
"""Order of `chunks c` by content, regardless of when they were indexed. Within a line, row numbers follow the text:
its chunks are written together (`Generation.replace_file`)."""

_WORTH_NUMPY = ((3, 8_000), (20, 200))
"""Scans, and rows from which on numpy is imported then. That takes longer than a search. A process that keeps searching
earns it back, sooner with many rows; one that ends after a search does not."""
_FEW_ROWS = 5_000
"""Up to this many rows, a filtered search reads the codes of these rows and compares no others."""


class _VectorBlock:
    """Codes of rows, end to end, in no order."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self.rows = array("q")
        """Row numbers."""
        self.packed = bytearray()
        self.norms = array("d")

    def append(self, codes: Sequence[tuple[int, bytes]]) -> None:
        packed = b"".join(code for _, code in codes)
        self.rows.extend(row for row, _ in codes)
        self.packed += packed
        self.norms.extend(code_norms(packed, self.dims))

    def drop(self, rows: set[int]) -> None:
        """Drop rows. The last one takes the place of each, so that the others need not move."""
        for at in reversed(_positions(self.rows, rows) if rows else []):
            row, norm, code = self.rows.pop(), self.norms.pop(), self.packed[-self.dims :]
            del self.packed[-self.dims :]
            if at < len(self.rows):
                self.rows[at], self.norms[at] = row, norm
                self.packed[at * self.dims : (at + 1) * self.dims] = code


class VectorTable:
    """Vectors of the chunks of one generation. Each code is a row of `chunks_vec`. Callers hold the transaction."""

    def __init__(self, db: apsw.Connection, prefix: str = "") -> None:
        self.db = db
        self.prefix = prefix
        self._block: _VectorBlock | None = None
        self._block_state: tuple[object, ...] = ()
        """Generation, dimensions, and the number of commits by others with which the block was read."""
        self._written: set[int] = set()
        """Rows that this connection has put or removed since then. They are read again, rather than taken in at once:
        the transaction may have been rolled back."""
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
        query = f"SELECT length(code) FROM {self.prefix}chunks_vec ORDER BY row"
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
        block = self._load(len(code), generation)
        self._scans += 1
        if any(self._scans == scans and len(block.rows) >= rows for scans, rows in _WORTH_NUMPY):
            importlib.import_module("numpy")
        distances = cosine_distances(code, block.packed, block.norms)
        if among is None:
            close = smallest(distances, limit)
        else:
            close = [(distances[at], at) for at in _positions(block.rows, set(among))]
        return self._first([(distance, block.rows[at]) for distance, at in close], limit)

    def similarities(self, code: bytes, rows: Sequence[int], *, limit: int | None = None) -> list[tuple[int, float]]:
        """Return the cosine of each of these rows that has a vector, best first."""
        codes = self._codes_of(rows, len(code)) if rows else []
        if not codes:
            return []
        distances = cosine_distances(code, b"".join(packed for _, packed in codes))
        near = list(zip(distances, (row for row, _ in codes), strict=True))
        return self._first(near, len(rows) if limit is None else limit)

    def _load(self, dims: int, generation: object) -> _VectorBlock:
        """Return the codes of these dimensions. What is in memory is not read again."""
        state = (generation, dims, self.db.execute("PRAGMA data_version").get)
        block, before = self._block, self._block_state
        self._block, self._block_state = None, state  # until it is complete: reading may fail
        query = f"FROM {self.prefix}chunks_vec WHERE length(code) = ?"
        new: list[Any] = []
        if block is not None and before == state:
            if self._written:
                block.drop(self._written)
                new = self._codes_of(sorted(self._written), dims)
        elif block is not None and before[:2] == state[:2]:  # another process has written
            current = {row for (row,) in self.db.execute(f"SELECT row {query}", (dims,))}
            block.drop(set(block.rows) - current)
            new = self._codes_of(sorted(current.difference(block.rows)), dims)
        else:
            block = _VectorBlock(dims)
            new = self.db.execute(f"SELECT row, code {query}", (dims,)).fetchall()
        block.append(new)
        self._written.clear()
        self._block = block
        return block

    def _codes_of(self, rows: Sequence[int], dims: int) -> list[tuple[int, bytes]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE {IN_ROWS} AND length(code) = ?"
        codes: list[Any] = self.db.execute(query, (pack_rows(rows), dims)).fetchall()
        return codes

    def _in_order(self, rows: Sequence[int], limit: int) -> list[int]:
        query = f"SELECT c.row FROM {self.prefix}chunks c WHERE c.{IN_ROWS} ORDER BY {CHUNK_ORDER} LIMIT ?"
        return [row for (row,) in self.db.execute(query, (pack_rows(rows), limit))]

    def _first(self, near: list[tuple[float, int]], limit: int) -> list[tuple[int, float]]:
        """Return the nearest rows with their cosine. Of equally near rows at the end, the first by path and line."""
        best = sorted(_closest(near, limit))
        if len(best) > limit:
            bound = best[-1][0]
            tied = [row for distance, row in best if distance == bound]
            best = best[: len(best) - len(tied)]
            best += [(bound, row) for row in self._in_order(tied, limit - len(best))]
        return [(row, 1.0 - distance) for distance, row in best]


def _positions(rows: array[int], allowed: set[int]) -> list[int]:
    """Return where the allowed rows are."""
    np = loaded_numpy()
    if np is None:
        return [at for at, row in enumerate(rows) if row in allowed]
    wanted = np.fromiter(allowed, dtype=np.int64, count=len(allowed))
    positions: list[int] = np.flatnonzero(np.isin(np.frombuffer(rows, dtype=np.int64), wanted)).tolist()
    return positions


def _closest(near: list[tuple[float, int]], limit: int) -> list[tuple[float, int]]:
    """Return the nearest, and all that tie with the last of them: the caller decides between those."""
    if len(near) <= limit:
        return near
    bound = heapq.nsmallest(limit, [distance for distance, _ in near])[-1]
    return [(distance, row) for distance, row in near if distance <= bound]
