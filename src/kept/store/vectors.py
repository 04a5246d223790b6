"""Vectors of chunks in plain tables of the index file.

Each chunk's code is a row of `chunks_vec`. `vector_scan` finds the nearest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from kept.sqlite import IN_ROWS, pack_rows
from kept.store.vector_codes import sign_bits
from kept.store.vector_scan import CHUNK_ORDER, PackPart, VectorLimits, VectorScan


class VectorTable(VectorScan):
    def __init__(self, db: apsw.Connection, prefix: str = "", limits: VectorLimits | None = None) -> None:
        super().__init__(limits)
        self.db = db
        self.prefix = prefix

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
