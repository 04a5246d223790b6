"""Entries of a transcript: their types, and each as a line of JSON that a person can read.

Entry                  id, parent, time, and one of these bodies:
├── SessionStart       the first line: version, key, predecessor
├── Message            what a person, the agent or a tool said: text, thinking, tool calls and results, attachments
├── CompactionEntry    a summary that replaces everything before the first kept entry
├── ResetEntry         the conversation continues in another session
└── StateEntry         a setting or an event that has to survive: model, thinking, flush
UnknownEntry           a line of a kind this version does not know, kept byte for byte

`format_entry` and `parse_entry` are each other's inverse. A line of a known kind with a wrong field is a
`DamagedEntry`. A count or a time that is out of range damages only itself: it is read as unknown.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from dataclasses import field
from functools import cache
from types import UnionType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from kept.base.limits import UNKNOWN_TIME, is_count, is_deep, is_time, strict_json
from kept.base.values import frozen
from kept.errors import EntryRefused

VERSION = 1
_MAX_DEPTH = 200

Role = Literal["user", "assistant", "tool", "system"]
ROLES: tuple[Role, ...] = ("user", "assistant", "tool", "system")

MODEL, FLUSH = "model", "flush"
TITLE, USER_TITLE = "title", "userTitle"
"""Names of states that are counted or shown. Others are only kept. ``title`` is the title that an imported conversation
had in the other program; ``userTitle`` is the one that the user gave it here, which wins."""

FORWARDED = "forwardedFrom"
"""Metadata of a message: who wrote it, if the sender forwarded it."""
HEARTBEAT = "heartbeat"
"""Metadata of a message that nobody wrote: the agent is to look whether something needs attention."""
SENT = "sent"
"""Metadata of a message: when its channel says that it was sent."""
CHANNEL = "channel"
"""Metadata of a message: channel that it came through, which may differ from that of its conversation."""
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
    sha256: str | None = None
    """Hash of the file, if it is stored beside the transcripts."""
    size: int | None = None


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
    """A message of a conversation. `Message.of` makes one from a text."""

    role: Role
    content: tuple[Block, ...]
    sender: str | None = None
    """Name of the person, if several take part."""
    model: str | None = None
    usage: TokenUsage | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, role: Role, text: str, **more: Any) -> Message:
        """Return a message with this text. ``role`` is user, assistant, tool or system."""
        message = cls(role, (Text(text),), **more)
        require_body(message)
        return message

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


@frozen
class UnknownEntry:
    raw: bytes
    """The line without its line break."""
    type: str
    id: str | None = None
    parent_id: str | None = None
    timestamp: dt.datetime | None = None


AnyEntry = Entry | UnknownEntry


def is_message(content: object) -> bool:
    """Return whether the content of a line is a message."""
    return isinstance(content, Entry) and isinstance(content.body, Message)


def whole_ms(when: dt.datetime) -> dt.datetime:
    """Return a time as it is stored, in whole milliseconds. A time without an offset is local."""
    when = when.replace(microsecond=when.microsecond // 1000 * 1000)
    return when if when.tzinfo else when.astimezone()


# times


class DamagedEntry(ValueError):
    """A line that is not an entry. The message is the reason, without the place: the caller knows that."""


def format_time(when: dt.datetime) -> str:
    """Return a time in ISO 8601, with milliseconds and offset."""
    return when.isoformat(timespec="milliseconds")


def parse_time(text: Any) -> dt.datetime:
    if not isinstance(text, str):
        raise DamagedEntry("its timestamp is missing")
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        raise DamagedEntry(f"its timestamp is not a time ({text[:40]!a})") from None
    if when.tzinfo is None:
        raise DamagedEntry(f"its timestamp has no offset ({text[:40]!a})")
    return when


# the fields of each class


@frozen
class _EntryIds:
    id: str
    parent_id: str | None


_REQUIRED: Any = object()
_ENTRY_KINDS: dict[str, Any] = {
    "session": SessionStart,
    "message": Message,
    "compaction": CompactionEntry,
    "reset": ResetEntry,
    "state": StateEntry,
}
_BLOCK_KINDS: dict[str, Any] = {
    "text": Text,
    "thinking": Thinking,
    "toolCall": ToolCall,
    "toolResult": ToolResult,
    "attachment": Attachment,
}
_KIND_NAMES = {kind: name for kinds in (_ENTRY_KINDS, _BLOCK_KINDS) for name, kind in kinds.items()}
_OTHER_NAMES = {
    (Thinking, "text"): "thinking",
    (ToolResult, "call_id"): "toolCallId",
    (ToolResult, "name"): "toolName",
}
"""Names of fields that are not those of the attributes in camelCase."""
_FIRST_WRITTEN = frozenset(
    ("version", "role", "sender", "toolCallId", "toolName", "isError", "summary", "firstKeptId", "source")
)
"""They come before the other fields of a line."""
_ALWAYS_WRITTEN = frozenset(
    ("version", "arguments", "input", "output", "context", "isError", "firstKeptId", "source", "value")
)
"""Others are left out if they have their default. People read these lines too."""


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, str, Any, Any], ...]:
    """Return the attribute, the name, the type in JSON and the default of each field."""
    hints, known = get_type_hints(kind), []
    for spec in dataclasses.fields(kind):
        hint = hints[spec.name]
        is_optional = isinstance(hint, UnionType)
        plain = get_args(hint)[0] if is_optional else hint
        default = spec.default if spec.default is not dataclasses.MISSING else None if is_optional else _REQUIRED
        if spec.default_factory is not dataclasses.MISSING:
            default = spec.default_factory()
        first, *rest = spec.name.split("_")
        name = _OTHER_NAMES.get((kind, spec.name)) or first + "".join(map(str.capitalize, rest))
        known.append((spec.name, name, str if plain is Role else get_origin(plain) or plain, default))
    return tuple(sorted(known, key=lambda known_field: known_field[1] not in _FIRST_WRITTEN))


# writing

_readable = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_escaping = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def format_entry(entry: AnyEntry) -> bytes:
    """Return an entry as one line, with its line break."""
    if isinstance(entry, UnknownEntry):
        return entry.raw + b"\n"
    kind, fields = _KIND_NAMES[type(entry.body)], _write_fields(entry.body)
    head = {"type": kind, "id": entry.id, "parentId": entry.parent_id, "timestamp": format_time(entry.timestamp)}
    return to_json({**head, **({kind: fields} if kind == "message" else fields), **entry.extra}) + b"\n"


def _write_fields(value: Any) -> dict[str, Any]:
    if isinstance(value, UnknownBlock):
        return value.fields
    kind: Any = type(value)
    fields: dict[str, Any] = {"type": _KIND_NAMES[kind]} if isinstance(value, Block) else {}
    for attribute, name, _, default in _fields_of(kind):
        inner = getattr(value, attribute)
        if inner == default and name not in _ALWAYS_WRITTEN:
            continue
        if name == "content":
            is_plain = len(inner) == 1 and isinstance(inner[0], Text)
            inner = inner[0].text if is_plain else [_write_fields(block) for block in inner]
        fields[name] = _write_fields(inner) if isinstance(inner, TokenUsage) else inner
    return fields


def require_body(body: object) -> None:
    """Raise EntryRefused for a body that could not be read back."""
    if not isinstance(body, Message | SessionStart | CompactionEntry | ResetEntry | StateEntry):
        raise EntryRefused(
            f"{body!r:.80} cannot be appended.", hint="Append a Message: Message.of('user', 'the text')."
        )
    if not isinstance(body, Message):
        return
    if body.role not in ROLES:
        raise EntryRefused(f"There is no role {body.role!r:.80}.", hint=f"Use {', '.join(ROLES[:-1])} or {ROLES[-1]}.")
    for block in body.content:
        if not isinstance(block, Block):  # from a caller who does not check types
            raise EntryRefused(
                "A message consists of blocks, and this is not a block.",
                hint='For plain text: Message.of("user", "Hello").',
            )
        if isinstance(block, Text) and not isinstance(block.text, str):
            raise EntryRefused(f"A message is text, not {block.text!r:.80}.", hint="Decode bytes; format other values.")


def to_json(tree: Any) -> bytes:
    try:
        return _readable.encode(tree).encode("utf-8")
    except UnicodeEncodeError:
        return _escaping.encode(tree).encode("ascii")  # half of a surrogate pair has no UTF-8
    except (TypeError, ValueError, RecursionError) as exc:
        raise EntryRefused(f"The entry cannot be written as JSON ({exc}).") from exc


# reading: each field is taken out of the object, so that the rest are fields this version does not know


def parse_entry(line: bytes) -> AnyEntry:
    """Parse a line without its line break. Raise DamagedEntry if it is not an entry."""
    if not line:
        raise DamagedEntry("it is empty")
    try:
        tree = strict_json.decode(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise DamagedEntry("it is not UTF-8") from None
    except (ValueError, RecursionError):
        raise DamagedEntry("it is not JSON") from None
    if not isinstance(tree, dict):
        raise DamagedEntry("it is not an object")
    if len(line) > 2 * _MAX_DEPTH and line.count(b"[") + line.count(b"{") > _MAX_DEPTH and is_deep(tree, _MAX_DEPTH):
        raise DamagedEntry("it is nested too deeply")
    kind = tree.pop("type", None)
    if not isinstance(kind, str):
        raise DamagedEntry("it has no type")
    if kind not in _ENTRY_KINDS:
        return _parse_unknown(line, kind, tree)
    ids, timestamp = _read_fields(_EntryIds, tree), parse_time(tree.pop("timestamp", None))
    if not is_time(timestamp):
        timestamp = UNKNOWN_TIME
    body = _parse_message(tree) if kind == "message" else _ENTRY_KINDS[kind](**_read_fields(_ENTRY_KINDS[kind], tree))
    return Entry(timestamp=timestamp, body=body, extra=tree, **ids)


def _parse_unknown(line: bytes, kind: str, tree: dict[str, Any]) -> UnknownEntry:
    own, parent = tree.get("id"), tree.get("parentId")
    try:
        timestamp: dt.datetime | None = parse_time(tree.get("timestamp"))
    except DamagedEntry:
        timestamp = None
    if timestamp is not None and not is_time(timestamp):
        timestamp = None
    return UnknownEntry(
        line, kind, own if isinstance(own, str) else None, parent if isinstance(parent, str) else None, timestamp
    )


def _read_fields(kind: Any, tree: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a class out of an object, without those that are missing or null and have a default."""
    values: dict[str, Any] = {}
    for attribute, name, expected, default in _fields_of(kind):
        value = tree.pop(name, None)
        if value is None:
            if default is _REQUIRED:
                raise DamagedEntry(f"its '{name}' is missing")
            if default is None:
                values[attribute] = None
        elif expected is Any or (type(value) is expected and (expected is not int or is_count(value))):
            values[attribute] = value
        elif expected is not int or default:  # a count that is out of range is unknown; a version cannot be
            raise DamagedEntry(f"its '{name}' is of the wrong kind")
    return values


def _parse_message(tree: dict[str, Any]) -> Message:
    inner = tree.pop("message", None)
    if not isinstance(inner, dict):
        raise DamagedEntry("its 'message' is missing")
    content, usage = inner.get("content"), inner.get("usage")
    if not isinstance(content, str | list):
        raise DamagedEntry("its 'content' is neither text nor a list")
    inner["content"] = (Text(content),) if isinstance(content, str) else tuple(map(parse_block, content))
    if isinstance(usage, dict):
        inner["usage"] = TokenUsage(**_read_fields(TokenUsage, usage))
    message = Message(**_read_fields(Message, inner))
    if message.role not in ROLES:
        raise DamagedEntry(f"its role is not one of {', '.join(ROLES)}")
    return dataclasses.replace(message, metadata={**inner, **message.metadata}) if inner else message


def parse_block(content: Any) -> Block:
    """Return a part of a message. Raise DamagedEntry if a field of a known kind is wrong."""
    if not isinstance(content, dict):
        raise DamagedEntry("part of its 'content' is not an object")
    tree = dict(content)
    kind = _BLOCK_KINDS.get(str(tree.pop("type", None)))
    return UnknownBlock(content) if kind is None else cast("Block", kind(**_read_fields(kind, tree)))
