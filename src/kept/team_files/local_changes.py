"""Files of the folder that differ from what it had when it last agreed with the rows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping

from kept.errors import PathRefused, WorkspaceError
from kept.team_files.copy_state import CopiedFile, CopyState, safe_stamp
from kept.team_files.file_tables import SentFile, digest
from kept.values import frozen
from kept.working_copy.synced_files import SyncedFiles
from kept.workspace.opened import OpenWorkspace


@frozen
class LocalChange:
    """A file to send, and what is known of it once it is accepted."""

    sent: SentFile
    after: CopiedFile


class LocalChanges:
    def __init__(self, files: SyncedFiles, state: CopyState) -> None:
        self._files = files
        self._state = state

    def find(self, opened: OpenWorkspace, paths: Iterable[str] | None = None) -> Iterator[LocalChange]:
        """Yield what differs, of all files or of some. A file whose stamp is known is not read."""
        if paths is None:
            present = self._files.list_paths(opened)
            known = self._state.files()
            # A file that is listed nowhere any more may only be out of the rules now: it is not removed for others.
            removed = [path for path in known.keys() - set(present) if self._files.accepts_path(path)]
            names = [*sorted(present), *sorted(removed)]
        else:
            names = [path for path in dict.fromkeys(paths) if self._files.accepts_path(path)]
            known = self._state.files(names)
        for path in names:
            yield from self._compare(opened, path, known)

    def _compare(self, opened: OpenWorkspace, path: str, known: Mapping[str, CopiedFile]) -> Iterator[LocalChange]:
        copied = known.get(path)
        try:
            state = find_state(self._files, opened, path)
            if (copied is None and state is None) or (copied is not None and copied.is_same(state)):
                return
            limit = self._files.rules.max_file_bytes
            if state is not None and state.st_size > limit:
                self._files.report(path, f"{state.st_size:,} bytes, more than the limit of {limit:,}; not sent")
                return
            checked_ns = time.time_ns()
            data = None if state is None else self._files.read(opened, path)
        except WorkspaceError as exc:
            self._files.report(path, f"not sent: {exc.message}")
            return
        sha256 = None if data is None else digest(data)
        version = 0 if copied is None else copied.version
        stamp = safe_stamp(state, checked_ns)
        if sha256 == (None if copied is None else copied.sha256):
            if copied is not None and stamp is not None:
                self._state.put_file(path, CopiedFile(version, sha256, stamp))
            return
        yield LocalChange(SentFile(path, version, data), CopiedFile(version + 1, sha256, stamp))


def find_state(files: SyncedFiles, opened: OpenWorkspace, path: str) -> os.stat_result | None:
    """Return the state of a file, or None if there is none."""
    try:
        return opened.find_state(files.absolute(path))
    except PathRefused as exc:
        if isinstance(exc.__cause__, NotADirectoryError):  # a file is where its folder was
            return None
        raise
