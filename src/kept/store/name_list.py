"""Paths of notes in an index that begin with given letters, for completion in a shell.

The index is only read: nothing is created, updated or repaired for a press of the Tab key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from kept.config import Config

_MAX_NAMES = 200


def find_note_paths(config: Config, start: str) -> list[str]:
    """Return the paths of notes that begin with a text."""
    query = "SELECT path FROM files WHERE source = 'memory' AND substr(path, 1, ?) = ? ORDER BY path LIMIT ?"
    path = config.paths.index_of(config.workspace)
    try:
        with _reading(path if os.path.exists(path) else config.paths.index) as db:
            if db.execute("SELECT value FROM meta WHERE key = 'workspace'").get != json.dumps(config.workspace):
                return []
            return [str(name) for (name,) in db.execute(query, (len(start), start, _MAX_NAMES)) if name]
    except apsw.Error:  # no index yet, or none that can be read: then there is nothing to suggest
        return []


@contextmanager
def _reading(path: str) -> Iterator[apsw.Connection]:
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        yield db
    finally:
        db.close()
