"""Records of an inbox: what happened to messages and runs, one step each. They are checked when they are read.

received    a message was accepted
begun       messages of one conversation became an answer run, in a session; again for each further attempt
answered    the reply, split into the parts that the channel takes
sending     a part is about to be sent: from now on it may have arrived
unsent      the part was certainly not sent, and will be sent again
sent        the part arrived
unsure      the part may have arrived, or never will: it is not sent again
cancelled   the answer is no longer wanted
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from kept.agent.events import Inbound
from kept.base.limits import MAX_TOKENS, is_count, is_deep, is_time, strict_json
from kept.base.remote_errors import MessageConflict
from kept.base.values import frozen
from kept.errors import SessionKeyInvalid
from kept.sessions.forgotten_text import blank_tree
from kept.sessions.session_key import SessionKey

Name = tuple[str, str]
"""Channel of a message, and its id there."""


@frozen
class AcceptedMessage:
    """Message that was accepted. Its channel and id identify it."""

    channel: str
    id: str
    key: str
    """Full session key of its conversation."""
    inbound: Inbound
    accepted_at: dt.datetime


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
    details: Mapping[str, Any] = field(default_factory=dict)
    """Notices, tools and tokens of the answer, for clients."""
    cancelled: bool = False
    sending: bool = False
    """True if the first part that is not settled is being sent."""
    settled: int = 0
    """Number of parts that were sent or given up."""
    unconfirmed_parts: tuple[tuple[int, str], ...] = ()
    """Parts that were given up and may not have arrived, with the reason."""

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
    is_same = message.inbound.text in (text, "")  # a text that was forgotten is empty
    if message.key != key or not is_same:
        raise MessageConflict(f"Another message has the id '{message.id}' already.")
    return message


Record = dict[str, Any]

MAX_PARTS = 100_000
"""Upper limit of the parts of a reply. A larger number is damage."""
_MAX_DEPTH = 100


def received_record(message: AcceptedMessage) -> Record:
    inbound = message.inbound
    return {
        "type": "received",
        "channel": message.channel,
        "id": message.id,
        "key": message.key,
        "at": message.accepted_at.isoformat(),
        "text": inbound.text,
        "sender": inbound.sender,
        "timestamp": inbound.timestamp.isoformat() if inbound.timestamp else None,
        "metadata": inbound.metadata,
    }


def read_message(record: Record) -> AcceptedMessage:
    sent_at = dt.datetime.fromisoformat(record["timestamp"]) if record["timestamp"] else None
    inbound = Inbound(record["id"], record["text"], record["sender"], sent_at, record["metadata"])
    accepted_at = dt.datetime.fromisoformat(record["at"])
    return AcceptedMessage(record["channel"], record["id"], record["key"], inbound, accepted_at)


def begun_record(run: AnswerRun) -> Record:
    return {
        "type": "begun",
        "run": run.id,
        "channel": run.channel,
        "key": run.key,
        "ids": list(run.message_ids),
        "session": run.session_id,
    }


def read_run(record: Record) -> AnswerRun:
    ids, attempts = tuple(record["ids"]), record.get("attempts", 1)
    return AnswerRun(record["run"], record["channel"], record["key"], ids, record["session"], attempts)


def advance(run: AnswerRun, record: Record) -> AnswerRun:
    """Return a run after the step that a record describes."""
    match record["type"]:
        case "begun":
            return replace(run, attempts=record["attempts"])
        case "answered":
            return replace(
                run,
                parts=tuple(record["parts"]),
                push=record["push"],
                entry_id=record["entry"],
                error=record["error"],
                details=record.get("details", {}),
            )
        case "cancelled":
            return replace(run, cancelled=True)
        case "sending":
            return replace(run, sending=True)
        case "unsent":
            return replace(run, sending=False)
        case "sent":
            return replace(run, sending=False, settled=record["part"] + 1)
        case "unsure" if record["part"] >= run.settled:  # not recorded twice
            unconfirmed = (*run.unconfirmed_parts, (record["part"], record.get("reason", "")))
            return replace(run, sending=False, settled=record["part"] + 1, unconfirmed_parts=unconfirmed)
        case _:
            return run


def run_records(run: AnswerRun) -> list[Record]:
    """Return the fewest records that lead to the present state of a run."""
    records: list[Record] = [{**begun_record(run), "attempts": run.attempts}]
    if run.parts is not None:
        answered = {"parts": list(run.parts), "push": run.push, "entry": run.entry_id, "error": run.error}
        records.append({"type": "answered", **answered, **({"details": dict(run.details)} if run.details else {})})
    if run.cancelled:
        records.append({"type": "cancelled"})
    records += ({"type": "unsure", "part": part, "reason": reason} for part, reason in run.unconfirmed_parts)
    if run.settled:
        records.append({"type": "sent", "part": run.settled - 1})
    if run.sending:
        records.append({"type": "sending", "part": run.settled})
    return [{**record, "run": run.id} for record in records]


def blank_message(message: AcceptedMessage, matches: Callable[[str], bool]) -> AcceptedMessage:
    inbound = message.inbound
    texts = {"text": inbound.text, "sender": inbound.sender, "metadata": dict(inbound.metadata or {})}
    return replace(message, inbound=replace(inbound, **blank_tree(texts, matches)))


def blank_run(run: AnswerRun, matches: Callable[[str], bool]) -> AnswerRun:
    parts = None if run.parts is None else tuple("" if matches(part) else part for part in run.parts)
    return replace(run, parts=parts, details=blank_tree(dict(run.details), matches))


# checks of what is read


def parse_record(line: bytes, messages: Mapping[Name, AcceptedMessage], runs: Mapping[str, AnswerRun]) -> Record:
    """Return the record that follows those which led to these messages and runs. Raise ValueError with the fault.

    A record can be applied without further checks: its fields have the right types, and what it refers to is there.
    """
    try:
        record: Record = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise ValueError("it is not a record")
    run = runs.get(str(record.get("run")))
    reason = _find_wrong_field(record, is_begun=run is not None) or _find_wrong_reference(record, messages, run)
    if reason is not None:
        raise ValueError(reason)
    return record


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_PARTS and all(map(_is_text, value))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_deep(value, _MAX_DEPTH)


def _is_moment(value: Any) -> bool:
    try:
        return isinstance(value, str) and is_time(dt.datetime.fromisoformat(value))
    except ValueError:
        return False


def _is_key(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(SessionKey.parse_full(value)) == value
    except SessionKeyInvalid:
        return False


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("channel", "id", "run"), _is_name),
    **dict.fromkeys(("text", "session", "reason"), _is_text),
    **dict.fromkeys(("sender", "entry", "error"), _is_text_or_none),
    **dict.fromkeys(("metadata", "details"), _is_object),
    "version": is_count,
    "attempts": lambda value: is_count(value, MAX_TOKENS),
    "part": lambda value: is_count(value, MAX_PARTS),
    "parts": _are_texts,
    "ids": lambda value: _are_texts(value) and value != [] and len(set(value)) == len(value),
    "push": lambda value: isinstance(value, bool),
    "key": _is_key,
    "at": _is_moment,
    "timestamp": lambda value: value is None or _is_moment(value),
}
_FIELDS = {
    "inbox": ("version",),
    "received": ("channel", "id", "key", "at", "text", "sender", "timestamp", "metadata"),
    "begun": ("run", "channel", "key", "ids", "session"),
    "answered": ("run", "parts", "push", "entry", "error"),
    "cancelled": ("run",),
    **dict.fromkeys(("sending", "unsent", "sent", "unsure"), ("run", "part")),
}
"""Fields that a record of each type has to have."""


def _find_wrong_field(record: Record, *, is_begun: bool) -> str | None:
    if record["type"] not in _FIELDS:
        return "it is of no known type"
    is_again = is_begun and record["type"] == "begun"
    for name in ("run", "attempts") if is_again else _FIELDS[record["type"]]:
        if name not in record:
            return f"its '{name}' is missing"
    wrong = (name for name, value in record.items() if name in _CHECKS and not _CHECKS[name](value))
    return next((f"its '{name}' is not what it should be" for name in wrong), None)


def _find_wrong_reference(
    record: Record, messages: Mapping[Name, AcceptedMessage], run: AnswerRun | None
) -> str | None:
    kind, channel = record["type"], record.get("channel")
    if channel and "key" in record and SessionKey.parse_full(record["key"]).channel != channel:
        return "its 'channel' is not that of its 'key'"
    if kind in ("inbox", "received"):
        return None
    if kind == "begun" and run is None:
        known = (messages.get((record["channel"], name)) for name in record["ids"])
        is_whole = all(message is not None and message.key == record["key"] for message in known)
        return None if is_whole else "a message that it is about is not there"
    if run is None:
        return "the answer that it is about is not there"
    return "its 'part' is not one of the reply" if record.get("part", -1) >= len(run.parts or ()) else None
