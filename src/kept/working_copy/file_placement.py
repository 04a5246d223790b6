"""Writes what a team shares into a workspace: each file atomically, notes with a line in the history.

An editor takes no lock. A file that it saves between the moments when it was read and when it would be replaced is left
as it is, and the caller tries again with what it reads now.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from kept.durable import replacing, sync_folder
from kept.errors import WriteFailed
from kept.history.note_change import NoteChange
from kept.history.note_history import NoteHistory
from kept.history.unseen_changes import LastChanges
from kept.working_copy.synced_files import SyncedFiles
from kept.workspace.change_recorder import Author, recording
from kept.workspace.opened import OpenWorkspace


class MergeHistory(NoteHistory):
    """History for many changes at once: the last change of every note is read once, not searched for each."""

    def find_last(self, path: str) -> tuple[NoteChange | None, list[NoteChange]]:
        self._last = getattr(self, "_last", None) or LastChanges(self)
        self._last.load()
        return self._last.find(path)


class ChangedMeanwhile(Exception):
    """Another program changed a file between the moments when it was read and when it would be replaced."""


class FilePlacement:
    """Writes and removes files of an open workspace. The caller holds the lock of the workspace."""

    def __init__(self, files: SyncedFiles, history: NoteHistory | None, *, agent_id: str) -> None:
        self._files = files
        self._history = history
        self._agent_id = agent_id
        self.written: list[str] = []
        self.notices: list[str] = []

    def put(
        self, opened: OpenWorkspace, path: str, current: bytes | None, new: bytes | None, *, hosts: list[str]
    ) -> None:
        """Bring a file from ``current`` to ``new``; None stands for no file. Raise ChangedMeanwhile.

        ``hosts`` are the machines that changed it, the last one first.
        """
        absolute = self._files.absolute(path)
        author = Author(self._agent_id, tool="kept sync", client=hosts[0] if hosts else None)
        why = f"merged from {', '.join(hosts)}" if hosts else "merged"
        is_recorded = self._history is not None and self._files.is_note(path)
        recorder = self._history.recorder(author, why=why) if self._history and is_recorded else None
        with recording(recorder, path, current, new, kind="merge"):
            if new is None:
                self._require_same(opened, path, current)
                _remove(opened, absolute, self._files.workspace.root)
            else:
                with replacing(absolute, dir_fd=opened.folder_to_write(absolute)) as file:
                    file.write(new)
                    file.flush()
                    os.fsync(file.fileno())  # here, so that little time passes between the check and the rename
                    self._require_same(opened, path, current)
        self.written.append(path)
        self.notices += recorder.notices if recorder else []

    def _require_same(self, opened: OpenWorkspace, path: str, expected: bytes | None) -> None:
        if self._files.read(opened, path) != expected:
            raise ChangedMeanwhile


def _remove(opened: OpenWorkspace, absolute: str, root: str) -> None:
    """Remove a file, and the folders that are empty then."""
    try:
        folder = opened.folder_of(absolute)
        with suppress(FileNotFoundError):
            os.unlink(os.path.basename(absolute), dir_fd=folder)
        sync_folder(folder)
        parent = os.path.dirname(absolute)
        while os.path.dirname(parent) != root and parent != root:
            os.rmdir(os.path.basename(parent), dir_fd=opened.folder_of(parent))
            parent = os.path.dirname(parent)
    except FileNotFoundError:
        pass
    except OSError as exc:
        if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            raise WriteFailed(f"{absolute}: could not be removed ({exc.strerror}).") from exc
