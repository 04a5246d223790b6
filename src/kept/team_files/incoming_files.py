"""Writes what others changed into the folder. A file that was changed here as well is merged, and sent afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from kept.errors import KeptError, WorkspaceError
from kept.host_names import plain_name
from kept.limits import printable_line
from kept.team_files.copy_state import CopiedFile, CopyState, safe_stamp
from kept.team_files.file_tables import FileTables, TeamFileRow, digest
from kept.team_files.files_report import TeamFilesReport
from kept.team_files.local_changes import find_state
from kept.values import frozen
from kept.working_copy.file_merge import FileMerge
from kept.working_copy.file_placement import ChangedMeanwhile, FilePlacement
from kept.working_copy.passage_merge import MergeHosts, Sides
from kept.working_copy.synced_files import PROPOSALS_FOLDER, SyncedFiles
from kept.workspace.opened import OpenWorkspace

_ATTEMPTS = 20


@frozen
class Incoming:
    """A file of the rows, and its bytes; None if it was removed."""

    row: TeamFileRow
    data: bytes | None


class IncomingFiles:
    """Takes files of the rows, one at a time. The caller holds the lock of the workspace."""

    def __init__(
        self,
        files: SyncedFiles,
        tables: FileTables,
        state: CopyState,
        merge: FileMerge,
        placements: Mapping[bool, FilePlacement],
        report: TeamFilesReport,
    ) -> None:
        self._files = files
        self._tables = tables
        self._state = state
        self._merge = merge
        self._placements = placements
        """By whether the history records the change: that of the machine that made it comes with the rows."""
        self._report = report
        self.left: set[str] = set()
        """Files that could not be taken."""

    def is_wanted(self, row: TeamFileRow) -> bool:
        """Return whether a file may be written here. Report it otherwise, since somebody may miss it."""
        limit = self._files.rules.max_file_bytes
        if not self._files.accepts_path(row.path):
            self._leave(row.path, "not taken: no file of a workspace may have this path")
        elif row.size > limit:
            self._leave(row.path, f"{row.size:,} bytes, more than the limit of {limit:,}; not taken")
        else:
            return True
        return False

    def take(self, opened: OpenWorkspace, incoming: Incoming, copied: CopiedFile | None) -> None:
        row = incoming.row
        if not self.is_wanted(row):
            return
        if row.sha256 != (None if incoming.data is None else digest(incoming.data)):
            self._leave(row.path, "not taken: its row in the database is damaged (SHA-256)")
            return
        try:
            for _ in range(_ATTEMPTS):
                try:
                    self._try_to_take(opened, incoming, copied)
                    return
                except ChangedMeanwhile:
                    continue
            self._leave(row.path, "not taken: another program keeps changing it")
        except (KeptError, OSError) as exc:
            reason = exc.message if isinstance(exc, KeptError) else exc.strerror
            self._leave(row.path, f"not taken: {reason}")

    def _try_to_take(self, opened: OpenWorkspace, incoming: Incoming, copied: CopiedFile | None) -> None:
        row, theirs = incoming.row, incoming.data
        state = find_state(self._files, opened, row.path)
        if state is not None and copied is None:
            self._require_own_name(row.path)
        current = None if state is None else self._files.read(opened, row.path)
        if current != theirs:
            new, is_merged = self._join(opened, incoming, copied, current)
            if new != current:
                hosts = [plain_name(row.host)]
                self._placements[is_merged].put(opened, row.path, current, new, hosts=hosts)
                self._report.received += [row.path] * (row.path not in self._report.received)
            theirs_is_here = new == theirs
        else:
            theirs_is_here = True
        checked_ns = time.time_ns()
        stamp = safe_stamp(find_state(self._files, opened, row.path), checked_ns) if theirs_is_here else None
        self._state.put_file(row.path, CopiedFile(row.version, row.sha256, stamp))

    def _join(
        self, opened: OpenWorkspace, incoming: Incoming, copied: CopiedFile | None, current: bytes | None
    ) -> tuple[bytes | None, bool]:
        """Return what the file becomes, and whether that is a merge."""
        row, theirs = incoming.row, incoming.data
        path = row.path
        if self._is_unchanged(path, copied, current):
            return theirs, False
        if path.startswith(PROPOSALS_FOLDER):
            return theirs, False  # decided elsewhere
        if theirs is None or current is None:
            return (current if theirs is None else theirs), False  # a change wins over a removal
        base = self._tables.find_base(path, copied.version, current) if copied is not None else b""
        hosts = MergeHosts(plain_name(self._report.host), plain_name(row.host))
        self._report.merged += [path] * (path not in self._report.merged)
        merged = self._merge.merge(path, Sides(base, current, theirs), hosts)
        if merged is None:
            copy = self._merge.copy_name(path)
            self._placements[True].put(opened, copy, None, current, hosts=[])
            self._report.conflicts.append(copy)
            return theirs, False
        data, has_conflict = merged
        self._report.conflicts += [path] if has_conflict and path not in self._report.conflicts else []
        return data, True

    def _is_unchanged(self, path: str, copied: CopiedFile | None, current: bytes | None) -> bool:
        """Return whether a file was not changed here since it agreed with the rows."""
        sha256 = None if current is None else digest(current)
        if copied is not None:
            return sha256 == copied.sha256
        return sha256 is None or self._tables.is_earlier(path, sha256)

    def _require_own_name(self, path: str) -> None:
        """Raise WorkspaceError if the file here is another one, whose name differs in case only."""
        folder, name = os.path.split(self._files.absolute(path))
        if name not in os.listdir(folder):
            raise WorkspaceError(f"{printable_line(path)}: a file whose name differs only in case is here.")

    def _leave(self, path: str, reason: str) -> None:
        self.left.add(path)
        self._files.report(path, reason)
