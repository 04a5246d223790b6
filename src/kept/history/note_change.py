"""One change of a note, and its line in the history."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import field
from typing import Any, Literal

from kept.limits import text_value, utf8_safe
from kept.values import frozen
from kept.workspace.change_recorder import Author

_HASH_CHARS = 64
_HASH_DIGITS = "0123456789abcdef"
_MAX_WHY_CHARS = 1_000
Forgotten = Literal["part", "all"]
_AUTHOR_FIELDS = ("agent", "session", "tool", "person", "client")


@frozen
class NoteChange:
    """A change of a note. ``before`` and ``after`` are the SHA-256 of its bytes, or None if there was no note."""

    id: str
    time: str
    """UTC, such as 2026-11-16T09:30:00.000Z, so that times can be compared as text."""
    path: str
    kind: str
    before: str | None
    after: str | None
    by: Author = Author()
    why: str = ""
    was: str | None = None
    """Old path, if the note was renamed."""
    undoes: tuple[str, ...] = field(default=())
    """Ids of the changes that this one takes back."""
    forgotten: Forgotten | None = None
    """Whether a part or all of what the change did was forgotten: its versions are not those of then."""
    machine: str = ""
    is_undone: bool = False
    """True if a later change took this one back. Not part of the line."""

    @property
    def is_forgotten(self) -> bool:
        """Return whether all that the change did was forgotten."""
        return self.forgotten == "all"

    @property
    def when(self) -> dt.datetime:
        """Return the time of the change, in the local time zone."""
        return dt.datetime.fromisoformat(self.time).astimezone()


def utc_text(when: dt.datetime) -> str:
    return when.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


# lines


def format_change(change: NoteChange) -> bytes:
    """Return the line of a change. Keys are in a fixed order, without spaces: `ChangeLog` searches for their bytes."""
    author = {name: value for name in _AUTHOR_FIELDS if (value := getattr(change.by, name))}
    fields: dict[str, Any] = {
        "id": change.id,
        "time": change.time,
        "path": change.path,
        "kind": change.kind,
        "before": change.before,
        "after": change.after,
    }
    if change.was is not None:
        fields["was"] = change.was
    if author:
        fields["by"] = author
    if change.why:
        fields["why"] = change.why[:_MAX_WHY_CHARS]
    if change.undoes:
        fields["undoes"] = list(change.undoes)
    if change.forgotten is not None:
        fields["forgotten"] = change.forgotten
    return utf8_safe(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


def parse_change(line: bytes, machine: str) -> NoteChange | None:
    """Return the change of a line, or None if the line is damaged."""
    try:
        fields = json.loads(line)
        return _to_change(fields, machine)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _to_change(fields: dict[str, Any], machine: str) -> NoteChange:
    author = fields.get("by") or {}
    undoes = fields.get("undoes")
    return NoteChange(
        id=text_value(fields["id"]),
        time=_time(fields["time"]),
        path=text_value(fields["path"]),
        kind=text_value(fields["kind"]),
        before=_hash(fields["before"]),
        after=_hash(fields["after"]),
        by=Author(*(text_value(value) if (value := author.get(name)) else None for name in _AUTHOR_FIELDS)),
        why=text_value(fields.get("why", "")),
        was=None if (was := fields.get("was")) is None else text_value(was),
        undoes=tuple(map(text_value, undoes)) if undoes else (),
        forgotten=forgotten if (forgotten := fields.get("forgotten")) in ("part", "all") else None,
        machine=machine,
    )


def _time(value: Any) -> str:
    if len(value) != 24 or value[-1] != "Z" or value[10] != "T":
        raise ValueError("not a time")
    return text_value(value)


def _hash(value: Any) -> str | None:
    if value is not None and (len(text_value(value)) != _HASH_CHARS or value.strip(_HASH_DIGITS)):
        raise ValueError("not a hash")
    checked: str | None = value
    return checked
