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

import datetime as dt
import json
from dataclasses import field
from typing import Any, Literal, assert_never, cast

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


# writing

_readable = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_escaping = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def format_entry(entry: AnyEntry) -> bytes:
    """Return an entry as one line, with its line break."""
    if isinstance(entry, UnknownEntry):
        return entry.raw + b"\n"
    body = entry.body
    fields: dict[str, Any]
    match body:
        case Message(role, content, sender, model, usage, metadata):
            is_plain = len(content) == 1 and isinstance(content[0], Text)
            counts = usage and {"input": usage.input, "output": usage.output, "context": usage.context}
            message = {
                "role": role,
                **_present(sender=sender),
                "content": body.text if is_plain else [_block_fields(block) for block in content],
                **_present(model=model, usage=counts, metadata=metadata or None),
            }
            kind, fields = "message", {"message": message}
        case SessionStart():
            kind, fields = "session", {"version": body.version, "key": body.key}
            fields |= _present(predecessor=body.predecessor, compactions=body.compactions or None)
            fields |= _present(state=body.state or None, metadata=body.metadata or None)
        case CompactionEntry():
            kind = "compaction"
            fields = {"summary": body.summary, "firstKeptId": body.first_kept_id, "source": body.source}
            fields |= _present(tokensBefore=body.tokens_before, tokensAfter=body.tokens_after)
            fields |= _present(receipt=body.receipt, metadata=body.metadata or None)
        case ResetEntry():
            kind, fields = "reset", {"reason": body.reason, **_present(successor=body.successor)}
        case StateEntry():
            kind, fields = "state", {"name": body.name, "value": body.value}
        case _:
            assert_never(body)
    head = {"type": kind, "id": entry.id, "parentId": entry.parent_id, "timestamp": format_time(entry.timestamp)}
    return to_json({**head, **fields, **entry.extra}) + b"\n"


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
        if isinstance(block, Text) and not isinstance(block.text, str):
            raise EntryRefused(f"A message is text, not {block.text!r:.80}.", hint="Decode bytes; format other values.")


def to_json(tree: Any) -> bytes:
    try:
        return _readable.encode(tree).encode("utf-8")
    except UnicodeEncodeError:
        return _escaping.encode(tree).encode("ascii")  # half of a surrogate pair has no UTF-8
    except (TypeError, ValueError, RecursionError) as exc:
        raise EntryRefused(f"The entry cannot be written as JSON ({exc}).") from exc


def _block_fields(block: Block) -> dict[str, Any]:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": text, **_present(signature=signature)}
        case ToolCall(call_id, name, arguments):
            return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}
        case ToolResult(call_id, text, name, is_error):
            optional = _present(toolName=name)
            return {"type": "toolResult", "toolCallId": call_id, **optional, "isError": is_error, "text": text}
        case Attachment(media_type, name, path, sha256, size):
            optional = _present(name=name, path=path, sha256=sha256, size=size)
            return {"type": "attachment", "mediaType": media_type, **optional}
        case UnknownBlock(fields):
            return fields
        case _:  # from a caller who does not check types
            raise EntryRefused(
                "A message consists of blocks, and this is not a block.",
                hint='For plain text: Message.of("user", "Hello").',
            )


