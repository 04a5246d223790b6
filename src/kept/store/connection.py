"""Opening the index file. How any derived SQLite file is opened and spoken to is in kept.sqlite."""

from __future__ import annotations

import os
from collections.abc import Iterable

import apsw

from kept import sqlite
from kept.sqlite import checksum_vfs, immediate, snapshot, translate, translated

__all__ = ["checksum_vfs", "connect", "immediate", "snapshot", "translate", "translated"]

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")


def connect(path: str) -> apsw.Connection:
    """A connection to the index, created with its folder where there is none, migrated to the current schema."""
    return sqlite.connect(path, _MIGRATIONS)


IN_ROWS = "row IN (SELECT value FROM json_each(?))"
"""One statement for any number of rows: a list of question marks would be another statement for each length."""


IN_PLACE = "c.path, c.start_line, c.row"
"""The order of `chunks c` by what they are, whenever they were indexed. Of one line, row numbers follow the text: its
chunks are written together (`Generation.replace_file`)."""


def packed_rows(rows: Iterable[int]) -> str:
    return f"[{','.join(map(str, rows))}]"
