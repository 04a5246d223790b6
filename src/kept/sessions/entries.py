"""Types of the entries of a transcript. Each is one line of the file.

Entry                  id, parent, time, and one of these bodies:
├── SessionStart       the first line: version, key, predecessor
├── Message            what a person, the agent or a tool said: text, thinking, tool calls and results, attachments
├── CompactionEntry    a summary that replaces everything before the first kept entry
├── ResetEntry         the conversation continues in another session
└── StateEntry         a setting or an event that has to survive: model, thinking, flush
UnknownEntry           a line of a kind this version does not know, kept byte for byte
"""

from __future__ import annotations

import datetime as dt
from dataclasses import field, replace
from typing import Any, Literal

from kept.limits import count_or_zero, is_count
from kept.values import frozen

VERSION = 1

Role = Literal["user", "assistant", "tool", "system"]
ROLES: tuple[Role, ...] = ("user", "assistant", "tool", "system")

MODEL, THINKING, FLUSH = "model", "thinking", "flush"
"""Names of states that are counted or shown. Others are only kept."""

FORWARDED = "forwardedFrom"
"""Metadata of a message: who wrote it, if the sender forwarded it."""
QUOTED = "quoted"
"""Metadata of a message: the message it quotes, and the author of that."""


@frozen
class Text:
    text: str


@frozen
class Thinking:
    text: str
    signature: str | None = None


@frozen
class ToolCall:
    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@frozen
class ToolResult:
    call_id: str
    text: str
    name: str | None = None
    is_error: bool = False


@frozen
class Attachment:
    """An image or another file, without its bytes."""

    media_type: str
    name: str | None = None
    path: str | None = None


@frozen
class UnknownBlock:
    """Block of a kind this version does not know."""

    fields: dict[str, Any]


Block = Text | Thinking | ToolCall | ToolResult | Attachment | UnknownBlock


@frozen
class TokenUsage:
    """Tokens of one answer. ``context`` is the size of the context window after it."""

    input: int = 0
    output: int = 0
    context: int = 0


@frozen
class SessionStart:
    key: str
    version: int = VERSION
    predecessor: str | None = None
    compactions: int = 0
    """Number of compactions in the sessions before this one."""
    state: dict[str, Any] = field(default_factory=dict)
    """States that were carried over from the predecessor, by name."""
    metadata: dict[str, Any] = field(default_factory=dict)


@frozen
class Message:
    role: Role
    content: tuple[Block, ...]
    sender: str | None = None
    """Name of the person, if several take part."""
    model: str | None = None
    usage: TokenUsage | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, role: Role, text: str, **more: Any) -> Message:
        return cls(role, (Text(text),), **more)

    @property
    def text(self) -> str:
        """The text blocks, without thinking, tools and attachments."""
        return "\n\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def forwarded_from(self) -> str | None:
        """Author of a message that the sender forwarded, or None."""
        origin = self.metadata.get(FORWARDED)
        return origin if isinstance(origin, str) and origin.strip() else None

    @property
    def speaker(self) -> str:
        """Name of the author, as it is shown. Empty if there is none."""
        if self.forwarded_from is None:
            return self.sender or ""
        return f"{self.sender or 'Somebody'} (forwarded from {self.forwarded_from})"


@frozen
class CompactionEntry:
    summary: str
    first_kept_id: str | None = None
    """First entry that stays in the context as it is; None if none does."""
    tokens_before: int | None = None
    tokens_after: int | None = None
    source: str = "manual"
    """Author of the summary: manual, model, extractive."""
    receipt: dict[str, Any] | None = None
    """Where the messages that left the context are: path, line ranges, hash."""
    metadata: dict[str, Any] = field(default_factory=dict)


@frozen
class ResetEntry:
    reason: str
    """command, idle, daily."""
    successor: str | None = None


@frozen
class StateEntry:
    name: str
    value: Any = None


Body = SessionStart | Message | CompactionEntry | ResetEntry | StateEntry


@frozen
class Entry:
    id: str
    parent_id: str | None
    timestamp: dt.datetime
    body: Body
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields that a later version has added to an entry of a known kind."""
    faults: tuple[str, ...] = ()
    """Fields that are ignored because their values are impossible. The line itself stays as it is."""


@frozen
class UnknownEntry:
    raw: bytes
    """The line without its line break."""
    type: str
    id: str | None = None
    parent_id: str | None = None
    timestamp: dt.datetime | None = None


AnyEntry = Entry | UnknownEntry


def whole_ms(when: dt.datetime) -> dt.datetime:
    """Return a time as it is stored, in whole milliseconds. A time without an offset is local."""
    when = when.replace(microsecond=when.microsecond // 1000 * 1000)
    return when if when.tzinfo else when.astimezone()


def drop_invalid_counts(body: Body) -> Body:
    """Return a body without counts that would be refused when it is read again."""
    match body:
        case Message(usage=TokenUsage() as usage):
            counts = (usage.input, usage.output, usage.context)
            return body if all(map(is_count, counts)) else replace(body, usage=TokenUsage(*map(count_or_zero, counts)))
        case CompactionEntry(tokens_before=before, tokens_after=after):
            return replace(body, tokens_before=_count_or_none(before), tokens_after=_count_or_none(after))
        case _:
            return body


def _count_or_none(value: Any) -> int | None:
    return value if is_count(value) else None
