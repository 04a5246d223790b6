"""Vectors of chunks. A process reads them by packs, and compares them itself (`vector_scan`)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from kept.store.memo import StateMemo
from kept.store.postgres.index_session import IndexSession
from kept.store.vector_codes import sign_bits
from kept.store.vector_scan import CHUNK_ORDER, PackPart, VectorLimits, VectorScan

T = TypeVar("T")

VECTOR_COLUMNS = (("generation", "int4"), ("row", "int4"), ("code", "bytea"))
LOOSE_COLUMNS = VECTOR_COLUMNS[:2]
_PACKS_AT_ONCE = 32
"""Packs that are read by one query. Its result is in memory besides them: some 32 MB."""


class PostgresVectors(VectorScan):
    def __init__(self, session: IndexSession, generation: Callable[[], int], limits: VectorLimits | None) -> None:
        super().__init__(limits)
        self._session = session
        self._generation = generation
        self._memo = StateMemo()

    def _remember(self, key: Hashable, work_out: Callable[[], T]) -> T:
        return self._memo.remember((self._session.state(), self._generation()), key, work_out)

    # writing

    def put(self, codes: Iterable[tuple[int, bytes]]) -> None:
        generation = self._generation()
        rows = [(generation, row, code) for row, code in codes]
        self.remove([row for _, row, _ in rows])
        self._session.copy("chunk_vectors", VECTOR_COLUMNS, rows)
        self._session.copy("loose_vectors", LOOSE_COLUMNS, [row[:2] for row in rows])

    def remove(self, rows: Sequence[int]) -> None:
        for table in ("chunk_vectors", "loose_vectors") if rows else ():
            self._session.execute(
                f"DELETE FROM {table} WHERE generation = %s AND row = ANY(%s)", [self._generation(), [*rows]]
            )

    def maintain(self) -> None:
        """Pack the vectors that are in no pack."""
        session, generation = self._session, self._generation()
        while True:
            loose = session.fetch(
                "SELECT row, code FROM loose_vectors JOIN chunk_vectors USING (generation, row)"
                " WHERE generation = %s ORDER BY row LIMIT %s",
                [generation, self.limits.pack_rows],
            )
            if len(loose) < self.limits.pack_when:
                return
            rows = array("q", [row for row, _ in loose])
            codes = b"".join(code for _, code in loose)
            bits = b"".join(sign_bits(code) for _, code in loose)
            session.execute(
                "WITH new AS (UPDATE generations SET pack = pack + 1 WHERE id = %s RETURNING id, pack)"
                " INSERT INTO vector_packs (generation, id, count, rows, codes, bits)"
                " SELECT id, pack, %s, %s, %s, %s FROM new",
                [generation, len(rows), rows.tobytes(), codes, bits],
            )
            session.execute(
                "DELETE FROM loose_vectors WHERE generation = %s AND row = ANY(%s)", [generation, rows.tolist()]
            )

    def repack(self) -> None:
        """Pack all vectors again, without those of dead rows."""
        session, generation = self._session, self._generation()
        session.execute("DELETE FROM vector_packs WHERE generation = %s", [generation])
        session.execute("DELETE FROM loose_vectors WHERE generation = %s", [generation])
        session.execute(
            "INSERT INTO loose_vectors (generation, row) SELECT generation, row FROM chunk_vectors"
            " WHERE generation = %s",
            [generation],
        )
        self.maintain()

    # reading

    def count(self) -> int:
        return int(
            self._session.fetch_value("SELECT count(*) FROM chunk_vectors WHERE generation = %s", [self._generation()])
        )

    def _read_sizes(self) -> dict[int, int]:
        query = "SELECT id, count FROM vector_packs WHERE generation = %s ORDER BY id"
        return self._remember("sizes", lambda: dict(self._session.fetch(query, [self._generation()])))

    def _read_unpacked(self, dims: int) -> list[tuple[int, bytes]]:
        query = "SELECT row FROM loose_vectors WHERE generation = %s ORDER BY row"

        def read() -> list[tuple[int, bytes]]:
            rows = [row for (row,) in self._session.fetch(query, [self._generation()])]
            return self._codes_of(rows, dims) if rows else []

        return self._remember(("loose", dims), read)

    def _read_dead(self) -> set[int]:
        query = "SELECT row FROM dead_rows WHERE generation = %s"
        return self._remember("dead", lambda: {row for (row,) in self._session.fetch(query, [self._generation()])})

    def _read_bits(self, packs: Sequence[int]) -> dict[int, PackPart]:
        return self._read_packs("bits", packs)

    def _read_codes(self, packs: Sequence[int]) -> dict[int, PackPart]:
        return self._read_packs("codes", packs)

    def _read_packs(self, column: str, packs: Sequence[int]) -> dict[int, PackPart]:
        query = f"SELECT id, rows, {column} FROM vector_packs WHERE generation = %s AND id = ANY(%s)"
        parts: dict[int, PackPart] = {}
        for at in range(0, len(packs), _PACKS_AT_ONCE):
            rows = self._session.fetch(query, [self._generation(), [*packs[at : at + _PACKS_AT_ONCE]]])
            parts.update((pack, (array("q", numbers), packed)) for pack, numbers, packed in rows)
        return parts

    def _codes_of(self, rows: Sequence[int], dims: int) -> list[tuple[int, bytes]]:
        return self._session.fetch(
            "SELECT row, code FROM chunk_vectors WHERE generation = %s AND row = ANY(%s) AND length(code) = %s",
            [self._generation(), [*rows], dims],
        )

    def _in_order(self, rows: Sequence[int], limit: int) -> list[int]:
        query = (
            f"SELECT c.row FROM chunks c WHERE c.generation = %s AND c.row = ANY(%s) ORDER BY {CHUNK_ORDER} LIMIT %s"
        )
        return [row for (row,) in self._session.fetch(query, [self._generation(), [*rows], limit])]
