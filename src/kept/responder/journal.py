"""A file of records, one a line: added to durably, and now and then written anew without what nobody needs any more."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator

from kept.durable import append_durably, write_atomic
from kept.errors import ConfigError, WorkspaceError, WriteFailed
from kept.limits import strict_json
from kept.quarantine import Fault, move_torn_end, set_aside
from kept.responder.letters import Record
from kept.responder.schema import Known

VERSION = 1
_HEAD: Record = {"type": "inbox", "version": VERSION}
_FAULTS_NAMED = 10

log = logging.getLogger(__name__)


class Journal:
    """Whoever has one holds a lock, so nobody else writes to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.faults: list[Fault] = []
        """What the last reading left out, and why."""

    def read(self, *, repair: bool = True) -> Iterator[Record]:
        """Every record. What a kill has left half-written was never promised to anybody and is cut off; a line that is
        damaged otherwise is put beside the file, and said. Without ``repair`` both are only left out."""
        data = self._read()
        end = data.rfind(b"\n") + 1
        if repair and end < len(data):
            move_torn_end(self.path, end, data[end:])
        bad: list[bytes] = []
        good: list[bytes] = []
        self.faults.clear()
        known = Known()
        for number, raw in enumerate(data[:end].splitlines(), 1):
            record, reason = _parse(raw, known)
            if record is None:
                bad.append(raw)
                self.faults.append(Fault(self.path, number, reason))
                continue
            if record["type"] == "inbox":
                self._check_version(record)
            else:
                good.append(raw)
                yield record
        if bad and repair:
            self._set_aside(bad, good)

    def _read(self) -> bytes:
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

    def _set_aside(self, bad: list[bytes], good: list[bytes]) -> None:
        """Move damaged lines out of the file. Where that cannot be written they stay, and are left out again."""
        for fault in self.faults[:_FAULTS_NAMED]:
            log.warning("%s", fault)
        try:
            beside = set_aside(self.path, bad)
            write_atomic(self.path, _lines([_HEAD]) + b"".join(raw + b"\n" for raw in good))
        except WriteFailed as exc:
            log.warning("damaged lines stay in the inbox (%s)", exc.message)
            return
        log.warning("%s: %d damaged lines are now in %s", self.path, len(bad), beside)

    def append(self, records: Iterable[Record]) -> None:
        lead = [] if os.path.exists(self.path) else [_HEAD]
        append_durably(self.path, _lines([*lead, *records]))

    def rewrite(self, records: Iterable[Record]) -> None:
        write_atomic(self.path, _lines([_HEAD, *records]))


def _lines(records: Iterable[Record]) -> bytes:
    # ASCII: half a surrogate pair, which JSON lets through, has no bytes in UTF-8.
    return b"".join(json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n" for record in records)


def _parse(raw: bytes, known: Known) -> tuple[Record | None, str]:
    """A record, or None and what is wrong with the line."""
    try:
        record = strict_json.decode(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return None, "it is not JSON"
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return None, "it is not a record"
    reason = known.why_damaged(record)
    return (record, "") if reason is None else (None, reason)
