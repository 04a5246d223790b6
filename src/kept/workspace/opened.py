"""The folders of a workspace, opened one part at a time, so that no symbolic link on the way is ever followed.

Checking a path and then opening it leaves a moment in which a folder can be swapped for a link. Here each folder is
opened in the one above it (``openat`` with ``O_NOFOLLOW``), and files are read, written and listed in what is open.
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
_HELD_OPEN = 32
"""Folders may lie deeper than a process may have files open; of deeper ones only the last is held."""


class FolderTree:
    """Folders below a base. Those on the way to the last one stay open: the next is usually beside or below it."""

    def __init__(self, base: str, *, follow: bool) -> None:
        self._base = base
        self._flags = OPEN_FOLDER if follow else OPEN_FOLDER | os.O_NOFOLLOW
        self._parts: tuple[str, ...] = ()
        self._held: list[tuple[int, int]] = []
        """Depth below the base, and handle; the deepest comes last."""

    def open(self, parts: tuple[str, ...], *, create: bool = False) -> int:
        """Return the handle of a folder, which is good until the next call. Raise OSError where there is none, and
        with ELOOP where a symbolic link is in the way."""
        self._let_go_below(_count_shared(self._parts, parts))
        self._parts = parts
        if not self._held:
            self._held.append((0, self._open_base(create)))
        depth, handle = self._held[-1]
        for part in parts[depth:]:
            depth, handle = depth + 1, _open_in(handle, part, create)
            if len(self._held) > _HELD_OPEN:
                os.close(self._held.pop()[1])
            self._held.append((depth, handle))
        return handle

    def _open_base(self, create: bool) -> int:
        if create:
            make_private_folder(self._base)
        return open_folder(self._base, self._flags)

    def _let_go_below(self, depth: int) -> None:
        while self._held and self._held[-1][0] > depth:
            os.close(self._held.pop()[1])

    def close(self) -> None:
        self._let_go_below(-1)


def _count_shared(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    for count, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
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
    """Open a folder. Raise OSError, and with ELOOP for a link: what Linux says of one, it also says of a file."""
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
        """Let go of all folders. The next call opens them again."""
        self._last = None
        for tree in self._trees.values():
            tree.close()

    # notes

    def find_state(self, absolute: str) -> os.stat_result | None:
        """Return the state of a note; None where there is none. Raise where something else is in its place."""
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
        """Read a note that a scan has found to be a file."""
        try:
            folder = self.folder_of(absolute)
        except FileNotFoundError:
            raise NoteNotFound(f"{self._show(absolute)}: there is no such note.") from None
        except OSError as exc:
            raise self._refusal(absolute, exc) from exc
        return read_note(absolute, max_bytes=max_bytes, dir_fd=folder)

    def folder_to_write(self, absolute: str) -> int:
        """Return the handle of the folder that a note is in, or is to be in: what is missing of it is made."""
        try:
            return self.folder_of(absolute, create=True)
        except OSError as exc:
            raise self._refusal(absolute, exc) from exc

    # folders

    def folder_of(self, absolute: str, *, create: bool = False) -> int:
        """Return the handle of the folder that a file is in, good until the next call. Raise OSError."""
        folder = absolute.rpartition(os.sep)[0]
        if self._last is None or self._last[0] != folder:
            base = self._workspace.base_of(absolute)
            if base == absolute:  # an extra path that is a file
                base = folder
            self._last = None
            self._last = folder, self._open(base, folder, create)
        return self._last[1]

    def open_to_list(self, folder: str) -> int:
        """Return a handle that entries can be read from, which the caller closes.

        Raise OSError, also where the path is too long for other programs.
        """
        if is_too_long(folder):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if folder == self._workspace.base_of(folder):
            return open_folder(folder, _LIST | (0 if self._may_be_link(folder) else os.O_NOFOLLOW))
        # Only the folder above is held: most folders have none below them.
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
        """Whoever names a workspace may name it by a link. An extra path that is one is refused."""
        return base == self._workspace.root or base not in self._workspace.extra_paths

    # refusing

    def _refusal(self, absolute: str, error: OSError) -> WorkspaceError:
        if error.errno == errno.ELOOP:
            return PathRefused(f"{self._show(absolute)}: symbolic links are not followed.")
        return PathRefused(f"{self._show(absolute)}: cannot be reached ({error.strerror}).")

    def _show(self, absolute: str) -> str:
        return show_path(self._workspace.cite(absolute))
