"""Nearest neighbours among the vectors of chunks.

A process reads the codes (`vector_codes`) once and keeps them end to end in memory, where one call of a kernel compares
them all. So that a change costs little, rows are kept by packs of some thousand: a pack never changes. Rows that are
not in a pack yet are read for each search; rows that were deleted but are still in a pack are skipped; a pack that is
mostly deleted rows is dissolved.

Every code is compared up to ``bits_above`` rows: for 100,000 that takes 2 ms and 26 MB, for a million ten times as
much. Above that, memory only holds a bit per dimension, which is also stored in the packs. The bits find candidates,
and codes rank them. They miss one in twelve of the ten nearest passages of a million (`benchmarks.sign_bits`), so they
are used where memory runs out first. Which candidates these are does not depend on the packs.
"""

from __future__ import annotations

import heapq
import importlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import apsw

from kept.sqlite import IN_ROWS, pack_rows
from kept.store.vector_codes import code_norms, cosine_distances, hamming_distances, loaded_numpy, sign_bits, smallest
from kept.values import frozen

CHUNK_ORDER = "c.path, c.start_line, c.row"
"""Order of `chunks c` by content, regardless of when they were indexed. Within a line, row numbers follow the text:
its chunks are written together (`Generation.replace_file`)."""

_WORTH_NUMPY = ((3, 8_000), (20, 200))
"""Scans, and rows from which on numpy is imported then. That takes longer than a search. A process that keeps searching
earns it back, sooner with many rows; one that ends after a search does not."""


@frozen
class VectorLimits:
    """Numbers of rows."""

    pack_rows: int = 4096
    """Rows in a full pack."""
    pack_when: int = 512
    """Unpacked rows that are worth a pack."""
    bits_above: int = 1_000_000
    """Above this, candidates are found by their sign bits."""
    least_rescored: int = 4_000
    """Candidates by sign bits whose codes are compared, at least."""
    rescored_per_result: int = 24
    """The same for each result that is asked for."""
    few_rows: int = 5_000
    """Up to this many rows, a filtered search compares the rows and not the packs."""


class _VectorBlock:
    """Codes or sign bits of packed rows, end to end."""

    def __init__(
        self,
        kind: Literal["codes", "bits"],
        packs: Mapping[int, tuple[int, int]],
        rows: array[int],
        packed: bytes,
        norms: memoryview[float] | None = None,
    ) -> None:
        self.kind = kind
        self.packs = packs
        """First and last row of each pack, as positions in the block."""
        self.rows = rows
        """Row numbers."""
        self.packed = packed
        self.norms = norms
        self._compared: tuple[bytes, memoryview[float]] | None = None
        """The last query, and its distances."""

    @cached_property
    def _order(self) -> tuple[Any, Any]:
        """The row numbers in order, and their positions."""
        import numpy as np

        rows = np.frombuffer(self.rows, dtype=np.int64)
        positions = np.argsort(rows, kind="stable")
        return rows[positions], positions

    def measure(self, query: bytes, rows: Sequence[int]) -> list[tuple[float, int]]:
        """Return the distances of those of the given rows that `distances` has compared with this query, if the process
        has imported numpy."""
        np = loaded_numpy()
        if np is None or self.kind != "codes" or not self.rows or self._compared is None or self._compared[0] != query:
            return []
        ordered, positions = self._order
        wanted = np.array(rows, dtype=np.int64)
        at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        is_here = ordered[at] == wanted
        distances = np.frombuffer(self._compared[1])[positions[at[is_here]]]
        return list(zip(distances.tolist(), wanted[is_here].tolist(), strict=True))

    def distances(self, query: bytes) -> memoryview[float]:
        if self.kind == "bits":
            return hamming_distances(query, self.packed)
        compared = cosine_distances(query, self.packed, self.norms)
        self._compared = query, compared
        return compared


PackPart = tuple["array[int]", bytes | memoryview]
"""Row numbers of a pack, and their codes or bits."""
_NO_BLOCK = _VectorBlock("codes", {}, array("q"), b"")


