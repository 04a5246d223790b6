"""The index file: opening it, its generations, what it was built with, and its cache of embeddings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from kept import sqlite
from kept.config.agent_paths import AgentPaths
from kept.errors import StoreDamaged, StoreError, StoreFull, StoreUnavailable
from kept.file_lock import locked
from kept.limits import is_utf8
from kept.sqlite import database_files, file_number, immediate, snapshot, translated
from kept.store.generation import Generation
from kept.store.rows import META_RECIPE, SCHEMA_VERSION
from kept.store.vector_codes import dequantise, quantise
from kept.store.vector_scan import VectorLimits
from kept.store.word_index import WordIndex

if TYPE_CHECKING:
    from kept.store.integrity import Finding

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")
_REFRESH_AFTER_S = 86_400
_META_SCHEMA = "schema"
_META_WORKSPACE = "workspace"
_META_GENERATION = "generation"

PAGE_BYTES, OLD_PAGE_BYTES = 8192, 4096
"""Page sizes of indexes. In small pages, an eighth of the space after chunks was too short for another one."""


def connect(path: str, *, page_bytes: int = PAGE_BYTES) -> apsw.Connection:
    """Return a connection to an index file, which is created if missing and migrated to the current schema."""
    return sqlite.connect(path, _MIGRATIONS, noun="index", page_bytes=page_bytes)


def _connect_or_read(path: str) -> tuple[apsw.Connection, StoreError | None]:
    """Return a connection, and the reason if it can only read: an index is searched on a disk without space, too."""
    try:
        return connect(path), None
    except (StoreFull, StoreUnavailable) as exc:
        reason = sqlite.why_unwritable(path, exc)
        if not is_utf8(path) or not os.path.exists(path):
            raise reason from exc
        try:
            return sqlite.connect_read_only(path, _MIGRATIONS, noun="index"), reason
        except (StoreFull, StoreUnavailable):
            raise reason from exc


class Index:
    """An open index file. Threads that share it need a lock of their own."""

    def __init__(self, path: str, vector_limits: VectorLimits | None = None) -> None:
        self.path = path
        self.db, self.why_read_only = _connect_or_read(path)
        self.opened_file = file_number(path)
        self.cache = EmbeddingCache(self.db)
        self._vector_limits = vector_limits
        self.live = Generation(self.db, limits=vector_limits)
        try:
            with translated(path, noun="index"):
                if not self._is_of_this_schema():
                    if self.why_read_only:
                        raise self.why_read_only
                    self._create_first_generation()
                self.words = WordIndex(self.db)
        except BaseException:  # whatever happens, also KeyboardInterrupt, must not leave the file open
            self.db.close()
            raise

    def _is_of_this_schema(self) -> bool:
        return self.live.exists() and self.get_meta(_META_SCHEMA) == SCHEMA_VERSION

    def _create_first_generation(self) -> None:
        """Create the tables, or replace those of another schema, which cannot be read. Embeddings stay."""
        with immediate(self.db):
            if self._is_of_this_schema():
                return
            self.start_over(self.generation_number() + 1 if self.live.exists() else 0)
            self.put_meta(_META_SCHEMA, SCHEMA_VERSION)

    def start_over(self, number: int) -> None:
        """Replace the live tables by empty ones, inside the caller's transaction. Embeddings stay."""
        Generation(self.db, "next_").drop()
        self.live.drop()
        self.live.create(number)
        self.put_meta(_META_GENERATION, number)

    def close(self) -> None:
        self.db.close()

    def is_current(self) -> bool:
        """Return whether the path still has the file that was opened. It may have been deleted or replaced."""
        return file_number(self.path) == self.opened_file

    @contextmanager
    def reading(self) -> Iterator[None]:
        with translated(self.path, noun="index"), snapshot(self.db):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        if self.why_read_only:
            raise self.why_read_only
        with translated(self.path, noun="index"), immediate(self.db):
            yield

    @contextmanager
    def indexing(self, *, wait_s: float) -> Iterator[None]:
        """Keep other processes from indexing. Raise LockBusy if one still does so after ``wait_s``."""
        with locked(f"{self.path}.lock", wait_s=wait_s, purpose="indexing"):
            yield

    # checks

    def find_damage(self) -> list[Finding]:
        from kept.store.integrity import check_index

        return check_index(self)

    def check_if_quick(self) -> None:
        from kept.store.integrity import check_pages_if_quick

        check_pages_if_quick(self)

    def describe_checks(self) -> str:
        return "with page checksums" if sqlite.checksum_vfs() else "this build of SQLite has no page checksums"

    # meta

    def get_meta(self, key: str) -> Any:
        with translated(self.path, noun="index"):
            value = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
        try:
            return None if value is None else json.loads(value)
        except ValueError as exc:
            raise StoreDamaged(f"{self.path}: the index is damaged (meta.{key} cannot be read).") from exc

    def put_meta(self, key: str, value: Any) -> None:
        """Store a value, inside the caller's transaction."""
        self.db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(value)))

    def stored_identity(self) -> str | None:
        """Return the identity of the embedder whose vectors the index holds."""
        recipe = self.get_meta(META_RECIPE) or {}
        identity: str | None = recipe.get("identity")
        return identity

    def generation_number(self) -> int:
        return int(self.get_meta(_META_GENERATION) or 0)

    # rebuilding

    def begin_generation(self) -> Generation:
        """Return empty tables beside the live ones. Those of an interrupted rebuild are dropped."""
        building = Generation(self.db, "next_", self._vector_limits)
        with self.writing():
            building.drop()
            building.create(self.generation_number() + 1)
        return building

    def switch_to(self, building: Generation) -> None:
        """Make new tables live, inside the caller's transaction. Readers see the old ones until it commits."""
        building.become_live()
        self.put_meta(_META_GENERATION, self.generation_number() + 1)

    def drop_leftovers(self) -> None:
        leftover = Generation(self.db, "next_")
        if leftover.exists():
            with self.writing():
                leftover.drop()

    def size_bytes(self) -> int:
        return sum(os.path.getsize(p) for p in database_files(self.path) if os.path.exists(p))


