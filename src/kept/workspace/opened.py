"""Opens the folders of a workspace one part at a time, so that no symbolic link on the way is ever followed.

Checking a path and then opening it leaves a moment in which a folder can be swapped for a link. Here each folder is
opened in its parent (``openat`` with ``O_NOFOLLOW``), and files are read, written and listed in the open folder.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType

from kept.durable import OPEN_FOLDER, make_folder_in, make_private_folder
from kept.errors import NoteNotFound, PathRefused, WorkspaceError
from kept.workspace.files import NoteText, read_note
from kept.workspace.workspace import Workspace, is_too_long, show_path

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_OPEN = 32
"""Folders may be nested deeper than the number of files a process may open. Of deeper ones only the last stays open."""


class FolderTree:
    """Folders below a base. Those on the path to the last one stay open: the next is usually beside or below it."""

    def __init__(self, base: str, *, follow: bool) -> None:
        self._base = base
        self._flags = OPEN_FOLDER if follow else OPEN_FOLDER | os.O_NOFOLLOW
        self._parts: tuple[str, ...] = ()
        self._handles: list[tuple[int, int]] = []
        """Depth below the base, and handle; the deepest comes last."""

    def open(self, parts: tuple[str, ...], *, create: bool = False) -> int:
        """Return the handle of a folder, valid until the next call.

        Raise OSError if the folder does not exist, with ELOOP if a symbolic link is in the way.
        """
        self._close_below(_count_shared(self._parts, parts))
        self._parts = parts
        if not self._handles:
            self._handles.append((0, self._open_base(create)))
        depth, handle = self._handles[-1]
        for part in parts[depth:]:
            depth, handle = depth + 1, _open_in(handle, part, create)
            if len(self._handles) > _MAX_OPEN:
                os.close(self._handles.pop()[1])
            self._handles.append((depth, handle))
        return handle

    def _open_base(self, create: bool) -> int:
        if create:
            make_private_folder(self._base)
        return open_folder(self._base, self._flags)

    def _close_below(self, depth: int) -> None:
        while self._handles and self._handles[-1][0] > depth:
            os.close(self._handles.pop()[1])

    def close(self) -> None:
        self._close_below(-1)


def _count_shared(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    for count, (mine, other) in enumerate(zip(left, right, strict=False)):
        if mine != other:
            return count
    return min(len(left), len(right))


def _open_in(folder: int, name: str, create: bool) -> int:
    flags = OPEN_FOLDER | os.O_NOFOLLOW
    try:
        return open_folder(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    make_folder_in(folder, name)
    return open_folder(name, flags, dir_fd=folder)


def open_folder(name: str, flags: int, dir_fd: int | None = None) -> int:
    """Open a folder. Raise OSError, with ELOOP for a link. Linux itself reports ENOTDIR for links and for files."""
    try:
        return os.open(name, flags, dir_fd=dir_fd)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


class OpenWorkspace:
    """A workspace during one operation. Paths are absolute, as `Workspace.locate` or a scan gives them.

    Folders stay open until `close`, so a folder that is replaced meanwhile is still the old one here.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._trees: dict[str, FolderTree] = {}
        self._last: tuple[str, int] | None = None

    def __enter__(self) -> OpenWorkspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all folders. The next call opens them again."""
        self._last = None
        for tree in self._trees.values():
            tree.close()

    # notes

    def find_state(self, absolute: str) -> os.stat_result | None:
        """Return the state of a note, or None if there is none. Raise PathRefused for anything but a regular file."""
        try:
            folder = self.folder_of(absolute)
            state = os.stat(os.path.basename(absolute), dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self._refusal(absolute, exc) from exc
        if stat.S_ISLNK(state.st_mode):
            raise PathRefused(f"{self._show(absolute)}: symbolic links are not followed.")
        if not stat.S_ISREG(state.st_mode):
            raise PathRefused(f"{self._show(absolute)}: not a file.")
        return state

    def read(self, absolute: str, *, max_bytes: int) -> NoteText:
        """Read a note that a caller named. A device or a pipe in its place is refused before it is opened."""
        if self.find_state(absolute) is None:
            raise NoteNotFound(f"{self._show(absolute)}: there is no such note.")
        return self.read_found(absolute, max_bytes=max_bytes)

    def read_found(self, absolute: str, *, max_bytes: int) -> NoteText:
        """Read a note that a scan found to be a regular file."""
        try:
            folder = self.folder_of(absolute)
        except FileNotFoundError:
            raise NoteNotFound(f"{self._show(absolute)}: there is no such note.") from None
        except OSError as exc:
            raise self._refusal(absolute, exc) from exc
        return read_note(absolute, max_bytes=max_bytes, dir_fd=folder)

    def folder_to_write(self, absolute: str) -> int:
        """Return the handle of the folder of a note. Create the folder if it is missing."""
        try:
            return self.folder_of(absolute, create=True)
        except OSError as exc:
            raise self._refusal(absolute, exc) from exc

    # folders

    def folder_of(self, absolute: str, *, create: bool = False) -> int:
        """Return the handle of the folder that a file is in, valid until the next call. Raise OSError."""
        folder = absolute.rpartition(os.sep)[0]
        if self._last is None or self._last[0] != folder:
            base = self._workspace.base_of(absolute)
            if base == absolute:  # an extra path that is a file
                base = folder
            self._last = None
            self._last = folder, self._open(base, folder, create)
        return self._last[1]

    def open_to_list(self, folder: str) -> int:
        """Return a handle for listing a folder. The caller closes it.

        Raise OSError, also if the path is too long for other programs.
        """
        if is_too_long(folder):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if folder == self._workspace.base_of(folder):
            return open_folder(folder, _LIST | (0 if self._may_be_link(folder) else os.O_NOFOLLOW))
        # Keep only the parent open: most folders have no subfolders.
        return open_folder(folder.rpartition(os.sep)[2], _LIST | os.O_NOFOLLOW, dir_fd=self.folder_of(folder))

    def _open(self, base: str | None, folder: str, create: bool) -> int:
        if base is None:
            raise OSError(errno.EXDEV, "outside the workspace")
        tree = self._trees.get(base)
        if tree is None:
            tree = self._trees[base] = FolderTree(base, follow=self._may_be_link(base))
        below = folder[len(base) + 1 :]
        return tree.open(tuple(below.split(os.sep)) if below else (), create=create)

    def _may_be_link(self, base: str) -> bool:
        """Return whether a base may be a link. The workspace may; an extra path may not."""
        return base == self._workspace.root or base not in self._workspace.extra_paths

    # refusing

    def _refusal(self, absolute: str, error: OSError) -> WorkspaceError:
        if error.errno == errno.ELOOP:
            return PathRefused(f"{self._show(absolute)}: symbolic links are not followed.")
        return PathRefused(f"{self._show(absolute)}: cannot be reached ({error.strerror}).")

    def _show(self, absolute: str) -> str:
        return show_path(self._workspace.cite(absolute))
