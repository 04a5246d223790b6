"""Building a session from foreign records, entry by entry."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from kept.base.git_remote import find_remote, find_root
from kept.base.limits import as_dict, as_list
from kept.base.values import frozen
from kept.errors import EntryRefused
from kept.sessions.entries import (
    TITLE,
    Attachment,
    Block,
    Body,
    DamagedEntry,
    Entry,
    SessionStart,
    StateEntry,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    format_entry,
    is_message,
    parse_time,
    whole_ms,
)
from kept.sessions.importers.source import Record, Source, fingerprint
from kept.sessions.session_key import DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, UNKNOWN_USER, SessionKey

_LONGEST_ID = 128
_LONGEST_NAME = 300
_FIRST_YEAR, _LAST_YEAR = 1980, 2200
OTHER_MEDIA = "application/octet-stream"
"""Type of a file whose type is not known."""
# A file or a page. Bytes in base64 may start with a slash too: "/9j/" is a JPEG.
_ADDRESS = re.compile(r"(https?://|file:|/(?!9j/)[^\n]{1,1000}\Z)")


@frozen
class Draft:
    """A complete session, ready to be imported."""

    id: str
    created: dt.datetime
    start: SessionStart
    entries: tuple[Entry, ...]
    source: str
    has_global_ids: bool = False
    """True if ids are the same in every copy of the conversation, whatever their order: the ids of a service."""

    @property
    def messages(self) -> int:
        return sum(map(is_message, self.entries))


class DraftBuilder:
    """Collects the entries of one session. They keep their ids and parents; without a parent, one follows the last."""

    def __init__(self, source: Source, format_name: str, session_id: str) -> None:
        self.source = source
        self.format = format_name
        self.id = safe_id(session_id)
        self.original_id = session_id
        self.created: dt.datetime | None = None
        self.metadata: dict[str, Any] = {}
        self.title: str | None = None
        """Title of the conversation in the other program, if that keeps it outside the records."""
        self.last_id = self.id
        self.last_time: dt.datetime | None = None
        self._entries: list[Entry] = []
        self._positions: dict[str, int] = {}
        """Index of each entry by its id."""
        self._replaced_by: dict[str, str] = {}
        """For a record that was left out: the entry that its children get as their parent."""
        self._digests: dict[str, str] = {}
        """Digest of the record by its id, to recognise copies."""

    # collecting

    def add(self, record: Record, body: Body | None, *, own_id: Any = None, parent: Any = "", when: Any = None) -> None:
        """Add an entry. Without a parent it follows the last entry; None is the session's start. Without a body, the
        record is left out: its children get its parent."""
        if body is not None:
            is_own = is_id(own_id) and own_id not in self._positions and own_id != self.id
            # If its time is unknown, it has that of the previous entry, or of the file.
            self.last_time = read_time(when) or self.last_time or self.created or self.source.written
            entry = Entry(own_id if is_own else record.digest, self._parent(parent), self.last_time, body)
            try:
                format_entry(entry)
            except EntryRefused as exc:
                self.source.report(f"the record cannot be kept: {exc.message}", line=record.line)
                parent = entry.parent_id or ""
            else:
                if is_id(own_id):
                    self._digests[own_id] = _content_digest(record)
                self._positions[entry.id] = len(self._entries)
                self._entries.append(entry)
                self.last_id = entry.id
                return
        if is_id(own_id) and own_id not in self._positions:
            self._replaced_by[own_id] = self._parent(parent)

    def add_title(self, record: Record, title: str, *, leaf: Any, when: Any) -> None:
        """Add the title that a service has for a conversation, after the branch that ends with ``leaf``.

        The id depends on both, so the same conversation under another name, or on another branch, adds it again: a
        session has the last title, and continues after its last entry.
        """
        digest = fingerprint(f"{leaf}\n{title}".encode("utf-8", "backslashreplace"))
        parent = leaf if is_id(leaf) else ""
        self.add(record, StateEntry(TITLE, title), own_id=f"{TITLE}-{digest}", parent=parent, when=when)

    def is_repeated(self, record: Record, own_id: Any) -> bool:
        """Return whether this record was added before: programs copy the beginning of one file into another."""
        return is_id(own_id) and self._digests.get(own_id) == _content_digest(record)

    def _parent(self, parent: Any) -> str:
        if parent is None:
            return self.id
        if not is_id(parent):
            return self.last_id
        seen = set()
        while parent in self._replaced_by and parent not in seen:
            seen.add(parent)
            parent = self._replaced_by[parent]
        return parent if parent in self._positions or parent == self.id else self.last_id

    @property
    def size(self) -> int:
        """Number of entries so far."""
        return len(self._entries)

    def find_position(self, entry_id: Any) -> int:
        """Return the index of an entry, or -1 if there is none."""
        return self._positions.get(self._parent(entry_id), -1) if is_id(entry_id) else -1

    # finishing

    def finish(
        self,
        key: SessionKey,
        *,
        state: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        has_global_ids: bool = False,
    ) -> Draft:
        folder = self.metadata.get("cwd")
        # The repository that the conversation was held in, while its folder is still there to ask.
        root = find_root(folder) if isinstance(folder, str) and os.path.isabs(folder) else None
        remote = find_remote(root) if root else None
        origin = {"from": self.format, "path": self.source.shown_path, "sessionId": self.original_id[:_LONGEST_NAME]}
        start = SessionStart(
            str(key),
            state={**({TITLE: self.title} if self.title else {}), **(state or {})},
            metadata={
                **({"remote": remote} if remote else {}),
                **self.metadata,
                **(metadata or {}),
                "imported": origin,
            },
        )
        first = next((entry.timestamp for entry in self._entries), None)
        created = self.created or first or self.source.written
        return Draft(self.id, created, start, tuple(self._entries), self.source.shown_path, has_global_ids)


def _content_digest(record: Record) -> str:
    return fingerprint(repr(record.tree).encode("utf-8", "backslashreplace"))


# values of any type


def is_id(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_ID


def safe_id(text: str) -> str:
    """Return an id that can be part of a file's name: unchanged, if it already can."""
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-")
    if clean == text and len(text) <= 100:
        return text
    return f"{clean[:80] or 'session'}.{fingerprint(text.encode('utf-8', 'backslashreplace'))}"


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def short_text(value: Any) -> str | None:
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else None


