"""`TeamFiles`: takes what others changed in the database, and sends what changed in the folder."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from kept.clock import Backoff, Clock
from kept.errors import GitSyncFailed, GitSyncRefused, StoreUnavailable
from kept.file_lock import locked
from kept.host_names import host_name
from kept.machine_id import get_machine
from kept.postgres.open_database import open_database
from kept.records import Problem, Progress
from kept.review.review_folder import ReviewFolder
from kept.team_files.conversation_files import ConversationFiles
from kept.team_files.copy_state import CopyState, folder_of_copy
from kept.team_files.file_tables import FilesHead, FileTables, TeamFileRow, WrongCopy
from kept.team_files.files_report import TeamFilesReport, TeamFilesStatus
from kept.team_files.history_files import HistoryChange, HistoryFiles
from kept.team_files.incoming_files import Incoming, IncomingFiles
from kept.team_files.local_changes import LocalChange, LocalChanges
from kept.working_copy.file_merge import FileMerge
from kept.working_copy.file_placement import FilePlacement, MergeHistory
from kept.working_copy.synced_files import PROPOSALS_FOLDER, FileRules, SyncedFiles
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import Workspace
from kept.workspace.write_scope import not_sharing

if TYPE_CHECKING:
    from kept.config import Config

LOCK_WAIT_S = 60.0
_WORKSPACE_WAIT_S = 30.0
_ATTEMPTS = 20
_FILES_AT_ONCE = 100
_SENT_BYTES = 16_000_000
_NOTE_S = 3_600.0
_SENT_FILES = 500
_MANY_REMOVED = 20
_LARGE_SHARE = 0.5
"""A sync that removes more than so many files, and more than this share of all, needs consent."""


class TeamFiles:
    """The files of one workspace. Several processes and threads may try at once: one at a time does it."""

    def __init__(self, config: Config, workspace: Workspace, clock: Clock) -> None:
        self.settings = config.agent.sync.database
        self.workspace = workspace
        self.host = host_name(self.settings.host)
        self.tables = FileTables(open_database(config.memory_search.store), self.settings.workspace or config.agent_id)
        self.state = CopyState(folder_of_copy(workspace.root))
        self.conversations = ConversationFiles(config, self.host) if self.settings.transcripts else None
        self._config = config
        self._clock = clock

    # the whole

    def run(
        self, *, remove_many: bool = False, wait_s: float = LOCK_WAIT_S, progress: Progress | None = None
    ) -> TeamFilesReport:
        """Take what others changed, merge it, and send what changed here. Raise GitSyncRefused, GitSyncFailed,
        LockBusy, or StoreError if the database is away; then nothing is lost, and the next sync goes on.

        ``remove_many`` allows to remove a large part of the files for everybody.
        """
        report = self._run(None, remove_many=remove_many, wait_s=wait_s, progress=progress, is_optimistic=False)
        if self.conversations is not None:
            self.conversations.run(report, wait_s=wait_s)
        return report

    def send(self, paths: Sequence[str], *, wait_s: float = LOCK_WAIT_S) -> TeamFilesReport:
        """Send some files and the history. If another machine was first, merge what it sent."""
        return self._run(paths, remove_many=True, wait_s=wait_s, progress=None, is_optimistic=True)

    def send_conversations(self, *, wait_s: float = LOCK_WAIT_S) -> None:
        """Exchange the conversations only."""
        if self.conversations is not None:
            self.conversations.run(self._new_report(), wait_s=wait_s)

    def refresh(self, *, wait_s: float = LOCK_WAIT_S) -> TeamFilesReport | None:
        """Take what others changed, if anything. Costs one query if nothing is new; then return None."""
        copies = {self.tables.name: self.state}
        if self.conversations is not None:
            copies[self.conversations.tables.name] = self.conversations.state
        known = {name: state.head() for name, state in copies.items()}
        for state in copies.values():
            state.close()
        if None not in known.values() and self.tables.find_heads([*copies]) == known and not self.unsent():
            return None
        return self.run(wait_s=wait_s)

    def unsent(self) -> list[str]:
        """Return the marks of writes that may not be sent yet."""
        try:
            return [name for name in os.listdir(self.state.folder) if name.startswith(MARK)]
        except FileNotFoundError:
            return []

    def _run(
        self,
        paths: Sequence[str] | None,
        *,
        remove_many: bool,
        wait_s: float,
        progress: Progress | None,
        is_optimistic: bool,
    ) -> TeamFilesReport:
        self.workspace.require()
        with self.state.locked(wait_s):
            report = self._new_report()
            files = SyncedFiles(self.workspace, FileRules(True, self.settings.max_file_bytes))
            marks = self.unsent()
            if marks and not is_optimistic:
                paths = None
            backoff = Backoff(0.02, 0.5)
            refused: tuple[str, ...] = ()
            left: set[str] = set()
            for report.attempts in range(1, _ATTEMPTS + 1):
                try:
                    if not is_optimistic or report.attempts > 1:
                        left |= self._take(files, report, refused, progress)
                    refused = self._send(files, report, paths, left, remove_many=remove_many)
                except WrongCopy:
                    self.state.clear()
                    paths, refused = None, ("",)
                except sqlite3.DatabaseError:
                    self.state.discard()
                    paths, refused = None, ("",)
                if not set(refused) - left:
                    break
                if report.attempts > 1:
                    time.sleep(backoff.next_s() * random.uniform(0.5, 1.5))
            else:
                raise GitSyncFailed("Other machines sent changes first, each time that this one tried.")
            report.problems += [problem for problem in files.problems if problem not in report.problems]
            head = self.state.head()
            report.seq = head.seq if head else 0
            if paths is None:
                self._forget_marks(marks)
            if report.received or (report.sent and paths is None) or time.time() - self.state.noted_s() > _NOTE_S:
                self._note_seen(report.seq)
        return report

    def _note_seen(self, seq: int) -> None:
        """Tell the database what the folder has: it keeps the versions that changes here may have begun with."""
        with suppress(StoreUnavailable):  # a role that may only read
            self.tables.note_seen(get_machine(self._config.home), self.host, seq)
        self.state.put_noted(time.time())

    def _forget_marks(self, marks: Sequence[str]) -> None:
        """Remove the marks of processes that ended: all files were compared since."""
        for name in marks:
            if not is_running(name):
                try:
                    os.unlink(os.path.join(self.state.folder, name))
                except FileNotFoundError:
                    pass

    def _new_report(self) -> TeamFilesReport:
        return TeamFilesReport(self.host, self.tables.database.schema, self.tables.name)

    # taking

    def _take(
        self, files: SyncedFiles, report: TeamFilesReport, also: Sequence[str], progress: Progress | None
    ) -> set[str]:
        """Bring the folder up to date. Return the files that could not be taken."""
        known = self.state.head()
        head = self.tables.head()
        if known is not None and (known.token != head.token or known.seq > head.seq):
            self.state.clear()  # a copy of other rows, or of later ones than a backup had
            known = None
        if known is None:
            self._note_seen(0)  # from now on, the versions that it takes are kept
        since = 0 if known is None else known.seq
        also = [path for path in (*also, *self.state.left()) if path]
        if known == head and not also:
            return set()
        is_erased = known is not None and known.erasures != head.erasures
        head, rows, grown = self.tables.list_changes(since, also)
        copies = self.state.files([row.path for row in rows]) if since else self.state.files()
        rows = [row for row in rows if row.path not in copies or copies[row.path].version != row.version]
        with self._writing(any(row.path.startswith(PROPOSALS_FOLDER) for row in rows)), self.state.writing():
            HistoryFiles(files, self.tables, self.state).take(grown)
        # The history of a merge has the note as it was before, also a text that was forgotten elsewhere.
        incoming = self._incoming(files, report, is_recorded=not is_erased)
        wanted = [row for row in rows if incoming.is_wanted(row)]
        number = 0
        for batch in _batches(self.tables.iter_contents(wanted)):
            # The lock is released between the batches: a large pull takes longer than other processes wait for it.
            with (
                self._writing(any(incoming_file.row.path.startswith(PROPOSALS_FOLDER) for incoming_file in batch)),
                OpenWorkspace(files.workspace) as opened,
                self.state.writing(),
            ):
                # Removals first: a folder may have to make room for a file.
                for incoming_file in sorted(batch, key=lambda incoming_file: incoming_file.data is not None):
                    incoming.take(opened, incoming_file, copies.get(incoming_file.row.path))
                    number += 1
                    if progress:
                        progress(number, len(wanted), incoming_file.row.path)
        self.state.put_head(head)
        self.state.put_left(incoming.left)
        return incoming.left

    def _incoming(self, files: SyncedFiles, report: TeamFilesReport, *, is_recorded: bool) -> IncomingFiles:
        history = (
            MergeHistory(self.workspace, self._config.home, self._clock)
            if self._config.agent.history.enabled and is_recorded
            else None
        )
        agent_id = self._config.agent_id
        placements = {
            True: FilePlacement(files, history, agent_id=agent_id),
            False: FilePlacement(files, None, agent_id=agent_id),
        }
        merge = FileMerge(files, our_host=self.host, today=self._clock.now().date())
        return IncomingFiles(files, self.tables, self.state, merge, placements, report)

    @contextmanager
    def _writing(self, has_proposals: bool) -> Iterator[None]:
        """Hold the locks of the review and of the workspace, in this order."""
        with ExitStack() as stack:
            stack.enter_context(not_sharing())  # a send would wait for the lock of the copy, which this thread holds
            if has_proposals:
                stack.enter_context(ReviewFolder(self.workspace).locked())
            stack.enter_context(
                locked(self.workspace.root, wait_s=_WORKSPACE_WAIT_S, purpose="writing to this workspace")
            )
            yield

    # sending

    def _send(
        self,
        files: SyncedFiles,
        report: TeamFilesReport,
        paths: Sequence[str] | None,
        left: set[str],
        *,
        remove_many: bool,
    ) -> tuple[str, ...]:
        """Send what changed. Return the files of which another machine was first."""
        known = self.state.head()
        if known is None:
            raise WrongCopy
        with OpenWorkspace(files.workspace) as opened, self.state.writing():
            differing = LocalChanges(files, self.state).find(opened, paths)
            changes = [change for change in differing if change.sent.path not in left]
        removed = sum(change.sent.data is None for change in changes)
        if not remove_many:
            _refuse_many(removed, sum(copy.sha256 is not None for copy in self.state.files().values()))
        # Read after the notes: the history must not lack the change of a note that is sent.
        grown = HistoryFiles(files, self.tables, self.state).find_changes()
        refused: list[str] = []
        for files_batch, grown_batch in _commits(changes, grown):
            refused += self._commit(report, files_batch, grown_batch, known)
            known = self.state.head() or known
        return tuple(refused)

    def _commit(
        self,
        report: TeamFilesReport,
        changes: Sequence[LocalChange],
        grown: Sequence[HistoryChange],
        known: FilesHead,
    ) -> tuple[str, ...]:
        accepted = self.tables.commit(
            [change.sent for change in changes], [change.sent for change in grown], token=known.token, host=self.host
        )
        taken = set(accepted.accepted)
        with self.state.writing():
            for change in changes:
                if change.sent.path in taken:
                    self.state.put_file(change.sent.path, change.after)
            for piece in grown:
                if piece.sent.path in taken:
                    self.state.put_grown(piece.sent.path, piece.after)
        if known.seq == accepted.head.seq - 1 and known.erasures == accepted.head.erasures:
            self.state.put_head(accepted.head)  # nobody else changed anything meanwhile
        sent = [change.sent.path for change in changes if change.sent.path in taken]
        report.sent += [path for path in sent if path not in report.sent]
        return accepted.refused

    # looking

    def preview(self) -> TeamFilesReport:
        """Return what a sync would do. Nothing is changed."""
        self.workspace.require()
        with self.state.locked(LOCK_WAIT_S):
            report = TeamFilesReport(self.host, self.tables.database.schema, self.tables.name, dry_run=True)
            files = SyncedFiles(self.workspace, FileRules(True, self.settings.max_file_bytes))
            known, head = self.state.head(), self.tables.find_head()
            is_known = known is not None and head is not None and known.token == head.token
            _, rows, _ = self.tables.list_changes(known.seq if known and is_known else 0)
            copies = self.state.files() if is_known else {}
            rows = [row for row in rows if row.path not in copies or copies[row.path].version != row.version]
            with OpenWorkspace(files.workspace) as opened:
                changes = {change.sent.path: change for change in LocalChanges(files, self.state).find(opened)}
            for row in rows:
                change = changes.get(row.path)
                if change is not None and change.after.sha256 == row.sha256:
                    del changes[row.path]
                elif files.accepts_path(row.path):
                    report.received.append(row.path)
                    report.merged += [row.path] if change is not None else []
            report.sent = sorted(changes)
            report.seq = head.seq if head else 0
            report.problems = list(files.problems)
            return report

    def status(self) -> TeamFilesStatus:
        """Return what waits. The database need not be there."""
        from kept.errors import StoreError

        self.workspace.require()
        with self.state.locked(LOCK_WAIT_S):
            files = SyncedFiles(self.workspace, FileRules(True, self.settings.max_file_bytes))
            known = self.state.head()
            with OpenWorkspace(files.workspace) as opened:
                changed = tuple(change.sent.path for change in LocalChanges(files, self.state).find(opened))
            seq, problems = known.seq if known else 0, list(files.problems)
            behind: int | None = None
            try:
                head = self.tables.find_head()
                behind = max(0, head.seq - seq) if head else 0
            except StoreError as exc:
                problems.append(Problem(self.tables.database.schema, exc.message))
            return TeamFilesStatus(
                self.host, self.tables.database.schema, self.tables.name, changed, seq, behind, tuple(problems)
            )


MARK = "unsent-"


def is_running(mark: str) -> bool:
    """Return whether the process of a mark still runs, and sends what it wrote itself."""
    number = mark.removeprefix(MARK).partition("-")[0]
    if not number.isdigit() or int(number) in (0, os.getpid()):
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _batches(contents: Iterator[tuple[TeamFileRow, bytes | None]]) -> Iterator[list[Incoming]]:
    batch: list[Incoming] = []
    for row, data in contents:
        batch.append(Incoming(row, data))
        if len(batch) >= _FILES_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _commits(
    changes: Sequence[LocalChange], grown: Sequence[HistoryChange]
) -> Iterator[tuple[list[LocalChange], Sequence[HistoryChange]]]:
    """Split what is sent into transactions of bounded size. The history goes with the last one."""
    batch: list[LocalChange] = []
    size = 0
    for change in changes:
        batch.append(change)
        size += len(change.sent.data or b"")
        if size >= _SENT_BYTES or len(batch) >= _SENT_FILES:
            yield batch, ()
            batch, size = [], 0
    if batch or grown:
        yield batch, grown


def _refuse_many(removed: int, total: int) -> None:
    if removed > _MANY_REMOVED and removed > _LARGE_SHARE * total:
        raise GitSyncRefused(
            f"{removed:,} of {total:,} files are gone here, and would be removed for everybody.",
            hint="If that is right, run 'kept sync --remove-many'. Nothing was sent.",
        )
