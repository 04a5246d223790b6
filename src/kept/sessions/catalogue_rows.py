"""Rows of the catalogue: loading, saving and deleting them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from kept.limits import int64
from kept.sessions.record import FIELDS, RecordBuilder
from kept.sqlite import immediate

_COLUMN_NAMES = {"tail_hash": "seam"}
"""Columns whose name in the file differs from the field's."""
_COLUMNS = [_COLUMN_NAMES.get(name, name) for name in FIELDS]
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM sessions"
SAVE_ROW = (
    f"INSERT INTO sessions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
    f" ON CONFLICT (file) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[1:])}"
)
_JSON_FIELDS = ("state", "metadata")


def load_rows(db: apsw.Connection, rest: str, values: Sequence[Any]) -> list[RecordBuilder]:
    """Return the rows that the rest of a query selects."""
    builders = []
    for row in db.execute(f"{_SELECT} {rest}", [storable(value) for value in values]):
        fields = dict(zip(FIELDS, row, strict=True))
        builders.append(RecordBuilder(**{**fields, **{name: json.loads(fields[name]) for name in _JSON_FIELDS}}))
    return builders


def save_row(db: apsw.Connection, builder: RecordBuilder, *, expected: RecordBuilder | None) -> None:
    """Save a row, unless another process has read further since ``expected`` was loaded."""
    with immediate(db):
        stored = next(iter(load_rows(db, "WHERE file = ?", [builder.file])), None)
        is_unchanged = (
            stored is not None
            and expected is not None
            and (stored.inode, stored.size, stored.mtime_ns) == (expected.inode, expected.size, expected.mtime_ns)
        )
        if stored is None or is_unchanged or stored.size < builder.size:
            db.execute(SAVE_ROW, row_values(builder))


def delete_rows(db: apsw.Connection, files: Sequence[str]) -> None:
    with immediate(db):
        db.executemany("DELETE FROM sessions WHERE file = ?", [(file,) for file in files])


def row_values(builder: RecordBuilder) -> list[Any]:
    return [storable(getattr(builder, name)) for name in FIELDS]


def storable(value: Any) -> Any:
    """Return a value that SQLite can store. Half of a surrogate pair, which JSON allows, is written as an escape;
    keys have it escaped already."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int64(value)
    return json.dumps(value) if isinstance(value, dict) else value
