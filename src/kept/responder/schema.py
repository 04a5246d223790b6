"""What a record of the inbox's journal must be like. Whatever passes here can be applied without further checks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from kept.errors import SessionKeyInvalid
from kept.limits import MAX_TOKENS, is_count, is_deep, is_time
from kept.responder.letters import Record
from kept.sessions.session_key import parse_key

MAX_PART = 100_000
"""No reply has so many parts."""
_MAX_DEPTH = 100

Fits = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_part(value: Any) -> bool:
    return is_count(value, MAX_PART)


def _is_attempts(value: Any) -> bool:
    return is_count(value, MAX_TOKENS)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_PART and all(isinstance(item, str) for item in value)


def _are_ids(value: Any) -> bool:
    return _are_texts(value) and value != [] and len(set(value)) == len(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_deep(value, _MAX_DEPTH)


def _is_moment(value: Any) -> bool:
    try:
        return isinstance(value, str) and is_time(dt.datetime.fromisoformat(value))
    except ValueError:
        return False


def _is_moment_or_none(value: Any) -> bool:
    return value is None or _is_moment(value)


def _is_key(value: Any) -> bool:
    """A session's key in full: the short form could not be told from a damaged one."""
    try:
        return isinstance(value, str) and str(parse_key(value, agent_id="")) == value
    except SessionKeyInvalid:
        return False


_PART: Mapping[str, Fits] = {"turn": _is_name, "part": _is_part}
_FIELDS: Mapping[str, Mapping[str, Fits]] = {
    "inbox": {"version": is_count},
    "received": {
        "channel": _is_name,
        "id": _is_name,
        "key": _is_key,
        "at": _is_moment,
        "text": _is_text,
        "sender": _is_text_or_none,
        "timestamp": _is_moment_or_none,
        "metadata": _is_object,
    },
    "begun": {"turn": _is_name, "channel": _is_name, "key": _is_key, "ids": _are_ids, "session": _is_text},
    "answered": {
        "turn": _is_name,
        "parts": _are_texts,
        "push": _is_bool,
        "entry": _is_text_or_none,
        "error": _is_text_or_none,
    },
    "sending": _PART,
    "unsent": _PART,
    "sent": _PART,
    "unsure": _PART,
    "cancelled": {"turn": _is_name},
}
_BEGUN_AGAIN: Mapping[str, Fits] = {"turn": _is_name, "attempts": _is_attempts}
_OPTIONAL: Mapping[str, Fits] = {"attempts": _is_attempts, "reason": _is_text}


class Known:
    """What the records so far are about: a later one can only refer to that."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str], str] = {}
        self._turns: dict[str, int] = {}
        """The number of parts of each turn's reply."""

    def why_damaged(self, record: Record) -> str | None:
        """Return what is wrong with a record, in words; None where it can be applied, and is known from now on."""
        fields = self._fields_of(record)
        if fields is None:
            return "it is of no known type"
        for name, fits in fields.items():
            if name not in record:
                return f"its '{name}' is missing"
            if not fits(record[name]):
                return f"its '{name}' is not what it should be"
        for name, fits in _OPTIONAL.items():
            if name in record and not fits(record[name]):
                return f"its '{name}' is not what it should be"
        return self._why_out_of_place(record)

    def _fields_of(self, record: Record) -> Mapping[str, Fits] | None:
        kind = record["type"]
        if kind == "begun" and isinstance(record.get("turn"), str) and record["turn"] in self._turns:
            return _BEGUN_AGAIN
        return _FIELDS.get(kind)

    def _why_out_of_place(self, record: Record) -> str | None:
        if (
            "channel" in record
            and "key" in record
            and parse_key(record["key"], agent_id="").channel != record["channel"]
        ):
            return "its 'channel' is not that of its 'key'"
        match record["type"]:
            case "inbox":
                return None
            case "received":
                self._messages[record["channel"], record["id"]] = record["key"]
                return None
            case "begun" if record["turn"] not in self._turns:
                names = [(record["channel"], message_id) for message_id in record["ids"]]
                if any(self._messages.get(name) != record["key"] for name in names):
                    return "a message that it is about is not there"
                self._turns[record["turn"]] = 0
                return None
        return self._why_out_of_turn(record)

    def _why_out_of_turn(self, record: Record) -> str | None:
        turn = record["turn"]
        if turn not in self._turns:
            return "the turn that it is about is not there"
        if record["type"] == "answered":
            self._turns[turn] = len(record["parts"])
        elif "part" in record and record["part"] >= self._turns[turn]:
            return "its 'part' is not one of the reply"
        return None
