"""The index as a whole: opening it, its generations, what it was built with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from kept.database_files import database_files, file_number
from kept.errors import StoreDamaged
from kept.store.cache import EmbeddingCache
from kept.store.connection import connect, immediate, snapshot, translated
from kept.store.generation import SCHEMA_VERSION, Generation
from kept.store.words import WordIndex

_META_SCHEMA = "schema"
META_RECIPE = "recipe"
"""What the index was built with: sizes, versions, and the embedder whose vectors it holds."""


class Index:
    """One open index file. Not shared between threads without a lock of the caller's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.db: apsw.Connection = connect(path)
        self.opened = file_number(path)
        self.cache = EmbeddingCache(self.db)
        self.live = Generation(self.db)
        try:
            with translated(path):
                if not self._is_of_this_schema():
                    self._create_first_generation()
                self.words = WordIndex(self.db)
        except BaseException:
            self.db.close()
            raise

    def _is_of_this_schema(self) -> bool:
        return self.live.exists() and self.get_meta(_META_SCHEMA) == SCHEMA_VERSION

    def _create_first_generation(self) -> None:
        """Tables of another schema cannot be asked anything, so they make way; the embeddings stay."""
        with immediate(self.db):
            if self._is_of_this_schema():
                return
            self.start_over(self.generation_number() + 1 if self.live.exists() else 0)
            self.put_meta(_META_SCHEMA, SCHEMA_VERSION)

    def start_over(self, number: int) -> None:
        """Empty tables in the place of the live ones, inside a transaction of the caller's. The embeddings stay."""
        Generation(self.db, "next_").drop()
        self.live.drop()
        self.live.create(number)
        self.put_meta("generation", number)

    def close(self) -> None:
        self.db.close()

    def is_current_file(self) -> bool:
        """Whether the file at this path is still the one that was opened: it may have been deleted and made anew."""
        return file_number(self.path) == self.opened

    @contextmanager
    def reading(self) -> Iterator[None]:
        with translated(self.path), snapshot(self.db):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        with translated(self.path), immediate(self.db):
            yield

    def version(self) -> tuple[int, int]:
        """The same as before as long as nobody has changed anything: neither another connection nor this one."""
        return self.db.execute("PRAGMA data_version").get, self.db.total_changes()

    # what it was built with

    def get_meta(self, key: str) -> Any:
        with translated(self.path):
            found = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
        try:
            return None if found is None else json.loads(found)
        except ValueError as exc:
            raise StoreDamaged(f"{self.path}: the index is damaged (meta.{key} cannot be read).") from exc

    def put_meta(self, key: str, value: Any) -> None:
        """Inside a transaction of the caller's."""
        self.db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(value)))

    def generation_number(self) -> int:
        return int(self.get_meta("generation") or 0)

    # rebuilding

    def begin_generation(self) -> Generation:
        """Empty tables beside the live ones. What an interrupted rebuild has left is dropped."""
        building = Generation(self.db, "next_")
        with self.writing():
            building.drop()
            building.create(self.generation_number() + 1)
        return building

    def switch_to(self, building: Generation) -> None:
        """Inside a transaction of the caller's: readers see the old tables until it commits, then the new."""
        building.become_live()
        self.put_meta("generation", self.generation_number() + 1)

    def drop_leftovers(self) -> None:
        leftover = Generation(self.db, "next_")
        if leftover.exists():
            with self.writing():
                leftover.drop()

    def size_bytes(self) -> int:
        return sum(os.path.getsize(p) for p in database_files(self.path) if os.path.exists(p))
