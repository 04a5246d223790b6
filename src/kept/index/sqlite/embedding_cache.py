"""Cache of embeddings, so that each text is paid for once.

It is a file of its own beside the index: a damaged index is deleted and rebuilt without embedding anything again. It
holds codes, a quarter of the size of float32 vectors, because the index compares nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

import apsw

from kept.base.sqlite import (
    FileConnection,
    connect_or_read,
    discard_if_damaged,
    immediate,
    retry_damaged,
    rewrite_database,
    translated,
)
from kept.errors import StoreDamaged, StoreError

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations", "embeddings")
_NOUN = "embedding cache"
_REFRESH_AFTER_S = 86_400
_REPLACE_WAIT_S = 30.0

T = TypeVar("T")


def find_cache_path(index_path: str) -> str:
    """Return the path of the cache of an index: `embeddings.sqlite` beside `index.sqlite`."""
    folder, name = os.path.split(index_path)
    ending = name.removeprefix("index") if name.startswith("index") else f"-{name}"
    return os.path.join(folder, f"embeddings{ending}")


class EmbeddingCache:
    """Codes of vectors by embedder and hash of the text. Evicts the least recently used.

    The file is opened when it is needed, and created by the first `put`. A damaged one is deleted, and ``on_loss`` is
    called: its texts are embedded again. Threads that share a cache need a lock of their own.
    """

    def __init__(self, path: str, on_loss: Callable[[StoreDamaged], None] | None = None) -> None:
        self.path = path
        self._on_loss = on_loss
        self._db: FileConnection | None = None
        self._why_read_only: StoreError | None = None

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    # entries

    def find(self, identity: str, hashes: Iterable[bytes], dims: int) -> dict[bytes, bytes]:
        """Return the cached codes by hash. ``dims`` is 0 if the embedder learns its dimensions only from a call."""
        query = "SELECT code FROM embedding_cache WHERE identity = ? AND hash = ?"
        keys = list(hashes)

        def read(db: apsw.Connection) -> dict[bytes, bytes]:
            codes = ((key, db.execute(query, (identity, key)).get) for key in keys)
            return {key: code for key, code in codes if _is_code(code, dims)}

        return self._run(read) if self.exists() else {}

    def put(self, identity: str, codes: Mapping[bytes, bytes], *, used: Collection[bytes] = (), now_s: int) -> None:
        """Store codes by hash, and mark others as ``used``, each at most once a day: a sync that changes nothing should
        write nothing."""
        stale = [(now_s, identity, key, now_s - _REFRESH_AFTER_S) for key in used]

        def write(db: apsw.Connection) -> None:
            insert = "INSERT OR REPLACE INTO embedding_cache (identity, hash, code, used_at) VALUES (?, ?, ?, ?)"
            db.executemany(insert, ((identity, key, code, now_s) for key, code in codes.items()))
            mark = "UPDATE embedding_cache SET used_at = ? WHERE identity = ? AND hash = ? AND used_at < ?"
            db.executemany(mark, stale)

        if codes or (stale and self.exists()):
            self._run(write, writes=True)

    def evict(self, max_entries: int) -> int:
        """Delete the least recently used entries above a number. Return how many."""
        surplus = max(0, self.count() - max_entries)
        oldest = "SELECT rowid FROM embedding_cache ORDER BY used_at, rowid LIMIT ?"
        delete = f"DELETE FROM embedding_cache WHERE rowid IN ({oldest})"
        if surplus:
            self._run(lambda db: db.execute(delete, (surplus,)), writes=True)
        return surplus

    def count(self) -> int:
        if not self.exists():
            return 0
        return self._run(lambda db: int(db.execute("SELECT count(*) FROM embedding_cache").get))

    # the file

    def check(self) -> None:
        """Delete the cache if it is damaged. Reads all of it."""
        if self.exists():
            self._run(self._check_pages)

    def find_damage(self) -> list[str]:
        """Return what is wrong with the file. Reads all of it and changes nothing."""
        if not self.exists():
            return []
        try:
            self._check_pages(self._connection())
        except StoreDamaged as exc:
            self.close()
            return [exc.message]
        return []

    def _check_pages(self, db: apsw.Connection) -> None:
        with translated(self.path, noun=_NOUN):
            problem = db.execute("PRAGMA quick_check(1)").get
        if problem != "ok":
            raise StoreDamaged(f"{self.path}: the {_NOUN} is damaged ({problem}).")

    def keep_only(self, hashes: Collection[bytes]) -> None:
        """Remove the entries of all other texts, also from the free pages of the file."""
        if not self.exists():
            return

        def delete(db: apsw.Connection) -> None:
            stored = db.execute("SELECT identity, hash FROM embedding_cache").fetchall()
            others = [row for row in stored if row[1] not in hashes]
            db.executemany("DELETE FROM embedding_cache WHERE identity = ? AND hash = ?", others)

        self._run(delete, writes=True)
        self._run(lambda db: rewrite_database(db, self.path, noun=_NOUN))

    def _run(self, action: Callable[[apsw.Connection], T], *, writes: bool = False) -> T:
        def attempt() -> T:
            db = self._connection()
            if writes and self._why_read_only:
                raise self._why_read_only
            with translated(self.path, noun=_NOUN), immediate(db) if writes else nullcontext():
                return action(db)

        # Without the retry, a sync would fail for a file that only saves money.
        return retry_damaged(attempt, self.close, self._discard)

    def _connection(self) -> apsw.Connection:
        """Return the connection. The file is opened again if it was deleted meanwhile."""
        if self._db is None or not self._db.is_current(self.path):
            self.close()
            self._db, self._why_read_only = connect_or_read(self.path, _MIGRATIONS, noun=_NOUN)
        return self._db

    def _discard(self, damage: StoreDamaged) -> None:
        if self._why_read_only:
            raise damage
        try:
            db, wait_s = self._db, _REPLACE_WAIT_S
            deleted = discard_if_damaged(self.path, db, self._connection, wait_s=wait_s, purpose="replacing it")
            if deleted and self._on_loss:
                self._on_loss(damage)
        finally:
            self.close()


def _is_code(code: Any, dims: int) -> bool:
    return isinstance(code, bytes) and len(code) > 0 and len(code) == (dims or len(code))
