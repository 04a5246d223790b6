"""Records of an inbox: a message that was accepted, and the run that answers it with every step that it took.

The first record of a run has all of it, each further one the fields that changed. They are checked when they are read.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from kept.agent.events import Inbound
from kept.base.json_values import from_tree, to_tree
from kept.base.limits import is_count, is_deep, strict_json, utf8_safe
from kept.base.remote_errors import MessageConflict
from kept.base.values import frozen
from kept.errors import ConfigError, SessionKeyInvalid
from kept.sessions.forgotten_text import blank_tree
from kept.sessions.session_key import SessionKey

VERSION = 2
_MAX_DEPTH = 100

Name = tuple[str, str]
"""Channel of a message, and its id there."""


@frozen
class AcceptedMessage:
    """Message that was accepted. Its channel and id identify it."""

    channel: str
    id: str
    key: str
    """Full session key of its conversation."""
    at: dt.datetime
    text: str
    sender: str | None = None
    timestamp: dt.datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def inbound(self) -> Inbound:
        return Inbound(self.id, self.text, self.sender, self.timestamp, self.metadata)


@frozen
class AnswerRun:
    """Messages that are answered together, and the progress of their answer."""

    id: str
    channel: str
    key: str
    message_ids: tuple[str, ...]
    session_id: str
    """Chosen when the run began, so that it stays the same after a crash."""
    attempts: int = 1
    parts: tuple[str, ...] | None = None
    """Reply. Empty if there is nothing to send, None until there is a reply."""
    push: bool = False
    """True if the parts have to be sent; otherwise they are fetched."""
    entry_id: str | None = None
    error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    """Notices, tools and tokens of the answer, for clients."""
    cancelled: bool = False
    sending: bool = False
    """True if the first part that is not settled is about to be sent: from then on it may have arrived."""
    settled: int = 0
    """Number of parts that were sent or given up."""
    unconfirmed: int = 0
    """Number of parts that were given up and may have arrived."""

    @property
    def finished(self) -> bool:
        return self.cancelled or (self.parts is not None and (not self.push or self.settled >= len(self.parts)))

    @property
    def reply(self) -> str | None:
        return "\n\n".join(self.parts) if self.parts else None


def message_status(run: AnswerRun | None) -> str:
    """Return the status of a message, given its run if it has one."""
    if run is None:
        return "waiting"
    if run.cancelled:
        return "cancelled"
    if run.parts is None:
        return "answering"
    return "failed" if run.error else "answered"


def check_same(message: AcceptedMessage, key: str, text: str) -> AcceptedMessage:
    """Return the message if it has this key and text. Raise MessageConflict otherwise."""
    is_same = message.text in (utf8_safe(text), "")  # a text that was forgotten is empty
    if message.key != key or not is_same:
        raise MessageConflict(f"Another message has the id '{message.id}' already.")
    return message


def blank_message(message: AcceptedMessage, matches: Callable[[str], bool]) -> AcceptedMessage:
    text, sender, metadata = blank_tree([message.text, message.sender, message.metadata], matches)
    return replace(message, text=text, sender=sender, metadata=metadata)


def blank_run(run: AnswerRun, matches: Callable[[str], bool]) -> AnswerRun:
    parts = None if run.parts is None else tuple(blank_tree([*run.parts], matches))
    return replace(run, parts=parts, details=blank_tree(run.details, matches))


# records

Record = dict[str, Any]


def format_record(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


FIRST_LINE = format_record("inbox", version=VERSION)


def format_value(value: AcceptedMessage | AnswerRun) -> bytes:
    """Return the record of a message, or of a run with all of its steps."""
    return format_record("run" if isinstance(value, AnswerRun) else "message", **to_tree(value))


def parse_record(
    line: bytes, messages: Mapping[Name, AcceptedMessage], runs: Mapping[str, AnswerRun]
) -> AcceptedMessage | AnswerRun | None:
    """Return the message of a record, or the run after its step, given what earlier records led to; None for the first
    line. Raise ValueError with the fault, and ConfigError if a later version of Kept wrote it."""
    try:
        record = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    match record:
        case {"type": "message"} if not is_deep(record, _MAX_DEPTH):
            return _read_message(record)
        case {"type": "run"} if not is_deep(record, _MAX_DEPTH):
            return _read_run(record, messages, runs)
        case {"type": "inbox", "version": version} if is_count(version):
            if version > VERSION:
                hint = "Upgrade Kept; nothing was changed."
                raise ConfigError("inbox.jsonl: written by a later version of Kept.", hint=hint)
            return None
    raise ValueError("it is of no known type")


def _read_message(record: Record) -> AcceptedMessage:
    message = from_tree(AcceptedMessage, record)
    try:
        key = SessionKey.parse_full(message.key)
    except SessionKeyInvalid as exc:
        raise ValueError(exc.message) from None
    if not message.id or str(key) != message.key or key.channel != message.channel:
        raise ValueError("its 'id', 'channel' or 'key' is not what it should be")
    return message


def _read_run(record: Record, messages: Mapping[Name, AcceptedMessage], runs: Mapping[str, AnswerRun]) -> AnswerRun:
    before = runs.get(str(record.get("id")))
    run = from_tree(AnswerRun, record if before is None else {**to_tree(before), **record})
    about = (run.channel, run.key, run.message_ids)
    if before is not None and about != (before.channel, before.key, before.message_ids):
        raise ValueError("it is about other messages than before")
    known = [messages.get((run.channel, name)) for name in dict.fromkeys(run.message_ids)]
    if not known or len(known) < len(run.message_ids) or any(not each or each.key != run.key for each in known):
        raise ValueError("a message that it is about is not there")
    if not 0 <= run.settled <= len(run.parts or ()) - run.sending:
        raise ValueError("the reply does not have that many parts")
    return run