# An agent may be used with several workspaces. Indexes are never shared between them: `index.sqlite` belongs to the
# first workspace, and each other workspace gets its own file.


def find_index_path(paths: AgentPaths, workspace: str) -> str:
    """Return where the index of a workspace is expected, without opening a file."""
    own = paths.index_of(workspace)
    return own if os.path.exists(own) else paths.index


def open_index(paths: AgentPaths, workspace: str, vector_limits: VectorLimits | None = None) -> Index:
    """Open the index of a workspace, and record in it that it belongs to the workspace."""
    index = Index(find_index_path(paths, workspace), vector_limits)
    try:
        if _claim(index, workspace):
            return index
    except BaseException:  # as in Index.__init__
        index.close()
        raise
    index.close()
    other = Index(paths.index_of(workspace), vector_limits)
    _claim(other, workspace)
    return other


def _claim(index: Index, workspace: str) -> bool:
    """Return whether the index belongs to a workspace. An index without an owner becomes the workspace's."""
    owner = index.get_meta(_META_WORKSPACE)
    if owner is None:
        with index.writing():
            owner = index.get_meta(_META_WORKSPACE)
            if owner is None:
                index.put_meta(_META_WORKSPACE, workspace)
                owner = workspace
    return bool(owner == workspace)


class EmbeddingCache:
    """Cache of embeddings, so that each is paid for once. Kept across rebuilds; evicts the least recently used.

    It holds codes, a quarter of the size, because the index compares nothing else. Older entries are float32.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def find(self, identity: str, hashes: Iterable[bytes], dims: int) -> dict[bytes, bytes]:
        """Return the cached vectors by hash. ``dims`` is 0 if the embedder learns its dimensions only from a call."""
        query = "SELECT embedding, dims FROM embedding_cache WHERE identity = ? AND hash = ?"
        vectors: dict[bytes, bytes] = {}
        for key in hashes:
            row: Any = self.db.execute(query, (identity, key)).fetchone()
            if row is not None and (vector := _cached_vector(*row, dims=dims)):
                vectors[key] = vector
        return vectors

    def put(self, identity: str, vectors: Iterable[tuple[bytes, bytes]], *, now_s: int) -> None:
        self.db.executemany(
            "INSERT OR REPLACE INTO embedding_cache (identity, hash, embedding, dims, used_at) VALUES (?, ?, ?, ?, ?)",
            ((identity, key, quantise(vector), len(vector) // 4, now_s) for key, vector in vectors),
        )

    def mark_used(self, identity: str, hashes: Iterable[bytes], *, now_s: int) -> None:
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


def _cached_vector(embedding: object, stored_dims: object, *, dims: int) -> bytes | None:
    """Return a cached vector as float32, or None if it is not one of ``dims`` dimensions."""
    if not isinstance(embedding, bytes) or not embedding or stored_dims != (dims or stored_dims):
        return None
    if len(embedding) == stored_dims:
        return dequantise(embedding)
    return embedding if len(embedding) == 4 * (dims or len(embedding) // 4) else None
