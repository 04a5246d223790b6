"""Reads notes, and opens their folders one part at a time, so that no symbolic link on the way is ever followed.

Checking a path and then opening it leaves a moment in which a folder can be swapped for a link. Here each folder is
opened in its parent (``openat`` with ``O_NOFOLLOW``), and files are read, written and listed in the open folder.
A note is read even if its bytes are not valid UTF-8.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import AbstractContextManager
from typing import Any

from kept.base.durable import OPEN_FOLDER, make_folder_in, make_private_folder
from kept.base.limits import int64
from kept.base.values import frozen
from kept.errors import NoteNotFound, NoteTooLarge, PathRefused, WorkspaceError
from kept.notes.workspace import Workspace, is_too_long, show_path

# reading a note

_BOM = b"\xef\xbb\xbf"
_MARKS = {
    _BOM: "utf-8",
    b"\xff\xfe\0\0": "utf-32-le",  # before UTF-16, which begins the same
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_BLOCK = 1 << 20


@frozen
class NoteText:
    """A note as it was read: its bytes, its text with '\\n' line ends, and a warning if bytes were replaced."""

    raw: bytes
    text: str
    size: int
    mtime_ns: int
    ctime_ns: int
    warning: str | None = None


def read_note(absolute: str, *, max_bytes: int, dir_fd: int | None = None) -> NoteText:
    """Read a note with any encoding. The file itself is never changed.

    The file is opened without following a link, and its size and times come from the open handle, so they belong to
    the bytes that were read. With ``dir_fd``, only the last part of the path is looked up, in that open folder.
    """
    name = absolute if dir_fd is None else os.path.basename(absolute)
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)
    except FileNotFoundError:
        raise NoteNotFound(f"{absolute}: there is no such note.") from None
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise PathRefused(f"{absolute}: symbolic links are not followed.") from None
        raise WorkspaceError(f"{absolute}: cannot be read ({exc.strerror}).") from exc
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise PathRefused(f"{absolute}: not a file.")
        if state.st_size > max_bytes:
            raise NoteTooLarge(f"{absolute}: {state.st_size:,} bytes, more than the limit of {max_bytes:,}.")
        raw = os.read(handle, state.st_size + 1)
        if len(raw) != state.st_size:  # a read that was cut short, or a file that grows meanwhile
            while len(raw) <= max_bytes and (more := os.read(handle, min(max_bytes + 1 - len(raw), _BLOCK))):
                raw += more
            if len(raw) > max_bytes:
                raise NoteTooLarge(f"{absolute}: more than the limit of {max_bytes:,} bytes.")
    except OSError as exc:
        raise WorkspaceError(f"{absolute}: cannot be read ({exc.strerror}).") from exc
    finally:
        os.close(handle)
    text, warning = decode(raw)
    return NoteText(raw, text, state.st_size, int64(state.st_mtime_ns), int64(state.st_ctime_ns), warning)


def decode(raw: bytes) -> tuple[str, str | None]:
    """Decode leniently: strip the BOM, normalise line ends, replace invalid bytes. Return the text and a warning.

    The text is UTF-8, or what a BOM at its beginning declares: UTF-16 or UTF-32. Such a BOM is never valid UTF-8.
    """
    body = raw.removeprefix(_BOM)
    warning = None
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        codec = encoding_of(raw)[1]
        name = "UTF-8" if codec == "utf-8" else codec[:6].upper()
        text = raw.decode(name, errors="replace").removeprefix("\ufeff")
        if name == "UTF-8" or "\ufffd" in text:
            at = f" at byte {exc.start}" if name == "UTF-8" else ""
            warning = (
                f"not valid {name}{at}; unreadable bytes are shown as �. Save it as UTF-8, or convert it with iconv"
            )
    if "\0" in text:
        text = text.replace("\0", "�")
        warning = warning or "contains NUL bytes, shown as �"
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, warning


def encoding_of(raw: bytes) -> tuple[bytes, str]:
    """Return the byte order mark of a note, which may be missing, and its encoding."""
    return next(((mark, codec) for mark, codec in _MARKS.items() if raw.startswith(mark)), (b"", "utf-8"))


# opening folders

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
        shared = os.path.commonprefix([self._parts, parts])  # noqa: RUF071 - whole parts, since these are tuples
        self.close(below=len(shared))
        self._parts = parts
        if not self._handles:
            if create:
                make_private_folder(self._base)
            self._handles.append((0, open_folder(self._base, self._flags)))
        depth, handle = self._handles[-1]
        for part in parts[depth:]:
            depth, handle = depth + 1, _open_in(handle, part, create)
            if len(self._handles) > _MAX_OPEN:
                os.close(self._handles.pop()[1])
            self._handles.append((depth, handle))
        return handle

    def close(self, *, below: int = -1) -> None:
        """Close all folders, or those deeper than ``below``."""
        while self._handles and self._handles[-1][0] > below:
            os.close(self._handles.pop()[1])


class FolderTrees(AbstractContextManager["FolderTrees"]):
    """Folders below several bases, which may be links themselves."""

    def __init__(self) -> None:
        self._trees: dict[str, FolderTree] = {}

    def open(self, base: str, parts: tuple[str, ...], *, create: bool = False) -> int:
        """Return the handle of a folder, valid until the next call. Raise OSError."""
        return self._trees.setdefault(base, FolderTree(base, follow=True)).open(parts, create=create)

    def __exit__(self, *_: Any) -> None:
        for tree in self._trees.values():
            tree.close()


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


class OpenWorkspace(AbstractContextManager["OpenWorkspace"]):
    """A workspace during one operation. Paths are absolute, as `Workspace.locate` or a scan gives them.

    Folders stay open until `close`, so a folder that is replaced meanwhile is still the old one here.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._trees: dict[str, FolderTree] = {}
        self._last: tuple[str, int] | None = None

    def __exit__(self, *_: Any) -> None:
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
            if base is None:
                raise OSError(errno.EXDEV, "outside the workspace")
            if base == absolute:  # an extra path that is a file
                base = folder
            if base not in self._trees:
                self._trees[base] = FolderTree(base, follow=self._may_be_link(base))
            below = folder[len(base) + 1 :]
            self._last = None
            self._last = folder, self._trees[base].open(tuple(below.split(os.sep)) if below else (), create=create)
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

    def list_folder(self, folder: str) -> list[tuple[str, bool, bool]]:
        """Return each name in a folder, with whether it is a folder and whether it is a link. Raise OSError."""
        handle = self.open_to_list(folder)
        try:
            with os.scandir(handle) as listing:
                return [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in listing]
        finally:
            os.close(handle)

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
