"""Reading tolerantly, and the only two ways a note is changed: an atomic write and a durable append."""

from __future__ import annotations

import os

from kept.errors import NoteNotFound, NoteTooLarge, WorkspaceError, WriteFailed
from kept.folders import make_private_folder
from kept.values import frozen

_BOM = b"\xef\xbb\xbf"


@frozen
class NoteText:
    """A note as it was read: its bytes, its text with '\\n' line ends, and what had to be mended for that."""

    raw: bytes
    text: str
    size: int
    mtime_ns: int
    ctime_ns: int
    warning: str | None = None


def read_note(absolute: str, *, max_bytes: int) -> NoteText:
    """Reads a note whatever its encoding is like. The file itself is never mended.

    The file is opened without following a link and its state is taken from the open handle, so what is described
    is what was read.
    """
    try:
        handle = os.open(absolute, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NoteNotFound(f"{absolute}: there is no such note.") from None
    except OSError as exc:
        raise WorkspaceError(f"{absolute}: cannot be read ({exc.strerror}).") from exc
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(file.fileno())
        if state.st_size > max_bytes:
            raise NoteTooLarge(f"{absolute}: {state.st_size:,} bytes, more than the limit of {max_bytes:,}.")
        try:
            raw = file.read(max_bytes + 1)
        except OSError as exc:
            raise WorkspaceError(f"{absolute}: cannot be read ({exc.strerror}).") from exc
    if len(raw) > max_bytes:
        raise NoteTooLarge(f"{absolute}: more than the limit of {max_bytes:,} bytes.")
    text, warning = decode(raw)
    return NoteText(raw, text, state.st_size, state.st_mtime_ns, state.st_ctime_ns, warning)


def decode(raw: bytes) -> tuple[str, str | None]:
    """Text of any bytes: without a BOM, with '\\n' line ends, what is not UTF-8 replaced and said so."""
    body = raw.removeprefix(_BOM)
    warning = None
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        text = body.decode("utf-8", errors="replace")
        warning = f"not valid UTF-8 at byte {exc.start}; unreadable bytes are shown as �"
    if "\0" in text:
        text = text.replace("\0", "�")
        warning = warning or "contains NUL bytes, shown as �"
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, warning


def write_atomic(absolute: str, data: bytes) -> None:
    """The whole file or nothing: a temporary file beside it, fsync, rename, fsync of the folder."""
    folder = os.path.dirname(absolute)
    temporary = os.path.join(folder, f".{os.path.basename(absolute)}.{os.urandom(6).hex()}.tmp")
    try:
        make_private_folder(folder)
        mode = _mode_of(absolute)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            _write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, absolute)
        _sync_folder(folder)
    except OSError as exc:
        _remove_quietly(temporary)
        raise WriteFailed(f"{absolute}: could not be written ({exc.strerror}).") from exc


def append_durably(absolute: str, data: bytes) -> None:
    """Adds to the end of a file and returns when it is on disk. On failure the file is cut back to what it was.

    The caller holds the workspace's lock, so the size cannot change in between.
    """
    folder = os.path.dirname(absolute)
    try:
        make_private_folder(folder)
        is_new = not os.path.exists(absolute)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(absolute, flags, 0o600)
        try:
            before = os.fstat(handle).st_size
            try:
                _write_all(handle, data)
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)
        if is_new:
            _sync_folder(folder)
    except OSError as exc:
        raise WriteFailed(f"{absolute}: could not be written ({exc.strerror}).") from exc


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _mode_of(absolute: str) -> int:
    try:
        return os.stat(absolute).st_mode & 0o777
    except FileNotFoundError:
        return 0o600


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
