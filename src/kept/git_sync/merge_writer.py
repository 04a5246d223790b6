"""Writes a merge into the workspace: each note atomically, with a line in the history.

The commit of the merge and the ref that names it are on disk before. A file that still reads as in our commit gets the
content of the merge. One that an editor changed meanwhile is merged with it, and the result is sent by the next sync.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

from kept.durable import replacing, sync_folder
from kept.errors import WriteFailed
from kept.git_sync.git_objects import Tree, TreeEntry
from kept.git_sync.passage_merge import MergeHosts, Sides
from kept.git_sync.synced_files import PROPOSALS_FOLDER, SyncedFiles
from kept.git_sync.tree_merge import TreeMerge
from kept.history.note_change import NoteChange
from kept.history.note_history import NoteHistory
from kept.history.unseen_changes import LastChanges
from kept.records import Progress
from kept.workspace.change_recorder import Author, recording
from kept.workspace.opened import OpenWorkspace

_FILES_AT_ONCE = 100
_ATTEMPTS = 20


class MergeHistory(NoteHistory):
    """History for many changes at once: the last change of every note is read once, not searched for each."""

    def find_last(self, path: str) -> tuple[NoteChange | None, list[NoteChange]]:
        self._last = getattr(self, "_last", None) or LastChanges(self)
        self._last.load()
        return self._last.find(path)


class MergeWriter:
    def __init__(
        self,
        files: SyncedFiles,
        merge: TreeMerge,
        history: NoteHistory | None,
        *,
        agent_id: str,
        our_host: str,
        hosts_of: Callable[[str], list[str]],
    ) -> None:
        self._files = files
        self._merge = merge
        self._history = history
        self._agent_id = agent_id
        self._our_host = our_host
        self._hosts_of = hosts_of
        """Returns the machines that changed a file on the other side, the last one first."""
        self.written: list[str] = []
        self.notices: list[str] = []

    def write(
        self,
        opened: OpenWorkspace,
        before: Tree,
        after: Tree,
        read: Callable[[TreeEntry], bytes],
        *,
        let_others_write: Callable[[], None],
        progress: Progress | None = None,
    ) -> None:
        """Bring the workspace from one commit to another. It may have been begun before.

        ``let_others_write`` is called now and then: a large merge takes longer than other processes wait for the lock.
        """
        paths = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
        # Removals first: a folder may have to make room for a file.
        paths.sort(key=lambda path: path in after)
        for number, path in enumerate(paths, 1):
            old, new = (self._content(path, tree, read) for tree in (before, after))
            if old != new and self._takes(path, before, after):
                self._write_file(opened, path, old, new)
            if number % _FILES_AT_ONCE == 0:
                let_others_write()
            if progress:
                progress(number, len(paths), path)

    def _takes(self, path: str, before: Tree, after: Tree) -> bool:
        entry = after[path] if path in after else before[path]
        return self._files.accepts(path, entry)

    def _content(self, path: str, tree: Tree, read: Callable[[TreeEntry], bytes]) -> bytes | None:
        entry = tree.get(path)
        return read(entry) if entry is not None and self._files.accepts(path, entry) else None

    def _write_file(self, opened: OpenWorkspace, path: str, old: bytes | None, new: bytes | None) -> None:
        """Write a file. An editor takes no lock: if it saves the file meanwhile, its text is merged as well."""
        for _ in range(_ATTEMPTS):
            try:
                self._try_to_write(opened, path, old, new)
                return
            except _ChangedMeanwhile:
                continue
        raise WriteFailed(f"{path}: another program keeps changing it.", hint="Synchronise again when it has finished.")

    def _try_to_write(self, opened: OpenWorkspace, path: str, old: bytes | None, new: bytes | None) -> None:
        current = self._files.read(opened, path)
        if current == new:
            return
        if current not in (old, None):
            new = self._join(opened, path, Sides(old or b"", current or b"", new or b""), is_removed=new is None)
            if current == new:
                return
        self._put(opened, path, current, new)

    def _join(self, opened: OpenWorkspace, path: str, sides: Sides, *, is_removed: bool) -> bytes:
        """Return the content of a file that was changed here after our commit."""
        if is_removed:
            return sides.ours
        if path.startswith(PROPOSALS_FOLDER):
            return sides.theirs
        hosts = self._hosts_of(path)
        merged = self._merge.merge(path, sides, MergeHosts(self._our_host, hosts[0] if hosts else "remote"))
        if merged is not None:
            return merged[0]
        self._put(opened, self._merge.copy_name(path), None, sides.ours)
        return sides.theirs

    def _put(self, opened: OpenWorkspace, path: str, current: bytes | None, new: bytes | None) -> None:
        absolute = self._files.absolute(path)
        hosts = self._hosts_of(path)
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
            raise _ChangedMeanwhile


class _ChangedMeanwhile(Exception):
    """Another program changed a file between the moments when it was read and when it would be replaced."""


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
