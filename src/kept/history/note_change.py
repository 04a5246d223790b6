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
_MAX_WHY_CHARS = 1_000
Forgotten = Literal["part", "all"]
_AUTHOR_FIELDS = ("agent", "session", "tool", "person", "client")


@frozen
class StoredText:
    """Storage of the bytes of a version: the version named ``base``, with its bytes from ``start`` to ``end`` replaced.

    The replacement is ``text``, or a piece of a pack. Without a base, it is the whole version.
    """

    base: str | None
    start: int
    end: int
    depth: int
    """Number of versions that have to be read first."""
    text: str | None = None
    pack: str | None = None
    offset: int = 0
    length: int = 0
    piece: tuple[int, int] | None = None
    """Part of the decompressed piece, if it holds several notes."""


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
    stored: StoredText | None = None
    """Storage of the bytes after the change; None if there are none, or if an earlier change has them."""
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
    if change.stored is not None:
        fields["stored"] = _stored_json(change.stored)
    return utf8_safe(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


def _stored_json(stored: StoredText) -> dict[str, Any]:
    shape: dict[str, Any] = {"base": stored.base, "at": [stored.start, stored.end], "depth": stored.depth}
    if stored.pack is None:
        return {**shape, "text": stored.text}
    shape |= {"pack": stored.pack, "from": [stored.offset, stored.length]}
    return {**shape, "piece": list(stored.piece)} if stored.piece else shape


def parse_change(line: bytes, machine: str) -> NoteChange | None:
    """Return the change of a line, or None if the line is damaged."""
    try:
        fields = json.loads(line)
        return _to_change(fields, machine)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _to_change(fields: dict[str, Any], machine: str) -> NoteChange:
    author = fields.get("by") or {}
    stored = fields.get("stored")
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
        stored=None if stored is None else _to_stored(stored),
        forgotten=forgotten if (forgotten := fields.get("forgotten")) in ("part", "all") else None,
        machine=machine,
    )


def _to_stored(shape: dict[str, Any]) -> StoredText:
    start, end = map(_count, shape["at"])
    base, depth = _hash(shape["base"]), _count(shape["depth"])
    if "pack" not in shape:
        return StoredText(base, start, end, depth, text=text_value(shape["text"]))
    offset, length = map(_count, shape["from"])
    piece = shape.get("piece")
    first, last = map(_count, piece) if piece else (0, 0)
    return StoredText(
        base,
        start,
        end,
        depth,
        pack=text_value(shape["pack"]),
        offset=offset,
        length=length,
        piece=(first, last) if piece else None,
    )


def _time(value: Any) -> str:
    if len(value) != 24 or value[-1] != "Z" or value[10] != "T":
        raise ValueError("not a time")
    return text_value(value)


def _hash(value: Any) -> str | None:
    if value is not None and len(text_value(value)) != _HASH_CHARS:
        raise ValueError("not a hash")
    checked: str | None = value
    return checked


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("not a count")
    return value
