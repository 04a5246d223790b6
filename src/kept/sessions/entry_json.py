"""An entry as a line of JSON that a person can read, and back.

`format_entry` and `parse_entry` are each other's inverse. A line of a known kind with a wrong field is a
`DamagedEntry`. A count or a time that is out of range damages only itself: it is read as unknown, and `Entry.faults`
reports it. A line of an unknown kind is kept byte for byte.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, assert_never, cast

from kept.errors import EntryRefused
from kept.limits import UNKNOWN_TIME, is_count, is_deep, is_time, strict_json
from kept.sessions.entries import (
    ROLES,
    AnyEntry,
    Attachment,
    Block,
    Body,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    Role,
    SessionStart,
    StateEntry,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
    UnknownBlock,
    UnknownEntry,
)

_MAX_DEPTH = 200


class DamagedEntry(ValueError):
    """A line that is not an entry. The message is the reason, without the place: the caller knows that."""


def format_time(when: dt.datetime) -> str:
    """ISO 8601 with milliseconds and offset."""
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


def format_entry(entry: AnyEntry) -> bytes:
    """Return an entry as one line, with its line break."""
    if isinstance(entry, UnknownEntry):
        return entry.raw + b"\n"
    kind, fields = _body_fields(entry.body)
    tree = {
        "type": kind,
        "id": entry.id,
        "parentId": entry.parent_id,
        "timestamp": format_time(entry.timestamp),
        **fields,
        **entry.extra,
    }
    return to_json(tree) + b"\n"


def to_json(tree: Any) -> bytes:
    try:
        return _readable.encode(tree).encode("utf-8")
    except UnicodeEncodeError:
        return _escaping.encode(tree).encode("ascii")  # half of a surrogate pair has no UTF-8
    except (TypeError, ValueError, RecursionError) as exc:
        raise EntryRefused(f"The entry cannot be written as JSON ({exc}).") from exc


_readable = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_escaping = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _body_fields(body: Body) -> tuple[str, dict[str, Any]]:
    match body:
        case Message():
            return "message", {"message": _message_fields(body)}
        case SessionStart():
            start: dict[str, Any] = {"version": body.version, "key": body.key}
            start |= _present(predecessor=body.predecessor, compactions=body.compactions or None)
            return "session", start | _present(state=body.state or None, metadata=body.metadata or None)
        case CompactionEntry():
            numbers = _present(tokensBefore=body.tokens_before, tokensAfter=body.tokens_after)
            more = _present(receipt=body.receipt, metadata=body.metadata or None)
            kept = {"firstKeptId": body.first_kept_id, "source": body.source}
            return "compaction", {"summary": body.summary, **kept, **numbers, **more}
        case ResetEntry():
            return "reset", {"reason": body.reason, **_present(successor=body.successor)}
        case StateEntry():
            return "state", {"name": body.name, "value": body.value}
        case _:
            assert_never(body)


def _message_fields(message: Message) -> dict[str, Any]:
    usage = message.usage
    return {
        "role": message.role,
        **_present(sender=message.sender),
        "content": _content(message.content),
        **_present(
            model=message.model,
            usage=usage and {"input": usage.input, "output": usage.output, "context": usage.context},
            metadata=message.metadata or None,
        ),
    }


def _content(blocks: tuple[Block, ...]) -> Any:
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    return [_block_fields(block) for block in blocks]


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
        case Attachment(media_type, name, path):
            return {"type": "attachment", "mediaType": media_type, **_present(name=name, path=path)}
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


# reading


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
        return _unknown(line, kind, tree)
    fields = _Fields(tree)
    entry_id = fields.take("id", str)
    parent_id = fields.take_or("parentId", str, None)
    timestamp = fields.take_time("timestamp")
    body = _BODIES[kind](fields)
    return Entry(entry_id, parent_id, timestamp, body, tree, tuple(fields.faults))


def _unknown(line: bytes, kind: str, tree: dict[str, Any]) -> UnknownEntry:
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


class _Fields:
    """JSON object whose fields are taken out by the parser. The fields left over are unknown to this version."""

    __slots__ = ("faults", "tree")

    def __init__(self, tree: dict[str, Any], faults: list[str] | None = None) -> None:
        self.tree = tree
        self.faults: list[str] = [] if faults is None else faults

    def take(self, name: str, kind: type) -> Any:
        value = self.tree.pop(name, None)
        if type(value) is not kind:
            raise DamagedEntry(f"its '{name}' is {'missing' if value is None else 'of the wrong kind'}")
        return value

    def take_or(self, name: str, kind: type, default: Any) -> Any:
        value = self.tree.pop(name, None)
        if value is None:
            return default
        if type(value) is not kind:
            raise DamagedEntry(f"its '{name}' is of the wrong kind")
        return value

    def take_count(self, name: str, default: Any) -> Any:
        """Return an optional count. If the value is not one, add a fault and return the default."""
        value = self.tree.pop(name, None)
        if value is None:
            return default
        if not is_count(value):
            self.faults.append(f"its '{name}' is not a believable number and is ignored")
            return default
        return value

    def take_time(self, name: str) -> dt.datetime:
        when = parse_time(self.tree.pop(name, None))
        if is_time(when):
            return when
        self.faults.append(f"its '{name}' is not between 1970 and 2200 and is ignored")
        return UNKNOWN_TIME

    def rest_into(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return {**self.tree, **metadata} if self.tree else metadata


def _parse_start(fields: _Fields) -> SessionStart:
    key, version = fields.take("key", str), fields.take("version", int)
    if not is_count(version):
        raise DamagedEntry("its 'version' is out of range")
    return SessionStart(
        key=key,
        version=version,
        predecessor=fields.take_or("predecessor", str, None),
        compactions=fields.take_count("compactions", 0),
        state=fields.take_or("state", dict, None) or {},
        metadata=fields.take_or("metadata", dict, None) or {},
    )


def _parse_message(fields: _Fields) -> Message:
    inner = _Fields(fields.take("message", dict), fields.faults)
    role = inner.take("role", str)
    if role not in ROLES:
        raise DamagedEntry(f"its role is not one of {', '.join(ROLES)}")
    content = inner.tree.pop("content", None)
    usage = inner.take_or("usage", dict, None)
    return Message(
        role=cast("Role", role),
        content=_parse_content(content),
        sender=inner.take_or("sender", str, None),
        model=inner.take_or("model", str, None),
        usage=None if usage is None else _parse_usage(_Fields(usage, fields.faults)),
        metadata=inner.rest_into(inner.take_or("metadata", dict, None) or {}),
    )


def _parse_usage(fields: _Fields) -> TokenUsage:
    return TokenUsage(fields.take_count("input", 0), fields.take_count("output", 0), fields.take_count("context", 0))


def _parse_content(content: Any) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise DamagedEntry("its 'content' is neither text nor a list")
    return tuple(map(_parse_block, content))


def _parse_block(tree: Any) -> Block:
    if not isinstance(tree, dict):
        raise DamagedEntry("part of its 'content' is not an object")
    fields = _Fields(dict(tree))
    match fields.tree.pop("type", None):
        case "text":
            block: Block = Text(fields.take("text", str))
        case "thinking":
            block = Thinking(fields.take("thinking", str), fields.take_or("signature", str, None))
        case "toolCall":
            block = ToolCall(fields.take("id", str), fields.take("name", str), fields.take("arguments", dict))
        case "toolResult":
            call_id, text = fields.take("toolCallId", str), fields.take("text", str)
            name, is_error = fields.take_or("toolName", str, None), fields.take_or("isError", bool, False)
            block = ToolResult(call_id, text, name, is_error)
        case "attachment":
            media, name = fields.take("mediaType", str), fields.take_or("name", str, None)
            block = Attachment(media, name, fields.take_or("path", str, None))
        case _:
            return UnknownBlock(tree)
    return block


def _parse_compaction(fields: _Fields) -> CompactionEntry:
    return CompactionEntry(
        summary=fields.take("summary", str),
        first_kept_id=fields.take_or("firstKeptId", str, None),
        tokens_before=fields.take_count("tokensBefore", None),
        tokens_after=fields.take_count("tokensAfter", None),
        source=fields.take_or("source", str, "manual"),
        receipt=fields.take_or("receipt", dict, None),
        metadata=fields.take_or("metadata", dict, None) or {},
    )


def _parse_reset(fields: _Fields) -> ResetEntry:
    return ResetEntry(fields.take("reason", str), fields.take_or("successor", str, None))


def _parse_state(fields: _Fields) -> StateEntry:
    return StateEntry(fields.take("name", str), fields.tree.pop("value", None))


_BODIES: dict[str, Any] = {
    "session": _parse_start,
    "message": _parse_message,
    "compaction": _parse_compaction,
    "reset": _parse_reset,
    "state": _parse_state,
}
