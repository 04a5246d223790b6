"""Reads a note, even if its bytes are not valid UTF-8."""

from __future__ import annotations

import errno
import os
import stat

from kept.errors import NoteNotFound, NoteTooLarge, PathRefused, WorkspaceError
from kept.limits import int64
from kept.values import frozen

_BOM = b"\xef\xbb\xbf"
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
        raw = _read_regular(handle, state, absolute, max_bytes)
    except OSError as exc:
        raise WorkspaceError(f"{absolute}: cannot be read ({exc.strerror}).") from exc
    finally:
        os.close(handle)
    text, warning = decode(raw)
    return NoteText(raw, text, state.st_size, int64(state.st_mtime_ns), int64(state.st_ctime_ns), warning)


def _read_regular(handle: int, state: os.stat_result, absolute: str, max_bytes: int) -> bytes:
    """Return all bytes. Raise NoteTooLarge if the file has more than ``max_bytes``, or grows beyond that meanwhile."""
    if not stat.S_ISREG(state.st_mode):
        raise PathRefused(f"{absolute}: not a file.")
    if state.st_size > max_bytes:
        raise NoteTooLarge(f"{absolute}: {state.st_size:,} bytes, more than the limit of {max_bytes:,}.")
    raw = os.read(handle, state.st_size + 1)
    if len(raw) == state.st_size:
        return raw
    while len(raw) <= max_bytes and (more := os.read(handle, min(max_bytes + 1 - len(raw), _BLOCK))):
        raw += more
    if len(raw) > max_bytes:
        raise NoteTooLarge(f"{absolute}: more than the limit of {max_bytes:,} bytes.")
    return raw


def decode(raw: bytes) -> tuple[str, str | None]:
    """Decode leniently: strip the BOM, normalise line ends, replace invalid UTF-8. Return the text and a warning."""
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
