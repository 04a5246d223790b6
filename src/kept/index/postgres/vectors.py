"""Vectors of one generation. The server finds the nearest; their cosine is worked out here, by the same kernel as for
SQLite, so that scores are the same to the last digit."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kept.index.sqlite.vectors import cosine_distances

if TYPE_CHECKING:
    from kept.index.postgres.generation import PostgresGeneration


# Rows that are read beyond those that are wanted: the server adds up in single precision, so ties may swap.
_SPARE = 16


class PostgresVectors:
    def __init__(self, generation: PostgresGeneration) -> None:
        self._generation = generation
        self._run = generation.run

    def put(self, codes: Sequence[tuple[int, bytes]]) -> None:
        space = self._generation.space
        self._generation.index.run_many(
            "INSERT INTO kept.vectors (row, space, code) VALUES (%(row)s, %(space)s, %(code)s::public.halfvec)"
            " ON CONFLICT (space, tier, row) DO UPDATE SET code = excluded.code",
            [{"row": row, "space": space, "code": to_halfvec(code)} for row, code in codes],
        )

    def remove(self, rows: Sequence[int]) -> None:
        self._generation.index.run_many(
            "DELETE FROM kept.vectors WHERE space = %(space)s AND row = ANY(%(rows)s)",
            [{"space": self._generation.space, "rows": list(rows)}],
        )

    def count(self) -> int:
        return int(self._run("SELECT count(*) FROM kept.vectors WHERE space = %(space)s")[0][0])

    def sizes(self) -> set[int]:
        """Return the dimensions of the oldest and the newest code, which are the same in a sound index."""
        query = "SELECT public.vector_dims(code) FROM kept.vectors WHERE space = %(space)s ORDER BY tier {0}, row {0}"
        ends = " UNION ALL ".join(f"({query.format(order)} LIMIT 1)" for order in ("", "DESC"))
        return {dims for (dims,) in self._run(ends)}

    def nearest(
        self, code: bytes, limit: int, *, among: Sequence[int] | None = None, generation: object = None
    ) -> list[tuple[int, float]]:
        """Return the rows with the highest cosine, best first. ``among`` limits the rows."""
        rows = self._run(
            "SELECT v.row, public.halfvec_send(v.code), c.path, c.start_line FROM (SELECT row, code FROM kept.vectors"
            " WHERE space = %(space)s AND public.vector_dims(code) = %(dims)s"
            " AND (%(among)s::bigint[] IS NULL OR row = ANY(%(among)s))"
            " ORDER BY code OPERATOR(public.<=>) %(code)s::public.halfvec LIMIT %(limit)s) v"
            " JOIN kept.chunks c ON c.row = v.row",
            among=None if among is None else list(among),
            code=to_halfvec(code),
            dims=len(code),
            limit=limit + _SPARE,
        )
        near = cosines(code, ((row, to_code(sent)) for row, sent, _, _ in rows))
        order = {row: (-near[row], path, line, row) for row, _, path, line in rows}
        return [(row, near[row]) for row in sorted(near, key=order.__getitem__)[:limit]]

    def similarities(self, code: bytes, rows: Sequence[int], *, limit: int | None = None) -> list[tuple[int, float]]:
        """Return the cosine of each of these rows that has a vector, best first."""
        if not rows:
            return []
        codes = self._run(
            "SELECT row, public.halfvec_send(code) FROM kept.vectors"
            " WHERE space = %(space)s AND tier = 0 AND row = ANY(%(rows)s)",
            rows=list(rows),
        )
        near = cosines(code, ((row, to_code(sent)) for row, sent in codes))
        return sorted(near.items(), key=lambda pair: -pair[1])[:limit]

    def codes_of_file(self, source: str, path: str) -> dict[bytes, bytes]:
        rows = self._run(
            "SELECT c.embed_hash, public.halfvec_send(v.code) FROM kept.chunks c JOIN kept.vectors v ON v.row = c.row"
            " WHERE c.space = %(space)s AND c.source = %(source)s AND c.path = %(path)s",
            source=source,
            path=path,
        )
        return {key: to_code(sent) for key, sent in rows}


def to_halfvec(code: bytes) -> str | None:
    """Return a code as the server reads it. None stands for the empty code of a text that its embedder refuses."""
    return f"[{','.join(map(str, array('b', code)))}]" if code else None


def to_code(sent: bytes | None) -> bytes:
    """Return the int8 code of a half vector as the server sends it: two numbers of 16 bits, then the components."""
    if sent is None:
        return b""
    import numpy as np

    code: bytes = np.frombuffer(sent, dtype=">f2", offset=4).astype(np.int8).tobytes()
    return code


def cosines(code: bytes, codes: Iterable[tuple[int, bytes]]) -> dict[int, float]:
    """Return the cosine of a code with each of the codes, by row."""
    rows, packed = [], bytearray()
    for row, other in codes:
        if len(other) == len(code):  # a rebuild may have left others
            rows.append(row)
            packed += other
    distances: Any = cosine_distances(code, packed) if rows else ()
    return {row: 1.0 - distance for row, distance in zip(rows, distances, strict=True)}
