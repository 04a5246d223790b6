"""The inbox of one home, in a file: one JSON record per line, appended durably and checked when it is read.

Only one process has it open for writing: it holds the gateway's lock.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator

from kept.clock import Clock
from kept.damaged_records import Fault, move_torn_end, set_aside
from kept.durable import append_durably, replace_erasing, write_atomic
from kept.errors import ConfigError, WorkspaceError, WriteFailed
from kept.responder.inbox import MAX_FINISHED_RUNS, REWRITE_AFTER_RUNS, Inbox
from kept.responder.inbox_records import Record, RecordValidator, parse_record, received_record, run_records

VERSION = 1
_HEADER: Record = {"type": "inbox", "version": VERSION}
_MAX_LOGGED_FAULTS = 10

log = logging.getLogger(__name__)


class FileInbox(Inbox):
    """``read_only`` is for processes without the gateway's lock: the file is read and not changed."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        max_finished_runs: int = MAX_FINISHED_RUNS,
        rewrite_after_runs: int = REWRITE_AFTER_RUNS,
        read_only: bool = False,
    ) -> None:
        super().__init__(clock, max_finished_runs=max_finished_runs, rewrite_after_runs=rewrite_after_runs)
        self._file = InboxFile(path)
        for record in self._file.read(repair=not read_only):
            self._apply(record)
        if not read_only:
            self._drop_old_runs(spare=0)

    @property
    def faults(self) -> list[Fault]:
        return self._file.faults

    def _commit(self, record: Record) -> None:
        with self._lock:
            self._file.append(record)
            self._apply(record)
            self._drop_old_runs(spare=self._rewrite_after_runs)

    def blank(self, matches: Callable[[str], bool]) -> int:
        with self._lock:
            blanked = self._plan_blank(matches)
            if blanked.count:
                self._file.rewrite(blanked.to_records(), erase=True)
                self._use_blanked(blanked)
            return blanked.count

    def _drop_old_runs(self, *, spare: int) -> None:
        """Rewrite the file without the oldest finished runs, once there are more than are kept.

        If that fails, the old runs stay: the step that led here is on disk, and must not be reported as failed.
        """
        dropped, names = self._plan_drop(spare=spare)
        if not dropped:
            return
        records = [received_record(message) for name, message in self._messages.items() if name not in names]
        for run_id, run in self._runs.items():
            if run_id not in dropped:
                records += run_records(run)
        try:
            self._file.rewrite(records)
        except WriteFailed as exc:
            log.warning("old messages stay in the inbox (%s)", exc.message)
            return
        self._drop(dropped, names)


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
