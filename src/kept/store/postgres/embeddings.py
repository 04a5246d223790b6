"""The cache of embeddings that all workspaces of a team share, so that each text is paid for once."""

from __future__ import annotations

from collections.abc import Iterable

from kept.store.postgres.index_session import IndexSession
from kept.store.vector_codes import dequantise, quantise

_REFRESH_AFTER_S = 86_400


class PostgresEmbeddings:
    """Embeddings by embedder and text. Callers hold the transaction."""

    def __init__(self, session: IndexSession) -> None:
        self._session = session

    def find(self, identity: str, hashes: Iterable[bytes], dims: int) -> dict[bytes, bytes]:
        """Return the cached vectors by hash. ``dims`` is 0 if the embedder learns its dimensions only from a call."""
        wanted = [*hashes]
        if not wanted:
            return {}
        query = "SELECT hash, code FROM embedding_cache WHERE identity = %s AND hash = ANY(%s)"
        rows = self._session.fetch(query, [identity, wanted])
        return {key: dequantise(code) for key, code in rows if len(code) == (dims or len(code))}

    def put(self, identity: str, vectors: Iterable[tuple[bytes, bytes]], *, now_s: int) -> None:
        codes = {key: quantise(vector) for key, vector in vectors}
        if codes:
            self._session.execute(
                "INSERT INTO embedding_cache (identity, hash, code, used_at)"
                " SELECT %s, hash, code, %s FROM unnest(%s::bytea[], %s::bytea[]) v(hash, code) ORDER BY hash"
                " ON CONFLICT (identity, hash) DO UPDATE SET code = excluded.code, used_at = excluded.used_at",
                [identity, now_s, [*codes], [*codes.values()]],
            )

    def mark_used(self, identity: str, hashes: Iterable[bytes], *, now_s: int) -> None:
        """Mark entries as used, each at most once a day. An entry that another process marks now is left to it."""
        self._session.execute(
            "UPDATE embedding_cache e SET used_at = %s FROM (SELECT identity, hash FROM embedding_cache"
            " WHERE identity = %s AND hash = ANY(%s) AND used_at < %s ORDER BY hash FOR UPDATE SKIP LOCKED) u"
            " WHERE e.identity = u.identity AND e.hash = u.hash",
            [now_s, identity, [*hashes], now_s - _REFRESH_AFTER_S],
        )

    def evict(self, max_entries: int) -> int:
        """Delete the least recently used entries above a number for each workspace of the team. Return how many.

        A process without a cache evicts nothing: the entries are those of others.
        """
        if max_entries <= 0:
            return 0
        surplus = self.count() - self.capacity(max_entries)
        if surplus <= 0:
            return 0
        rows = self._session.fetch_written(
            "DELETE FROM embedding_cache WHERE (identity, hash) IN (SELECT identity, hash FROM embedding_cache"
            " ORDER BY used_at LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING 1",
            [surplus],
        )
        return len(rows)

    def capacity(self, max_entries: int) -> int:
        """Return the sum over the workspaces of the team that have an index."""
        workspaces = self._session.fetch_value("SELECT count(*) FROM workspaces WHERE live IS NOT NULL")
        return max_entries * max(1, int(workspaces))

    def count(self) -> int:
        return int(self._session.fetch_value("SELECT count(*) FROM embedding_cache"))
