"""The inbox of one home, in a file. Only one process has it open for writing: it holds the gateway's lock."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kept.clock import Clock
from kept.damaged_records import Fault
from kept.errors import WriteFailed
from kept.responder.inbox import MAX_FINISHED_RUNS, REWRITE_AFTER_RUNS, Inbox
from kept.responder.inbox_file import InboxFile, Record
from kept.responder.inbox_records import received_record, run_records

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
