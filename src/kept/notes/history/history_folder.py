"""Files of the history in a workspace: the lines of changes, and the versions of the notes.

No link is followed on the way to them, and new ones are private. A version is a compressed file of its own, named by
the SHA-256 of its bytes: `objects/ab/….z`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from kept.base.digest import digest_bytes
from kept.base.durable import append_durably, erase_file, replacing, sync_folder, write_atomic, write_temporary
from kept.errors import HistoryDamaged, WorkspaceError, WriteFailed
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import Workspace

HISTORY_FOLDER = ".kept/history"
CHANGES = "changes"
OBJECTS = "objects"
MAX_VERSION_BYTES = 1 << 30
_VERSION_ENDING = ".z"
_LEVEL = 1
"""Compression level: levels above it take far more CPU time for a few per cent of space."""
_FEW = 16
"""Files up to which each is synced by itself. For more, the disk is synced once."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class HistoryFolder:
    """Reads, appends to and replaces files. Writers hold the lock of the workspace."""

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
                return sorted(name for name, *_ in opened.list_folder(self.path(folder)) if name.endswith(ending))
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

    def replace_all(self, files: Mapping[tuple[str, str], bytes]) -> None:
        """Write files, named by folder and name, and return when all are on disk."""
        if len(files) <= _FEW:
            for (folder, name), data in files.items():
                self.replace(folder, name, data)
            return
        paths = {self.path(*place): data for place, data in files.items()}
        with OpenWorkspace(self.workspace) as opened:
            written = {
                path: write_temporary(path, data, dir_fd=opened.folder_to_write(path)) for path, data in paths.items()
            }
            os.sync()
            for path, temporary in written.items():
                parent = opened.folder_to_write(path)
                try:
                    os.replace(temporary, os.path.basename(path), src_dir_fd=parent, dst_dir_fd=parent)
                except OSError as exc:
                    raise WriteFailed(f"{path}: could not be written ({exc.strerror}).") from exc
            os.sync()

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


class VersionStore:
    """The bytes of every version of every note, by their SHA-256."""

    def __init__(self, folder: HistoryFolder) -> None:
        self.folder = folder

    def read(self, digest: str) -> bytes:
        """Return the bytes of a version. Raise HistoryDamaged if they are missing or damaged."""
        import zlib

        packed = self.folder.read(*_place(digest))
        if not packed:
            raise HistoryDamaged(f"The version {digest[:12]} of a note is missing from the history.")
        unpacker = zlib.decompressobj()
        try:
            content = unpacker.decompress(packed, MAX_VERSION_BYTES)
        except zlib.error as exc:
            raise HistoryDamaged(f"The version {digest[:12]} of a note cannot be read ({exc}).") from exc
        if not unpacker.eof or digest_bytes(content) != digest:
            raise HistoryDamaged(f"The version {digest[:12]} of a note is damaged.")
        return content

    def put(self, contents: Iterable[bytes]) -> None:
        """Store the versions that are missing, and return when they are on disk."""
        import zlib

        by_digest = {digest_bytes(content): content for content in contents}
        missing = {digest: content for digest, content in by_digest.items() if not self.size(digest)}
        self.folder.replace_all({_place(digest): zlib.compress(content, _LEVEL) for digest, content in missing.items()})

    def size(self, digest: str) -> int:
        """Return the compressed size of a version, or 0 if it is missing."""
        return self.folder.size(*_place(digest))

    def digests(self) -> list[str]:
        """Return the hashes of all versions."""
        return [
            part + name.removesuffix(_VERSION_ENDING)
            for part in self.folder.names(OBJECTS, "")
            for name in self.folder.names(f"{OBJECTS}/{part}", _VERSION_ENDING)
        ]

    def erase(self, digest: str) -> None:
        self.folder.remove(*_place(digest), erase=True)


def _place(digest: str) -> tuple[str, str]:
    return f"{OBJECTS}/{digest[:2]}", f"{digest[2:]}{_VERSION_ENDING}"
