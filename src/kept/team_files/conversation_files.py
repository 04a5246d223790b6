"""Conversations in the database: each machine sends its transcripts as they grow, and takes copies of those of others.

A transcript is a growing file, named by its machine: `desk/20260314T150926Z_1f0e….jsonl`. A machine writes only its
own. A text that was forgotten leaves its line with the same length, so only such lines are taken from elsewhere. A
machine that comes back with an empty home gets its own transcripts back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kept.durable import make_private_folder, write_atomic
from kept.errors import PathRefused, SessionError
from kept.file_lock import locked
from kept.host_names import is_host_name, is_same_host
from kept.limits import printable_line
from kept.postgres.open_database import open_database
from kept.records import Problem
from kept.sessions.deleted import DeletedSessions
from kept.sessions.host_transcripts import HostTranscripts
from kept.sessions.transcript import Transcript
from kept.sessions.transcript_paths import iter_transcripts, parse_transcript_name
from kept.team_files.copy_state import CopiedGrowth, CopyState
from kept.team_files.file_tables import GONE, FileTables, GrownRow, SentPiece, WrongCopy
from kept.team_files.files_report import TeamFilesReport
from kept.team_files.history_files import HistoryChange

if TYPE_CHECKING:
    from kept.config import Config

_ATTEMPTS = 5
_SENT_BYTES = 16_000_000
_MAX_BYTES = 500_000_000
_LOCK_WAIT_S = 10.0


def conversations_name(agent_id: str) -> str:
    return f"conversations of {agent_id}"


class ConversationFiles:
    """Sends and takes the conversations of one agent. What fails is reported: the notes are synchronised."""

    def __init__(self, config: Config, host: str) -> None:
        paths = config.paths
        self.tables = FileTables(open_database(config.memory_search.store), conversations_name(config.agent_id))
        self.state = CopyState(os.path.join(paths.folder, "conversation-copy"))
        self.host = host
        self._folder = paths.sessions
        self._here = HostTranscripts(paths, host)
        self._deleted = DeletedSessions(paths.deleted_sessions, paths.sessions)

    def run(self, report: TeamFilesReport, *, wait_s: float) -> None:
        if not is_host_name(self.host):
            reason = f"'{self.host}' cannot be a folder's name; set sync.database.host to another name"
            report.problems.append(Problem("conversations", reason))
            return
        with self.state.locked(wait_s):
            refused: set[str] = set()
            for _ in range(_ATTEMPTS):
                try:
                    self._take(report, refused)
                    refused = self._send(report)
                except WrongCopy:
                    self.state.clear()
                    continue
                if not refused:
                    return
            for path in sorted(refused):
                self._report(
                    report,
                    path,
                    "not sent: the database has another version of it. Is another machine"
                    f" called '{self.host}' too? Set sync.database.host",
                )

    def send_scrubbed(self) -> int:
        """Send the copies of other machines' transcripts that lost a text here. Return how many."""
        count = 0
        with self.state.locked(_LOCK_WAIT_S):
            known = self.state.head()
            for path, copied in self.state.grown().items():
                host, _, name = path.partition("/")
                if known is None or copied.size == GONE or is_same_host(host, self.host):
                    continue
                theirs = self.tables.read_pieces(path, copied.epoch, 0)
                ours = _read(self._here.path(host, name))
                if theirs is None or len(ours) < len(theirs) or ours.startswith(theirs):
                    continue
                sent = SentPiece(path, copied.epoch, 0, ours[: len(theirs)], is_whole=True)
                if self.tables.commit([], [sent], token=known.token, host=self.host).accepted:
                    self.state.put_grown(path, CopiedGrowth(sent.next_epoch, sent.next_size, 0))
                    count += 1
        return count

    # taking

    def _take(self, report: TeamFilesReport, refused: set[str]) -> None:
        known, head = self.state.head(), self.tables.head()
        if known is not None and (known.token != head.token or known.seq > head.seq):
            self.state.clear()
            known = None
        if known == head and not refused:
            return
        head, _, rows = self.tables.list_changes(0 if known is None else known.seq, [*refused])
        copies = self.state.grown()
        for row in rows:
            copied = copies.get(row.path)
            if copied is not None and (copied.epoch, copied.size) == (row.epoch, row.size) and row.path not in refused:
                continue
            host, _, name = row.path.partition("/")
            try:
                if row.size > _MAX_BYTES:
                    raise PathRefused(f"more than {_MAX_BYTES:,} bytes.")
                if is_same_host(host, self.host):
                    self._take_own(row, name, is_new_home=known is None)
                else:
                    self._take_copy(row, host, name, copied, report)
            except (PathRefused, SessionError) as exc:
                self._report(report, row.path, f"not taken: {exc.message}")
        self.state.put_head(head)

    def _take_copy(
        self, row: GrownRow, host: str, name: str, copied: CopiedGrowth | None, report: TeamFilesReport
    ) -> None:
        if row.size == GONE:
            report.conversations_received += self._here.remove(host, name)
            self.state.put_grown(row.path, CopiedGrowth(row.epoch, GONE, 0))
            return
        is_grown = copied is not None and copied.epoch == row.epoch and 0 < copied.size <= self._here.size(host, name)
        start = copied.size if copied is not None and is_grown else 0
        data = self.tables.read_pieces(row.path, row.epoch, start)
        if data is None:
            return  # changed meanwhile: the next list has it
        if start:
            placed = self._here.append(host, name, data, offset=start)
        else:
            placed = self._here.place(host, name, data)
        report.conversations_received += placed in ("grown", "replaced")
        self.state.put_grown(row.path, CopiedGrowth(row.epoch, start + len(data), 0))

    def _take_own(self, row: GrownRow, name: str, *, is_new_home: bool) -> None:
        """Take back a transcript that an empty home lacks, and lines that lost a text on another machine."""
        self._here.require_name(name)
        path = os.path.join(self._folder, name)
        theirs = None if row.size == GONE else self.tables.read_pieces(row.path, row.epoch, 0)
        if theirs is None:
            self.state.put_grown(row.path, CopiedGrowth(row.epoch, row.size, 0))
            return
        if not os.path.lexists(path):
            if not is_new_home or self._deleted.find(parse_transcript_name(name)[0]) is not None:
                return
            make_private_folder(self._folder)
            with locked(self._folder, wait_s=_LOCK_WAIT_S, purpose="receiving conversations"):
                write_atomic(path, theirs)
        elif not _read(path).startswith(theirs):
            with Transcript(path).appending() as append:
                append.replace_lines(list(_with_blanks(_read(path), theirs)))
        if _read(path).startswith(theirs):
            self.state.put_grown(row.path, CopiedGrowth(row.epoch, len(theirs), os.stat(path).st_ino))

    # sending

    def _send(self, report: TeamFilesReport) -> set[str]:
        """Send what this machine's transcripts got. Return those of which the database has another version."""
        known = self.state.head()
        if known is None:
            raise WrongCopy
        refused: set[str] = set()
        for batch in _batches(self._find_changes()):
            accepted = self.tables.commit([], [change.sent for change in batch], token=known.token, host=self.host)
            taken = set(accepted.accepted)
            with self.state.writing():
                for change in batch:
                    if change.sent.path in taken:
                        self.state.put_grown(change.sent.path, change.after)
            if known.seq == accepted.head.seq - 1:
                self.state.put_head(known := accepted.head)
            report.conversations_sent += len(taken)
            refused |= set(accepted.refused)
        return refused

    def _find_changes(self) -> Iterator[HistoryChange]:
        known = self.state.grown()
        present = set()
        for name, state in self._own_files():
            path = f"{self.host}/{name}"
            present.add(path)
            copied = known.get(path)
            if copied is not None and (copied.size, copied.inode) == (state.st_size, state.st_ino):
                continue
            is_grown = copied is not None and copied.inode == state.st_ino and state.st_size > copied.size >= 0
            start = copied.size if copied is not None and is_grown else 0
            data = _read(os.path.join(self._folder, name), start)
            if data or not is_grown:
                sent = SentPiece(
                    path, copied.epoch if copied else 0, start, data, is_whole=bool(copied) and not is_grown
                )
                yield HistoryChange(sent, CopiedGrowth(sent.next_epoch, sent.next_size, state.st_ino))
        for path, copied in sorted(known.items()):
            host, _, name = path.partition("/")
            if path in present or copied.size == GONE or not is_same_host(host, self.host):
                continue
            if self._deleted.find(parse_transcript_name(name)[0]) is not None:
                sent = SentPiece(path, copied.epoch, 0, b"", is_gone=True)
                yield HistoryChange(sent, CopiedGrowth(sent.next_epoch, GONE, 0))

    def _own_files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            entries = sorted(iter_transcripts(self._folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            try:
                self._here.require_name(entry.name)
            except PathRefused:
                continue
            yield entry.name, entry.stat(follow_symlinks=False)

    def _report(self, report: TeamFilesReport, path: str, reason: str) -> None:
        problem = Problem(printable_line(path), reason)
        report.problems += [problem] if problem not in report.problems else []


def _with_blanks(ours: bytes, theirs: bytes) -> Iterator[bytes]:
    """Yield our lines, with those of theirs that lost text: they have spaces at the end, and the same length."""
    other = theirs.split(b"\n")
    for number, line in enumerate(_lines(ours)):
        blank = other[number] + b"\n" if number < len(other) else b""
        yield blank if len(blank) == len(line) and len(blank.rstrip()) < len(line.rstrip()) else line


def _lines(data: bytes) -> list[bytes]:
    pieces = data.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _read(path: str, start: int = 0) -> bytes:
    """Return the whole lines of a transcript from an offset on, or nothing if there is none."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return b""
    except OSError as exc:
        raise PathRefused(f"{path}: cannot be read ({exc.strerror}).") from exc
    return data[: data.rfind(b"\n") + 1]


def _batches(changes: Iterator[HistoryChange]) -> Iterator[Sequence[HistoryChange]]:
    batch: list[HistoryChange] = []
    size = 0
    for change in changes:
        batch.append(change)
        size += len(change.sent.data)
        if size >= _SENT_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
