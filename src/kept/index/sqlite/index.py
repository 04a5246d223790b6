"""The index file: opening it, its generations, and what it was built with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from kept.base.file_lock import locked
from kept.base.sqlite import connect_or_read, database_files, immediate, snapshot, translated
from kept.config.agent_config import AgentPaths
from kept.errors import StoreDamaged
from kept.index.sqlite.embedding_cache import EmbeddingCache, find_cache_path
from kept.index.sqlite.generation import Generation
from kept.index.sqlite.rows import META_RECIPE, SCHEMA_VERSION
from kept.index.sqlite.word_index import WordIndex

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations", "index")
_NOUN = "index"
_META_SCHEMA = "schema"
_META_WORKSPACE = "workspace"
_META_GENERATION = "generation"

# In smaller pages, an eighth of the space after chunks was too short for another one.
PAGE_BYTES = 8192


class Index:
    """An open index file, with the cache of its embeddings. Threads that share it need a lock of their own.

    ``on_cache_loss`` is called when the cache was damaged and has been deleted.
    """

    def __init__(
        self,
        path: str,
        *,
        on_cache_loss: Callable[[StoreDamaged], None] | None = None,
    ) -> None:
        self.path = path
        self.db, self.why_read_only = connect_or_read(path, _MIGRATIONS, noun=_NOUN, page_bytes=PAGE_BYTES)
        self._on_cache_loss = on_cache_loss
        self.live = Generation(self.db)
        try:
            with translated(path, noun=_NOUN):
                if self.get_meta(_META_SCHEMA) != SCHEMA_VERSION:
                    if self.why_read_only:
                        raise self.why_read_only
                    self._create_first_generation()
                self.words = WordIndex(self.db)
        except BaseException:  # whatever happens, also KeyboardInterrupt, must not leave the file open
            self.db.close()
            raise

    @cached_property
    def cache(self) -> EmbeddingCache:
        """The cache of its embeddings. The built-in embedder needs none."""
        return EmbeddingCache(find_cache_path(self.path), self._on_cache_loss)

    def _create_first_generation(self) -> None:
        """Create the tables, or replace those of another schema, which cannot be read."""
        with immediate(self.db):
            if self.get_meta(_META_SCHEMA) == SCHEMA_VERSION:
                return  # another process was faster
            number = self.generation_number() + 1
            Generation(self.db, "next_").drop()
            self.live.drop()
            self.live.create(number)
            self.put_meta(_META_GENERATION, number)
            self.put_meta(_META_SCHEMA, SCHEMA_VERSION)

    def close(self) -> None:
        if "cache" in vars(self):
            self.cache.close()
        self.db.close()

    def is_current(self) -> bool:
        """Return whether the path still has the file that was opened. It may have been deleted or replaced."""
        return self.db.is_current(self.path)

    @contextmanager
    def reading(self) -> Iterator[None]:
        with translated(self.path, noun=_NOUN), snapshot(self.db):
            self.words.refresh()  # inside the transaction, so that it is the state that will be read
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        if self.why_read_only:
            raise self.why_read_only
        try:
            with translated(self.path, noun=_NOUN), immediate(self.db):
                yield
        finally:  # also after a rollback: then words are looked up once more, and found absent again
            self.words.take_in(self.live.new_texts)
            self.live.new_texts.clear()

    @contextmanager
    def indexing(self, *, wait_s: float) -> Iterator[None]:
        """Keep other processes from indexing. Raise LockBusy if one still does so after ``wait_s``."""
        # A lock beside the file, not a transaction: it is held while texts are embedded, and readers go on.
        with locked(f"{self.path}.lock", wait_s=wait_s, purpose="indexing"):
            yield

    # meta

    def get_meta(self, key: str) -> Any:
        with translated(self.path, noun=_NOUN):
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
        building = Generation(self.db, "next_")
        with self.writing():
            building.drop()
            building.create(self.generation_number() + 1)
        return building

    def switch_to(self, building: Generation) -> None:
        """Make new tables live, inside the caller's transaction. Readers see the old ones until it commits."""
        building.become_live()
        self.words.forget()  # it counted what was in the old tables
        self.put_meta(_META_GENERATION, self.generation_number() + 1)

    def drop_leftovers(self) -> None:
        if self.db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'next_files'").get:
            with self.writing():
                Generation(self.db, "next_").drop()

    # checks

    def find_damage(self) -> list[str]:
        """Return what is wrong with the index. Reads all of it."""
        from kept.index.sqlite.integrity import find_damage

        return find_damage(self)

    def check_if_quick(self) -> None:
        """Raise StoreDamaged if a page is damaged, unless checking takes long."""
        from kept.index.sqlite.integrity import check_if_quick

        check_if_quick(self)

    def size_bytes(self) -> int:
        return sum(os.path.getsize(p) for p in database_files(self.path) if os.path.exists(p))


# An agent may be used with several workspaces. Indexes are never shared between them: `index.sqlite` belongs to the
# first workspace, and each other workspace gets its own file.


def open_index(
    paths: AgentPaths,
    workspace: str,
    *,
    on_cache_loss: Callable[[StoreDamaged], None] | None = None,
) -> Index:
    """Open the index of a workspace. One without an owner becomes the workspace's."""
    index = Index(paths.find_index(workspace), on_cache_loss=on_cache_loss)
    try:
        if index.get_meta(_META_WORKSPACE) is None:
            with index.writing():
                if index.get_meta(_META_WORKSPACE) is None:  # no other process was faster
                    index.put_meta(_META_WORKSPACE, workspace)
        if index.get_meta(_META_WORKSPACE) == workspace:
            return index
    except BaseException:  # as in Index.__init__
        index.close()
        raise
    index.close()
    other = Index(paths.find_index(workspace, is_first=False), on_cache_loss=on_cache_loss)
    with other.writing():
        other.put_meta(_META_WORKSPACE, workspace)
    return other
