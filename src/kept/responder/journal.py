"""A file of records, one a line: added to durably, and now and then written anew without what nobody needs any more."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator

from kept.durable import append_durably, cut_durably, write_atomic
from kept.errors import ConfigError, WorkspaceError
from kept.responder.letters import Record, letter_of

VERSION = 1
_HEAD: Record = {"type": "inbox", "version": VERSION}

log = logging.getLogger(__name__)


class InboxFile:
    """Whoever has one holds a lock, so nobody else writes to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.damaged = 0

    def read(self, *, repair: bool = True) -> Iterator[Record]:
        """Every record. What a kill has left half-written was never promised to anybody and is cut off; a line that is
        damaged otherwise is put beside the file, and said. Without ``repair`` both are only left out."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as exc:
            raise WorkspaceError(f"{self.path}: cannot be read ({exc.strerror}).") from exc
        end = data.rfind(b"\n") + 1
        if repair and end < len(data):
            append_durably(self.path + ".torn", data[end:] + b"\n")
            cut_durably(self.path, end)
        known: set[str] = set()
        bad: list[bytes] = []
        for raw in data[:end].splitlines():
            record = _parse(raw)
            if record is None or not _makes_sense(record, known):
                bad.append(raw)
            elif record["type"] == "inbox":
                self._check_version(record)
            else:
                yield record
        if bad and repair:
            self._set_aside(bad)

    def _check_version(self, record: Record) -> None:
        if record.get("version") != VERSION:
            raise ConfigError(
                f"{self.path}: written by a later version of Kept.", hint="Upgrade Kept; nothing was changed."
            )

    def _set_aside(self, bad: list[bytes]) -> None:
        self.damaged = len(bad)
        beside = self.path + ".damaged"
        known = b""
        if os.path.exists(beside):
            with open(beside, "rb") as file:
                known = file.read()
        fresh = [raw for raw in bad if raw not in known]
        if fresh:
            append_durably(beside, b"".join(raw + b"\n" for raw in fresh))
        log.warning("%s: %d damaged lines, kept in %s", self.path, len(bad), beside)

    def append(self, records: Iterable[Record]) -> None:
        lead = [] if os.path.exists(self.path) else [_HEAD]
        append_durably(self.path, _lines([*lead, *records]))

    def rewrite(self, records: Iterable[Record]) -> None:
        write_atomic(self.path, _lines([_HEAD, *records]))


def _lines(records: Iterable[Record]) -> bytes:
    # ASCII: half a surrogate pair, which JSON lets through, has no bytes in UTF-8.
    return b"".join(json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n" for record in records)


def _parse(raw: bytes) -> Record | None:
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("type"), str) else None


_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "inbox": {},
    "received": {
        "channel": str,
        "id": str,
        "key": str,
        "at": str,
        "text": str,
        "sender": (str, type(None)),
        "timestamp": (str, type(None)),
        "metadata": dict,
    },
    "begun": {"turn": str},
    "answered": {
        "turn": str,
        "parts": list,
        "push": bool,
        "entry": (str, type(None)),
        "error": (str, type(None)),
    },
    "sending": {"turn": str, "part": int},
    "unsent": {"turn": str, "part": int},
    "sent": {"turn": str, "part": int},
    "unsure": {"turn": str, "part": int},
    "cancelled": {"turn": str},
}
_BEGINNING: dict[str, type] = {"channel": str, "key": str, "ids": list, "session": str}


def _makes_sense(record: Record, known: set[str]) -> bool:
    """Whether a record has what it needs, and what it is about is there. ``known`` are the names met so far."""
    wanted = _FIELDS.get(record["type"])
    if wanted is None or not all(isinstance(record.get(name), kind) for name, kind in wanted.items()):
        return False
    if record["type"] == "received":
        known.add(f"{record['channel']}\0{record['id']}")
        return _has_times(record)
    if record["type"] == "inbox":
        return True
    turn = f"turn\0{record['turn']}"
    if turn in known:
        return record["type"] != "begun" or isinstance(record.get("attempts"), int)
    if record["type"] != "begun" or not all(isinstance(record.get(name), kind) for name, kind in _BEGINNING.items()):
        return False
    if not all(f"{record['channel']}\0{one}" in known for one in record["ids"]):
        return False
    known.add(turn)
    return True


def _has_times(record: Record) -> bool:
    try:
        letter_of(record)
    except ValueError:
        return False
    return True