def read_time(value: Any) -> dt.datetime | None:
    """Parse ISO 8601, or milliseconds or seconds since 1970. Return None for an impossible time."""
    try:
        if type(value) in (int, float):
            when = dt.datetime.fromtimestamp(value / 1000 if value > 10**11 else value, dt.UTC)
        else:
            when = parse_time(value)
    except (DamagedEntry, ValueError, OverflowError, OSError):
        return None
    return whole_ms(when) if _FIRST_YEAR <= when.year <= _LAST_YEAR else None


def present_fields(tree: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields of a record that are present and not empty."""
    return {name: tree[name] for name in names if tree.get(name) not in (None, "", False, [], {})}


def key_for(agent_id: str, channel: str, user_id: str | None, *, chat_type: str = DEFAULT_CHAT_TYPE) -> SessionKey:
    return SessionKey(agent_id, channel, DEFAULT_ACCOUNT, chat_type, user_id or UNKNOWN_USER)


# parts of messages


def read_blocks(content: Any, place: str) -> tuple[Block, ...]:
    """Return the parts of a message in a record at ``place``. All programs name them alike."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(part for block in as_list(content) for part in _read_block(block, place))


def _read_block(block: Any, place: str) -> Iterable[Block]:
    match block:
        case {"type": "thinking", "thinking": str(text)}:
            return [Thinking(text)] if text else []  # without the signature, which only the provider can read
        case {"type": "tool_use" | "server_tool_use" | "toolCall", "name": str(name)}:
            arguments = as_dict(block.get("arguments", block.get("input")))
            return [ToolCall(as_text(block.get("id")) or "", name, arguments)]
        case {"type": "tool_result"}:
            inner = read_blocks(block.get("content"), place)
            return result_blocks(block.get("tool_use_id"), block.get("name"), block.get("is_error") is True, inner)
        case {"type": "image" | "input_image" | "document" | "input_file"}:
            return [_read_file(block, place)]
        case str(text) | {"text": str(text)}:
            return [Text(text)]
        case _:  # of a kind that says nothing to people
            return []


def result_blocks(call_id: Any, tool: Any, is_error: bool, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the result of a tool with the texts of some blocks, and the other blocks."""
    others = (block for block in blocks if not isinstance(block, Text))
    return (ToolResult(as_text(call_id) or "", text_of(blocks, "\n"), short_text(tool), is_error), *others)


def text_of(blocks: Iterable[Block], between: str = "\n\n") -> str:
    return between.join(block.text for block in blocks if isinstance(block, Text))


def _read_file(block: dict[str, Any], place: str) -> Attachment:
    """Return an image or a file, with its place. Its bytes stay in the source."""
    fields = {**block, **as_dict(block.get("source"))}
    data = next((fields[name] for name in ("data", "url", "file_id", "image_url", "file_data") if name in fields), None)
    media = fields.get("media_type") or fields.get("mimeType") or ("image/*" if "image" in block["type"] else None)
    name = short_text(block.get("title") or block.get("filename"))
    if isinstance(data, str) and _ADDRESS.match(data):
        place = data[:2000]
    elif isinstance(data, str) and data.startswith("data:"):
        media = data[5:].partition(",")[0].partition(";")[0] or media
    return Attachment(short_text(media) or OTHER_MEDIA, name, place)


# branches


def order_branches(parents: Mapping[str, str | None], leaf: Any) -> tuple[list[str], str | None]:
    """Return all messages, each after its parent, so that the branch of ``leaf`` comes last at every fork, and the
    message that it ends with, by default the last one. An answer that was generated again, or an edited question, is a
    branch.

    A session continues from its last entry, so it continues on that branch. A message whose parent is missing begins
    a tree of its own; so does one of a loop.
    """
    if not isinstance(leaf, str) or leaf not in parents:
        leaf = next(reversed([*parents]), None)
    current: set[str | None] = set()
    step = leaf
    while step is not None and step not in current:
        current.add(step)
        step = parents.get(step)
    children: dict[str | None, list[str]] = {}
    for message, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(message)
    ordered: dict[str | None, None] = {}
    for start in (None, *parents):  # no root leads to those of a loop
        waiting = [start]
        while waiting:
            following = waiting.pop()
            if following not in ordered:
                ordered[following] = None
                waiting += sorted(children.get(following, ()), key=lambda message: message in current)[::-1]
    return [message for message in ordered if message is not None], leaf
