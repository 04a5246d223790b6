"""Cache of embeddings, so that each text is paid for once, whichever workspace it is in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kept.index.postgres.index import PostgresIndex

_REFRESH_AFTER_S = 86_400


class PostgresEmbeddings:
    """Codes of vectors by embedder and hash of the text. Evicts the least recently used."""

    def __init__(self, index: PostgresIndex) -> None:
        self._database = index.database

    def exists(self) -> bool:
        return True

    def find(self, identity: str, hashes: Iterable[bytes], dims: int) -> dict[bytes, bytes]:
        """Return the cached codes by hash. ``dims`` is 0 if the embedder learns its dimensions only from a call."""
        rows = self._database.query(
            "SELECT hash, code FROM kept.embeddings WHERE identity = %(identity)s AND hash = ANY(%(hashes)s)"
            " AND octet_length(code) = coalesce(nullif(%(dims)s, 0), octet_length(code))",
            identity=identity,
            hashes=list(hashes),
            dims=dims,
        )
        return dict(rows)

    def put(self, identity: str, codes: Mapping[bytes, bytes], *, used: Collection[bytes] = (), now_s: int) -> None:
        """Store codes by hash, and mark others as ``used``, each at most once a day."""
        if codes:
            self._database.query(
                "INSERT INTO kept.embeddings SELECT %(identity)s, hash, code, %(now)s"
                " FROM unnest(%(hashes)s::bytea[], %(codes)s::bytea[]) AS t (hash, code)"
                " ON CONFLICT (identity, hash) DO UPDATE SET code = excluded.code, used_at = excluded.used_at"
                " RETURNING 1",
                identity=identity,
                hashes=[*codes],
                codes=[*codes.values()],
                now=now_s,
            )
        if used:
            self._database.query(
                "UPDATE kept.embeddings SET used_at = %(now)s WHERE identity = %(identity)s"
                " AND hash = ANY(%(hashes)s) AND used_at < %(stale)s RETURNING 1",
                identity=identity,
                hashes=list(used),
                now=now_s,
                stale=now_s - _REFRESH_AFTER_S,
            )

    def evict(self, max_entries: int) -> int:
        """Delete the least recently used entries above a number. Return how many."""
        surplus = self.count() - max_entries
        if surplus > 0:
            self._database.query(
                "DELETE FROM kept.embeddings WHERE (identity, hash) IN (SELECT identity, hash FROM kept.embeddings"
                " ORDER BY used_at, identity, hash LIMIT %(surplus)s) RETURNING 1",
                surplus=surplus,
            )
        return max(0, surplus)

    def count(self) -> int:
        return int(self._database.query("SELECT count(*) FROM kept.embeddings")[0][0])

    def find_damage(self) -> list[str]:
        return []

    def keep_only(self, hashes: Collection[bytes]) -> None:
        """Remove the entries of all other texts."""
        self._database.query(
            "DELETE FROM kept.embeddings WHERE hash <> ALL(%(hashes)s) RETURNING 1", hashes=list(hashes)
        )

    def close(self) -> None:
        pass
