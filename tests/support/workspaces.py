"""A workspace on disk and a memory over it, both below the test's tmp_path."""

import os
from pathlib import Path
from typing import Any

from kept import Memory
from kept.storage.open import open_database
from kept.testing import FakeEmbedder
from tests.support.files import write_file


def write_note(workspace: Path, path: str, text: str) -> Path:
    """Write a note as another program would: into its folder or, for a memory in a database, as another server."""
    if address := os.environ.get("KEPT_DATABASE"):
        from kept.storage.contract import Write
        from kept.storage.postgres.postgres_storage import PostgresStorage

        PostgresStorage(open_database(address), "workspace:main").commit([Write(path, text.encode())])
    return write_file(workspace / path, text)


def open_memory(tmp_path: Path, *, settings=None, limits=None, **options: Any) -> Memory:
    """Open a memory with the fake embedder, unless the options name another one or the settings name a provider.

    ``options`` go to `Memory.open` and replace the defaults here.
    """
    provider_is_set = "memory_search.provider" in (settings or {})
    defaults = {
        "workspace": tmp_path / "workspace",
        "home": tmp_path / "home",
        "embedder": None if provider_is_set else FakeEmbedder(),
        "create": True,
    }
    arguments = {**defaults, "settings": settings, **options}
    memory = Memory.open(**arguments)
    if limits is None:
        return memory
    return Memory(memory.config, embedder=arguments["embedder"], clock=memory.clock, limits=limits)


def index_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "agents" / "main" / "index.sqlite"


def paths(result: Any) -> list[str]:
    return [hit.path for hit in result]
