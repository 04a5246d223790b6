"""Cache of embeddings, so that each is paid for once. Kept across rebuilds; evicts the least recently used."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

_REFRESH_AFTER_S = 86_400


class EmbeddingCache:
    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def find(self, identity: str, hashes: Iterable[bytes], dims: int) -> dict[bytes, bytes]:
        """Return the cached vectors by hash. ``dims`` is 0 if the embedder learns its dimensions only from a call."""
        query = "SELECT embedding FROM embedding_cache WHERE identity = ? AND hash = ?"
        vectors: dict[bytes, bytes] = {}
        for key in hashes:
            value = self.db.execute(query, (identity, key)).get
            if isinstance(value, bytes) and value and len(value) == 4 * (dims or len(value) // 4):
                vectors[key] = value
        return vectors

    def put(self, identity: str, vectors: Iterable[tuple[bytes, bytes]], *, now_s: int) -> None:
        self.db.executemany(
            "INSERT OR REPLACE INTO embedding_cache (identity, hash, embedding, dims, used_at) VALUES (?, ?, ?, ?, ?)",
            ((identity, key, vector, len(vector) // 4, now_s) for key, vector in vectors),
        )

    def used(self, identity: str, hashes: Iterable[bytes], *, now_s: int) -> None:
        """Mark entries as used, each at most once a day: a sync that changes nothing should write nothing."""
        self.db.executemany(
            "UPDATE embedding_cache SET used_at = ? WHERE identity = ? AND hash = ? AND used_at < ?",
            ((now_s, identity, key, now_s - _REFRESH_AFTER_S) for key in hashes),
        )

    def evict(self, max_entries: int) -> int:
        """Delete the least recently used entries above a number. Return how many."""
        surplus = self.count() - max_entries
        if surplus <= 0:
            return 0
        self.db.execute(
            "DELETE FROM embedding_cache WHERE rowid IN"
            " (SELECT rowid FROM embedding_cache ORDER BY used_at, rowid LIMIT ?)",
            (surplus,),
        )
        return surplus

    def count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM embedding_cache").get)
