"""Reading a note, whatever its bytes are like."""

from __future__ import annotations

import os

from kept.errors import NoteNotFound, NoteTooLarge, WorkspaceError
from kept.limits import int64
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
    return NoteText(raw, text, state.st_size, int64(state.st_mtime_ns), int64(state.st_ctime_ns), warning)


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
