"""The text of a note, whatever bytes it has: its encoding, its line ends, and what is not valid in it."""

from __future__ import annotations

from kept.base.values import frozen

_BOM = b"\xef\xbb\xbf"
_MARKS = {
    _BOM: "utf-8",
    b"\xff\xfe\0\0": "utf-32-le",  # before UTF-16, which begins the same
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}


@frozen
class NoteText:
    """A note as it was read: its bytes, its text with '\\n' line ends, and a warning if bytes were replaced."""

    path: str
    raw: bytes
    text: str
    size: int
    mtime_ns: int
    ctime_ns: int
    version: str
    """SHA-256 of its bytes."""
    warning: str | None = None


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
