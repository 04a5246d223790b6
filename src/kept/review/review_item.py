"""`ReviewItem`: a write of an agent that waits for a person, and its JSON."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Literal

from kept.digest import digest_bytes
from kept.limits import text_value, utf8_safe
from kept.values import frozen
from kept.workspace.addition import Addition
from kept.workspace.change_recorder import Author

ReviewState = Literal["proposed", "written"]
AUTHOR_FIELDS = ("agent", "session", "tool", "person", "client")
ID_CHARS = 16
_VERSION = 1


@frozen
class NoteWrite:
    """A write of a note that was begun. ``before`` and ``after`` are the SHA-256 of its bytes, None for no note."""

    path: str
    before: str | None
    after: str | None


@frozen
class ReviewItem:
    id: str
    state: ReviewState
    """``proposed``: not written yet. ``written``: in the note, and listed for review."""
    time: str
    """UTC, such as 2026-11-16T09:30:00.000Z."""
    path: str
    by: Author
    why: str = ""
    addition: Addition | None = None
    """What is proposed. The text of a change that is written is only in the note and its history."""
    writes: tuple[NoteWrite, ...] = ()
    """Writes that were begun. A proposal has one only if a process was killed while it was accepted."""
    changes: tuple[str, ...] = ()
    """Ids of the changes that the history recorded."""

    @property
    def when(self) -> dt.datetime:
        """Return when the agent wrote, in the local time zone."""
        return dt.datetime.fromisoformat(self.time).astimezone()

    def is_from(self, other: ReviewItem) -> bool:
        """Return whether both are from one session or, without a session, from one client."""
        return (self.by.session, self.by.client) == (other.by.session, other.by.client)


def proposal_id(addition: Addition) -> str:
    """Return the id of a proposal: the same text for the same note is the same proposal."""
    fields = [addition.text, addition.to, addition.replaces, addition.project]
    fields += [addition.private] if addition.private is not None else []
    return digest_bytes(json.dumps(fields).encode())[:ID_CHARS]


def is_item_id(text: str) -> bool:
    return len(text) == ID_CHARS and all(char in "0123456789abcdef" for char in text)


# JSON


def format_item(item: ReviewItem) -> bytes:
    """Return the file of an item. Its text is in clear, so that a program that removes words finds them."""
    fields: dict[str, Any] = {
        "version": _VERSION,
        "id": item.id,
        "state": item.state,
        "time": item.time,
        "path": item.path,
        "by": {name: value for name in AUTHOR_FIELDS if (value := getattr(item.by, name))},
        "why": item.why,
    }
    if item.addition is not None:
        fields |= {
            "text": item.addition.text,
            "to": item.addition.to,
            "replaces": item.addition.replaces,
            "again": item.addition.again,
            "project": item.addition.project,
            "private": item.addition.private,
        }
    fields["writes"] = [{"path": write.path, "before": write.before, "after": write.after} for write in item.writes]
    fields["changes"] = list(item.changes)
    return utf8_safe(json.dumps(fields, ensure_ascii=False, indent=1)).encode() + b"\n"


def parse_item(data: bytes, item_id: str) -> ReviewItem:
    """Return an item from its file. Raise ValueError for anything else."""
    try:
        return _to_item(json.loads(data), item_id)
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc


def _to_item(fields: dict[str, Any], item_id: str) -> ReviewItem:
    state = fields["state"]
    if state not in ("proposed", "written") or fields["id"] != item_id:
        raise ValueError("not an item of a review")
    dt.datetime.fromisoformat(text_value(fields["time"]))
    return ReviewItem(
        item_id,
        state,
        fields["time"],
        text_value(fields["path"]),
        Author(*(_text_or_none(fields["by"].get(name)) for name in AUTHOR_FIELDS)),
        text_value(fields["why"]),
        _to_addition(fields) if state == "proposed" else None,
        tuple(_to_write(write) for write in fields["writes"]),
        tuple(map(text_value, fields["changes"])),
    )


def _to_addition(fields: dict[str, Any]) -> Addition:
    names = ("to", "replaces", "project")
    to, replaces, project = (_text_or_none(fields[name]) for name in names)
    private = _text_or_none(fields.get("private"))
    return Addition(text_value(fields["text"]), to, replaces, fields["again"] is True, project, private)


def _to_write(fields: dict[str, Any]) -> NoteWrite:
    return NoteWrite(text_value(fields["path"]), _text_or_none(fields["before"]), _text_or_none(fields["after"]))


def _text_or_none(value: Any) -> str | None:
    return None if value is None else text_value(value)
