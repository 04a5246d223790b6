"""Writes a merge into the workspace: each note atomically, with a line in the history.

The commit of the merge and the ref that names it are on disk before. A file that still reads as in our commit gets the
content of the merge. One that an editor changed meanwhile is merged with it, and the result is sent by the next sync.
"""

from __future__ import annotations

from collections.abc import Callable

from kept.errors import WriteFailed
from kept.git_sync.committed_files import CommittedFiles
from kept.git_sync.git_objects import Tree, TreeEntry
from kept.git_sync.tree_merge import TreeMerge
from kept.history.note_history import NoteHistory
from kept.records import Progress
from kept.working_copy.file_placement import ChangedMeanwhile, FilePlacement
from kept.working_copy.passage_merge import MergeHosts, Sides
from kept.working_copy.synced_files import PROPOSALS_FOLDER
from kept.workspace.opened import OpenWorkspace

_FILES_AT_ONCE = 100
_ATTEMPTS = 20


class MergeWriter:
    def __init__(
        self,
        files: CommittedFiles,
        merge: TreeMerge,
        history: NoteHistory | None,
        *,
        agent_id: str,
        our_host: str,
        hosts_of: Callable[[str], list[str]],
    ) -> None:
        self._files = files
        self._merge = merge
        self._placement = FilePlacement(files, history, agent_id=agent_id)
        self._our_host = our_host
        self._hosts_of = hosts_of
        """Returns the machines that changed a file on the other side, the last one first."""
        self.written = self._placement.written
        self.notices = self._placement.notices

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
            except ChangedMeanwhile:
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
        self._placement.put(opened, path, current, new, hosts=self._hosts_of(path))
