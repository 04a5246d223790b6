"""Reading a note, whatever its bytes are like."""

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
    """A note as it was read: its bytes, its text with '\\n' line ends, and what had to be mended for that."""

    raw: bytes
    text: str
    size: int
    mtime_ns: int
    ctime_ns: int
    warning: str | None = None


def read_note(absolute: str, *, max_bytes: int, dir_fd: int | None = None) -> NoteText:
    """Read a note whatever its encoding is like. The file itself is never mended.

    The file is opened without following a link and its state is taken from the open handle, so what is described
    is what was read. With ``dir_fd``, only the last part of the path is looked up, in that open folder.
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
    """All of a file, unless it has more bytes than that, or gets them while it is read."""
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