def _present(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value. People read these lines too."""
    return {name: value for name, value in fields.items() if value is not None}


# reading: each field is taken out of the object, so that the rest are fields this version does not know

_REQUIRED: Any = object()


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
    if kind not in _BODIES:
        return _parse_unknown(line, kind, tree)
    entry_id, parent_id = _take(tree, "id", str), _take(tree, "parentId", str, None)
    timestamp = parse_time(tree.pop("timestamp", None))
    if not is_time(timestamp):
        timestamp = UNKNOWN_TIME
    return Entry(entry_id, parent_id, timestamp, _BODIES[kind](tree), tree)


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


def _take(tree: dict[str, Any], name: str, kind: type, default: Any = _REQUIRED) -> Any:
    """Take a field out of an object. Return the default, if there is one, for a field that is missing or null."""
    value = tree.pop(name, None)
    if type(value) is kind:
        return value
    if value is not None:
        raise DamagedEntry(f"its '{name}' is of the wrong kind")
    if default is _REQUIRED:
        raise DamagedEntry(f"its '{name}' is missing")
    return default


def _take_count(tree: dict[str, Any], name: str, default: Any) -> Any:
    """Take an optional count. Return the default for a value that is not one."""
    value = tree.pop(name, None)
    return value if is_count(value) else default


def _parse_start(tree: dict[str, Any]) -> SessionStart:
    key, version = _take(tree, "key", str), _take(tree, "version", int)
    if not is_count(version):
        raise DamagedEntry("its 'version' is out of range")
    return SessionStart(
        key=key,
        version=version,
        predecessor=_take(tree, "predecessor", str, None),
        compactions=_take_count(tree, "compactions", 0),
        state=_take(tree, "state", dict, None) or {},
        metadata=_take(tree, "metadata", dict, None) or {},
    )


def _parse_message(tree: dict[str, Any]) -> Message:
    inner = _take(tree, "message", dict)
    role = _take(inner, "role", str)
    if role not in ROLES:
        raise DamagedEntry(f"its role is not one of {', '.join(ROLES)}")
    content, usage = inner.pop("content", None), _take(inner, "usage", dict, None)
    if not isinstance(content, str | list):
        raise DamagedEntry("its 'content' is neither text nor a list")
    blocks = (Text(content),) if isinstance(content, str) else tuple(map(parse_block, content))
    sender, model = _take(inner, "sender", str, None), _take(inner, "model", str, None)
    if usage is not None:
        usage = TokenUsage(*[_take_count(usage, name, 0) for name in ("input", "output", "context")])
    metadata = _take(inner, "metadata", dict, None) or {}
    if inner:
        metadata = {**inner, **metadata}
    return Message(cast("Role", role), blocks, sender, model, usage, metadata)


def parse_block(content: Any) -> Block:
    """Return a part of a message. Raise DamagedEntry if a field of a known kind is wrong."""
    if not isinstance(content, dict):
        raise DamagedEntry("part of its 'content' is not an object")
    tree = dict(content)
    match tree.pop("type", None):
        case "text":
            return Text(_take(tree, "text", str))
        case "thinking":
            return Thinking(_take(tree, "thinking", str), _take(tree, "signature", str, None))
        case "toolCall":
            return ToolCall(_take(tree, "id", str), _take(tree, "name", str), _take(tree, "arguments", dict))
        case "toolResult":
            call_id, text = _take(tree, "toolCallId", str), _take(tree, "text", str)
            return ToolResult(call_id, text, _take(tree, "toolName", str, None), _take(tree, "isError", bool, False))
        case "attachment":
            media_type, name = _take(tree, "mediaType", str), _take(tree, "name", str, None)
            path, sha256 = _take(tree, "path", str, None), _take(tree, "sha256", str, None)
            return Attachment(media_type, name, path, sha256, _take(tree, "size", int, None))
        case _:
            return UnknownBlock(content)


def _parse_compaction(tree: dict[str, Any]) -> CompactionEntry:
    return CompactionEntry(
        summary=_take(tree, "summary", str),
        first_kept_id=_take(tree, "firstKeptId", str, None),
        tokens_before=_take_count(tree, "tokensBefore", None),
        tokens_after=_take_count(tree, "tokensAfter", None),
        source=_take(tree, "source", str, "manual"),
        receipt=_take(tree, "receipt", dict, None),
        metadata=_take(tree, "metadata", dict, None) or {},
    )


_BODIES: dict[str, Any] = {
    "session": _parse_start,
    "message": _parse_message,
    "compaction": _parse_compaction,
    "reset": lambda tree: ResetEntry(_take(tree, "reason", str), _take(tree, "successor", str, None)),
    "state": lambda tree: StateEntry(_take(tree, "name", str), tree.pop("value", None)),
}
