"""Standard input with a limit, and standard output and standard error that are safe for a terminal.

Names, notes, transcripts and answers of servers may contain what a terminal obeys: escape sequences, control
characters, overrides of the writing direction. `guard_streams` replaces both output streams once, so that no command
can forget about it: everything that is written is escaped. Our own colours are marked with a random number
that only this process knows, and become escape sequences after the check.

Standard error is redacted as well: error messages, tracebacks and logs of libraries may repeat a key.
"""

from __future__ import annotations

import io
import os
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from kept.errors import KeptError, UsageError

if TYPE_CHECKING:
    from kept.base.redact import Redactor
    from kept.config import Config

_UNSAFE = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]|\r(?!\n)"
"""Control characters (C0, DEL, C1) except line breaks and tabs, separators of lines and paragraphs, and characters that
override or isolate the writing direction."""
_MARK = f"\ufdd0{os.urandom(8).hex()}\ufdd1"
"""Replaces the escape character of our own sequences until they are written. It begins and ends with noncharacters,
which no text contains."""
_ESCAPE = "\x1b"
_CSI = "\x1b["

_CONVERT = "Convert it first, for example with: iconv -f latin1 -t utf-8"
MAX_INPUT_BYTES = 4_000_000


def read_stdin(limit: int = MAX_INPUT_BYTES, *, refusal: type[KeptError] = UsageError) -> str:
    """Read all of standard input, in UTF-8.

    Raise ``refusal`` if it has more bytes than the limit, without reading on, and UsageError if it has other bytes:
    what is stored must be what was meant.
    """
    raw = sys.stdin.buffer.read(limit + 1)
    if len(raw) > limit:
        raise refusal(f"Standard input has more than the limit of {limit:,} bytes.", hint="Pass less text at a time.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise UsageError(f"Standard input is not text in UTF-8 (byte {exc.start + 1}).", hint=_CONVERT) from None
    if "\0" in text:
        raise UsageError("Standard input contains NUL bytes: it is binary, or text in UTF-16.", hint=_CONVERT)
    return text


def _is_plain(text: str) -> bool:
    """Return True for most output, without compiling the pattern: no unsafe character is printable."""
    return text.replace("\n", "").isprintable()


def printable(text: str) -> str:
    """Escape characters that a terminal would obey: '\\x1b', '\\u202e'."""
    return text if _is_plain(text) else re.sub(_UNSAFE, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def safe_json(text: str) -> str:
    """Escape the same characters in JSON, where the value stays the same."""
    return text if _is_plain(text) else re.sub(_UNSAFE, lambda match: f"\\u{ord(match[0]):04x}", text)


def mark_style(text: str) -> str:
    """Mark the escape sequences of a text as our own. The rest of the text must be escaped already."""
    return text.replace(_CSI, f"{_MARK}[")


class GuardedStream(io.TextIOBase):
    """Stream that escapes unsafe characters and writes to another stream."""

    def __init__(self, raw: TextIO, *, redacted: bool) -> None:
        self.raw = raw
        self._redacted = redacted

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"expected str, not {type(text).__name__}")
        shown = hide_secrets(text) if self._redacted else text
        self.raw.write(printable(shown).replace(_MARK, _ESCAPE))
        return len(text)

    def write_exactly(self, text: str) -> None:
        """Write the text of a note unchanged to a file or a pipe, and escaped to a terminal."""
        self.raw.write(printable(text) if self.raw.isatty() else text)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self.raw.flush()

    def isatty(self) -> bool:
        return self.raw.isatty()

    def fileno(self) -> int:
        return self.raw.fileno()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped stream, such as the buffer that the MCP server writes to."""
        return getattr(self.raw, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.raw.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.raw.errors


def guard_streams() -> None:
    if not isinstance(sys.stdout, GuardedStream):
        sys.stdout = GuardedStream(sys.stdout, redacted=False)
    if not isinstance(sys.stderr, GuardedStream):
        sys.stderr = GuardedStream(sys.stderr, redacted=True)


def unguarded(stream: TextIO) -> TextIO:
    """Return the wrapped stream, for a writer that escapes on its own."""
    return stream.raw if isinstance(stream, GuardedStream) else stream


_CONFIGS: list[Config] = []


def remember_secrets(config: Config) -> None:
    """Redact the keys of these settings and of the environment on standard error from now on."""
    _CONFIGS.append(config)
    _redactor.cache_clear()


def hide_secrets(text: str) -> str:
    """Replace the keys of the settings, and everything else that looks like a secret."""
    return _redactor()(text) if text.strip() else text


@cache
def _redactor() -> Redactor:
    from kept.base.redact import Redactor
    from kept.config.keys import secrets_of

    return Redactor(secret for config in _CONFIGS for secret in secrets_of(config))
