"""Files of the history in a workspace. No link is followed on the way to them, and new ones are private."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from kept.durable import append_durably, erase_file, replacing, sync_folder, write_atomic
from kept.errors import WorkspaceError
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import Workspace

HISTORY_FOLDER = ".kept/history"
CHANGES = "changes"
OBJECTS = "objects"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class HistoryFolder:
    """Reads, appends to and replaces files in ``changes`` and ``objects``. Writers hold the lock of the workspace."""

    def __init__(self, workspace: Workspace, *, base: str = HISTORY_FOLDER, title: str = "the history") -> None:
        self.workspace = workspace
        self._base = base.split("/")
        self._title = title

    def path(self, *parts: str) -> str:
        return os.path.join(self.workspace.root, *self._base, *parts)

    def names(self, folder: str, ending: str) -> list[str]:
        """Return the names of the files with this ending, sorted. None of them may be readable."""
        try:
            with OpenWorkspace(self.workspace) as opened:
                handle = opened.open_to_list(self.path(folder))
                try:
                    return sorted(name for name in os.listdir(handle) if name.endswith(ending))
                finally:
                    os.close(handle)
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise self._unreadable(folder, exc) from exc

    @contextmanager
    def reading(self, folder: str, name: str) -> Iterator[int | None]:
        """Yield an open file, or None if there is none."""
        path, handle = self.path(folder, name), None
        try:
            with OpenWorkspace(self.workspace) as opened:
                handle = os.open(name, _READ, dir_fd=opened.folder_of(path))
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise self._unreadable(path, exc) from exc
        try:
            yield handle
        except OSError as exc:
            raise self._unreadable(path, exc) from exc
        finally:
            if handle is not None:
                os.close(handle)

    def read(self, folder: str, name: str, *, start: int = 0) -> bytes:
        """Return the bytes of a file from ``start`` on, or nothing if there is no such file."""
        with self.reading(folder, name) as handle:
            if handle is None:
                return b""
            pieces = []
            while piece := os.pread(handle, 1 << 24, start):
                pieces.append(piece)
                start += len(piece)
            return b"".join(pieces)

    def size(self, folder: str, name: str) -> int:
        with self.reading(folder, name) as handle:
            return 0 if handle is None else os.fstat(handle).st_size

    def append(self, folder: str, name: str, data: bytes) -> None:
        path = self.path(folder, name)
        with OpenWorkspace(self.workspace) as opened:
            append_durably(path, data, dir_fd=opened.folder_to_write(path))

    def replace(self, folder: str, name: str, data: bytes) -> None:
        path = self.path(folder, name)
        with OpenWorkspace(self.workspace) as opened:
            write_atomic(path, data, dir_fd=opened.folder_to_write(path))

    @contextmanager
    def replacing(self, folder: str, name: str, *, erase: bool = False) -> Iterator[BinaryIO]:
        """Yield a file to write, which then replaces another. With ``erase``, what that one had is overwritten."""
        path = self.path(folder, name)
        with (
            OpenWorkspace(self.workspace) as opened,
            replacing(path, dir_fd=opened.folder_to_write(path), erase=erase) as file,
        ):
            yield file

    def remove(self, folder: str, name: str, *, erase: bool = False) -> None:
        path = self.path(folder, name)
        try:
            with OpenWorkspace(self.workspace) as opened:
                parent = opened.folder_of(path)
                if erase:
                    erase_file(path, dir_fd=parent)
                    return
                os.unlink(name, dir_fd=parent)
                sync_folder(parent)
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise self._unreadable(path, exc) from exc

    def _unreadable(self, path: str, exc: OSError) -> WorkspaceError:
        return WorkspaceError(f"{path}: {self._title} cannot be read ({exc.strerror}).")
