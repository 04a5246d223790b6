"""One change of a note, who made it, and its line in the history."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import field, replace
from typing import Literal

from kept.base.json_values import from_tree, to_tree
from kept.base.limits import utf8_safe
from kept.base.values import frozen

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_DIGEST = r"[0-9a-f]{64}"
_MAX_WHY_CHARS = 1_000
Forgotten = Literal["part", "all"]
ChangeKind = Literal["baseline", "add", "edit", "remove", "rename", "import", "undo", "by_hand", "forget"]
"""Kind of a change. ``baseline``: the note as it was when the history first saw it. ``by_hand``: made by another
program, such as an editor, and noticed afterwards. ``forget``: it removed a text for good, and cannot be taken back."""


@frozen
class Author:
    """The author of a change. Every part may be missing."""

    agent: str | None = None
    """Id of the agent whose memory was changed."""
    session: str | None = None
    tool: str | None = None
    """Tool or command that wrote, such as ``memory_write`` or ``kept add``."""
    person: str | None = None
    client: str | None = None
    """Program that called the tool, such as an MCP client."""

    @property
    def description(self) -> str:
        """Who it was, for people: the client or the person, and the tool; or else the agent."""
        names = [name for name in (self.client or self.person, self.tool) if name]
        return ", ".join(names) or self.agent or "another program"


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
    part_of: str | None = None
    """Id of an earlier change that is taken back together with this one: both are one replacement."""
    forgotten: Forgotten | None = None
    """True if a part or all of what the change did was forgotten: its versions are not those of then."""
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
    """Return the line of a change. Keys are in order and without spaces: `NoteHistory` searches for their bytes."""
    tree = to_tree(replace(change, why=change.why[:_MAX_WHY_CHARS], is_undone=False))
    return utf8_safe(json.dumps(tree, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


def parse_change(line: bytes) -> NoteChange | None:
    """Return the change of a line, or None if the line is damaged."""
    try:
        change = from_tree(NoteChange, json.loads(line))
    except (ValueError, RecursionError):
        return None
    is_sound = re.fullmatch(_TIME, change.time) and all(
        digest is None or re.fullmatch(_DIGEST, digest) for digest in (change.before, change.after)
    )
    return change if is_sound else None