class VectorTable:
    """Vectors of the chunks of one generation. Each code is a row of `chunks_vec`. Callers hold the transaction."""

    def __init__(self, db: apsw.Connection, prefix: str = "", limits: VectorLimits | None = None) -> None:
        self.db = db
        self.prefix = prefix
        self.limits = limits or VectorLimits()
        self._block = _NO_BLOCK
        self._block_generation: object = None
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
            bits = b"".join(sign_bits(code) for _, code in unpacked)
            self.db.execute(f"INSERT INTO {self.prefix}vec_packs (rows, bits) VALUES (?, ?)", (rows.tobytes(), bits))
            members = [(self.db.last_insert_rowid(), row) for row in rows]
            self.db.executemany(f"UPDATE {self.prefix}chunks_vec SET pack = ? WHERE row = ?", members)

    def pack_again(self) -> None:
        """Write every pack again, without the vectors of deleted rows."""
        self.db.execute(f"UPDATE {self.prefix}chunks_vec SET pack = NULL WHERE pack IS NOT NULL")
        self.db.execute(f"DELETE FROM {self.prefix}vec_packs")
        self.db.execute(f"DELETE FROM {self.prefix}vec_dead")
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

    def _read_sizes(self) -> dict[int, int]:
        return dict(self.db.execute(f"SELECT id, length(rows) / 8 FROM {self.prefix}vec_packs"))

    def _read_unpacked(self, dims: int) -> list[tuple[int, bytes]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE pack IS NULL AND length(code) = ?"
        codes: list[Any] = self.db.execute(query, (dims,)).fetchall()
        return codes

    def _read_dead(self) -> set[int]:
        return {row for (row,) in self.db.execute(f"SELECT row FROM {self.prefix}vec_dead")}

    def _codes_of(self, rows: Sequence[int], dims: int) -> list[tuple[int, bytes]]:
        query = f"SELECT row, code FROM {self.prefix}chunks_vec WHERE {IN_ROWS} AND length(code) = ?"
        codes: list[Any] = self.db.execute(query, (pack_rows(rows), dims)).fetchall()
        return codes

    def _in_order(self, rows: Sequence[int], limit: int) -> list[int]:
        query = f"SELECT c.row FROM {self.prefix}chunks c WHERE c.{IN_ROWS} ORDER BY {CHUNK_ORDER} LIMIT ?"
        return [row for (row,) in self.db.execute(query, (pack_rows(rows), limit))]

    def _read_bits(self, packs: Sequence[int]) -> dict[int, PackPart]:
        query = f"SELECT id, rows, bits FROM {self.prefix}vec_packs WHERE id IN (SELECT value FROM json_each(?))"
        rows: Iterable[Any] = self.db.execute(query, (pack_rows(packs),))
        return {pack: (array("q", numbers), bits) for pack, numbers, bits in rows}

    def _read_codes(self, packs: Sequence[int]) -> dict[int, PackPart]:
        """Return row numbers and codes of packs, in one pass over the table."""
        numbers: dict[int, array[int]] = {pack: array("q") for pack in packs}
        codes: dict[int, list[bytes]] = {pack: [] for pack in packs}
        query = f"SELECT row, code, pack FROM {self.prefix}chunks_vec WHERE "
        is_one = len(packs) == 1
        values = (packs[0],) if is_one else ()
        for row, code, pack in self.db.execute(query + ("pack = ?" if is_one else "+pack IS NOT NULL"), values):
            if pack in codes:
                numbers[pack].append(row)
                codes[pack].append(code)
        return {pack: (numbers[pack], b"".join(codes[pack])) for pack in packs}

    # the nearest

    def nearest(
        self, code: bytes, limit: int, *, among: Sequence[int] | None = None, generation: object = None
    ) -> list[tuple[int, float]]:
        """Return the rows with the highest cosine, best first.

        ``among`` limits the rows. A new ``generation`` tells that packs in memory are stale.
        """
        if generation != self._block_generation:
            self._block, self._block_generation = _NO_BLOCK, generation
        if among is not None and len(among) <= self.limits.few_rows:
            return self.similarities(code, among, limit=limit)
        allowed = None if among is None else set(among)
        packs = self._read_sizes()
        packed_rows = sum(packs.values())
        unpacked = self._read_unpacked(len(code))
        self._scans += 1
        if any(self._scans == scans and packed_rows + len(unpacked) >= rows for scans, rows in _WORTH_NUMPY):
            importlib.import_module("numpy")
        dead = self._read_dead()
        if self._has_many(packed_rows + len(unpacked), len(dead)):
            candidates = max(self.limits.least_rescored, limit * self.limits.rescored_per_result)
            bits = sign_bits(code)
            near = self._scan(bits, self._load("bits", packs), candidates, allowed, dead)
            near = _closest(near + _measure_bits(bits, unpacked, allowed), candidates)
            rows = [row for _, row in _trim_ties(near, candidates, least=limit)]
            return self.similarities(code, rows, limit=limit, allowed=allowed)
        near = self._scan(code, self._load("codes", packs), limit, allowed, dead)
        return self._first(near + self._measure(code, unpacked, allowed), limit)

    def _has_many(self, rows: int, dead: int) -> bool:
        """Return whether candidates are found by their sign bits. ``rows`` are those in packs and beside them, of which
        some may be dead: it depends on the vectors alone, and not on how they are packed."""
        many = self.limits.bits_above
        return rows - dead > many or (rows > many and self.count() > many)

    def similarities(
        self,
        code: bytes,
        rows: Sequence[int],
        *,
        limit: int | None = None,
        allowed: set[int] | None = None,
        generation: object = None,
    ) -> list[tuple[int, float]]:
        """Return the cosine of each of these rows that has a vector, best first.

        Rows that a search for the nearest in the same ``generation`` has just compared are not read again.
        """
        limit = len(rows) if limit is None else limit
        near: list[tuple[float, int]] = []
        if generation is not None and generation == self._block_generation and allowed is None:
            near = self._block.measure(code, rows)
            if len(near) == len(rows):
                return self._first(near, limit)
            measured = {row for _, row in near}
            rows = [row for row in rows if row not in measured]
        return self._first(near + self._measure(code, self._codes_of(rows, len(code)), allowed), limit)

    def _scan(
        self, query: bytes, block: _VectorBlock, limit: int, allowed: set[int] | None, dead: set[int]
    ) -> list[tuple[float, int]]:
        """Return the nearest rows of a block with their distances, and all that tie with the last of them."""
        rows = block.rows
        if len(block.packed) != len(rows) * len(query):
            return []  # of another embedder; the tables are rebuilt before a search needs these
        distances = block.distances(query)
        if allowed is None:
            close = smallest(distances, limit + len(dead))
        else:
            close = [(distances[at], at) for at in _positions(rows, allowed)]
        return _closest([(distance, rows[at]) for distance, at in close if rows[at] not in dead], limit)

    # packs in memory

    def _load(self, kind: Literal["codes", "bits"], packs: Mapping[int, int]) -> _VectorBlock:
        """Return the block of these packs, given with their numbers of rows. What is in memory is not read again."""
        old = self._block if self._block.kind == kind else _NO_BLOCK
        if old.kind == kind and old.packs.keys() == packs.keys():
            return old
        missing = [pack for pack in packs if pack not in old.packs]
        parts = self._read_codes(missing) if kind == "codes" else self._read_bits(missing)
        width = len(old.packed) // max(1, len(old.rows))
        for pack, (first, end) in old.packs.items():
            parts[pack] = old.rows[first:end], memoryview(old.packed)[first * width : end * width]
        rows = array("q")
        spans: dict[int, tuple[int, int]] = {}
        for pack in packs:
            spans[pack] = len(rows), len(rows) + len(parts[pack][0])
            rows.extend(parts[pack][0])
        packed = b"".join(parts[pack][1] for pack in packs)
        dims = len(packed) // max(1, len(rows))
        norms = code_norms(packed, dims) if kind == "codes" and len(packed) == dims * len(rows) else None
        self._block = _VectorBlock(kind, spans, rows, packed, norms)
        return self._block

    def _measure(self, code: bytes, rows: list[tuple[int, bytes]], allowed: set[int] | None) -> list[tuple[float, int]]:
        """Return the distance of each row, given as row number and code."""
        rows = _allowed_rows(rows, allowed)
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
            best += [(bound, row) for row in self._in_order(tied, limit - len(best))]
        return [(row, 1.0 - distance) for distance, row in best]


def _allowed_rows(rows: list[tuple[int, bytes]], allowed: set[int] | None) -> list[tuple[int, bytes]]:
    return rows if allowed is None else [(row, packed) for row, packed in rows if row in allowed]


def _measure_bits(bits: bytes, rows: list[tuple[int, bytes]], allowed: set[int] | None) -> list[tuple[float, int]]:
    """Return in how many bits each row, given as row number and code, differs."""
    rows = _allowed_rows(rows, allowed)
    distances = hamming_distances(bits, b"".join(sign_bits(code) for _, code in rows))
    return list(zip(distances, (row for row, _ in rows), strict=True))


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


def _trim_ties(near: list[tuple[float, int]], count: int, *, least: int) -> list[tuple[float, int]]:
    """Keep or drop the rows tied for last, whichever comes closer to ``count``.

    With sign bits, hundreds of rows have the same distance, and every row that is kept has to be read.
    """
    bound = max((distance for distance, _ in near), default=0.0)
    closer = [(distance, row) for distance, row in near if distance < bound]
    return closer if len(near) - count > count - len(closer) and len(closer) >= least else near
