"""The inbox on disk: one JSON record per line, appended durably and validated when it is read.

Every record that `InboxFile.read` yields can be applied without further checks: its fields have the right types, and
the messages and runs that it refers to were introduced by earlier records.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kept.damaged_records import Fault, move_torn_end, set_aside
from kept.durable import append_durably, replace_erasing, write_atomic
from kept.errors import ConfigError, SessionKeyInvalid, WorkspaceError, WriteFailed
from kept.limits import MAX_TOKENS, is_count, is_deep, is_time, strict_json
from kept.sessions.session_key import parse_key

Record = dict[str, Any]
RUN_ID = "turn"
"""Key of the id of an answer run in a record: the word that files have for it."""

VERSION = 1
MAX_PARTS = 100_000
"""Upper limit of the parts of a reply. A larger number is damage."""
_HEADER: Record = {"type": "inbox", "version": VERSION}
_MAX_LOGGED_FAULTS = 10
_MAX_DEPTH = 100

log = logging.getLogger(__name__)


class InboxFile:
    """File of records. Only the process that holds the gateway's lock writes to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.faults: list[Fault] = []
        """Lines that the last `read` left out, and the reasons."""

    def read(self, *, repair: bool = True) -> Iterator[Record]:
        """Yield every valid record.

        A last line without a line break was cut short by a kill, before its message was acknowledged: it is removed.
        Other damaged lines are moved to a file beside this one and logged. Without ``repair``, both are only skipped.
        """
        data = self._read_bytes()
        end = data.rfind(b"\n") + 1
        if repair and end < len(data):
            move_torn_end(self.path, end, data[end:])
        damaged: list[bytes] = []
        valid: list[bytes] = []
        self.faults.clear()
        validator = RecordValidator()
        for number, line in enumerate(data[:end].splitlines(), 1):
            record, reason = parse_record(line, validator)
            if record is None:
                damaged.append(line)
                self.faults.append(Fault(self.path, number, reason))
            elif record["type"] == "inbox":
                self._check_version(record)
            else:
                valid.append(line)
                yield record
        if damaged and repair:
            self._set_aside(damaged, valid)

    def _read_bytes(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as exc:
            raise WorkspaceError(f"{self.path}: cannot be read ({exc.strerror}).") from exc

    def _check_version(self, record: Record) -> None:
        if record["version"] > VERSION:
            raise ConfigError(
                f"{self.path}: written by a later version of Kept.", hint="Upgrade Kept; nothing was changed."
            )

    def _set_aside(self, damaged: list[bytes], valid: list[bytes]) -> None:
        """Move damaged lines out of the file. If that fails they stay, and the next `read` skips them again."""
        for fault in self.faults[:_MAX_LOGGED_FAULTS]:
            log.warning("%s", fault)
        try:
            beside = set_aside(self.path, damaged)
            write_atomic(self.path, _encode([_HEADER]) + b"".join(line + b"\n" for line in valid))
        except WriteFailed as exc:
            log.warning("damaged lines stay in the inbox (%s)", exc.message)
            return
        log.warning("%s: moved %d damaged lines to %s", self.path, len(damaged), beside)

    def append(self, record: Record) -> None:
        """Add a record. It is on disk when this returns."""
        append_durably(self.path, _encode([record] if os.path.exists(self.path) else [_HEADER, record]))

    def rewrite(self, records: Iterable[Record], *, erase: bool = False) -> None:
        """Replace the contents atomically. ``erase`` overwrites the old ones on disk."""
        data = _encode([_HEADER, *records])
        if erase:
            replace_erasing(self.path, data)
        else:
            write_atomic(self.path, data)


def _encode(records: Iterable[Record]) -> bytes:
    # ASCII: a lone surrogate, which JSON allows, cannot be encoded in UTF-8.
    return b"".join(json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n" for record in records)


def parse_record(line: bytes, validator: RecordValidator) -> tuple[Record | None, str]:
    """Return a record, or None and the fault of the line."""
    try:
        record = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None, "it is not JSON"
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return None, "it is not a record"
    reason = validator.find_fault(record)
    return (record, "") if reason is None else (None, reason)


IsValid = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_part(value: Any) -> bool:
    return is_count(value, MAX_PARTS)


def _is_attempts(value: Any) -> bool:
    return is_count(value, MAX_TOKENS)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_PARTS and all(isinstance(item, str) for item in value)


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
    """Accept only full session keys: a damaged key may look like a short one."""
    try:
        return isinstance(value, str) and str(parse_key(value, agent_id="")) == value
    except SessionKeyInvalid:
        return False


_PART: Mapping[str, IsValid] = {RUN_ID: _is_name, "part": _is_part}
_FIELDS: Mapping[str, Mapping[str, IsValid]] = {
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
    "edited": {"channel": _is_name, "id": _is_name, "text": _is_text},
    "begun": {RUN_ID: _is_name, "channel": _is_name, "key": _is_key, "ids": _are_ids, "session": _is_text},
    "answered": {
        RUN_ID: _is_name,
        "parts": _are_texts,
        "push": _is_bool,
        "entry": _is_text_or_none,
        "error": _is_text_or_none,
    },
    "preview": {RUN_ID: _is_name, "message": _is_object},
    "unpreviewed": _PART,
    "sending": _PART,
    "unsent": _PART,
    "sent": _PART,
    "unsure": _PART,
    "cancelled": {RUN_ID: _is_name},
}
_BEGUN_AGAIN: Mapping[str, IsValid] = {RUN_ID: _is_name, "attempts": _is_attempts}
_OPTIONAL: Mapping[str, IsValid] = {
    "attempts": _is_attempts,
    "reason": _is_text,
    "details": _is_object,
    "session": _is_text,
}


class RecordValidator:
    """Checks records in the order of the file: a record may refer only to messages and runs of earlier records."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], str] = {}
        """Conversation of each message, by channel and id."""
        self._parts: dict[str, int] = {}
        """Number of parts in the reply of each run, by the id of the run."""

    def find_fault(self, record: Record) -> str | None:
        """Return what is wrong with a record. If nothing is, remember what it introduces and return None."""
        fields = self._fields_of(record)
        if fields is None:
            return "it is of no known type"
        for name, is_valid in fields.items():
            if name not in record:
                return f"its '{name}' is missing"
            if not is_valid(record[name]):
                return f"its '{name}' is not what it should be"
        for name, is_valid in _OPTIONAL.items():
            if name in record and not is_valid(record[name]):
                return f"its '{name}' is not what it should be"
        return self._find_wrong_reference(record)

    def _fields_of(self, record: Record) -> Mapping[str, IsValid] | None:
        kind = record["type"]
        if kind == "begun" and isinstance(record.get(RUN_ID), str) and record[RUN_ID] in self._parts:
            return _BEGUN_AGAIN
        return _FIELDS.get(kind)

    def _find_wrong_reference(self, record: Record) -> str | None:
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
                self._keys[record["channel"], record["id"]] = record["key"]
                return None
            case "edited":
                is_known = (record["channel"], record["id"]) in self._keys
                return None if is_known else "the message that it is about is not there"
            case "begun" if record[RUN_ID] not in self._parts:
                if any(self._keys.get((record["channel"], name)) != record["key"] for name in record["ids"]):
                    return "a message that it is about is not there"
                self._parts[record[RUN_ID]] = 0
                return None
        return self._find_wrong_run(record)

    def _find_wrong_run(self, record: Record) -> str | None:
        run_id = record[RUN_ID]
        if run_id not in self._parts:
            return "the answer that it is about is not there"
        if record["type"] == "answered":
            self._parts[run_id] = len(record["parts"])
        elif "part" in record and record["part"] >= self._parts[run_id]:
            return "its 'part' is not one of the reply"
        return None
