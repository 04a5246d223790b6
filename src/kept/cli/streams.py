"""Standard output and standard error that a terminal can be trusted with.

Names, notes, transcripts and the answers of servers may hold what a terminal obeys: escape sequences, control
characters, overrides of the writing direction. `guard_streams` replaces both streams once, so that no command can
forget about it: whatever is written is escaped on its way. Our own colours are marked with a number that only this
process knows, and become escape sequences behind the check.

What goes to standard error is redacted as well: error messages, tracebacks and logs of libraries may repeat a key.
"""

from __future__ import annotations

import io
import os
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from kept.config import Config
    from kept.redact import Redactor

_UNSAFE = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]|\r(?!\n)"
"""Control characters (C0, DEL, C1) but line breaks and tabs, separators of lines and paragraphs, and what overrides or
isolates the writing direction."""
_MARK = f"\ufdd0{os.urandom(8).hex()}["
"""Stands for the beginning of an escape sequence of ours. The first is no character that any text has."""
_CSI = "\x1b["


def _is_plain(text: str) -> bool:
    """Return True for most output, without compiling the pattern: no unsafe character is printable."""
    return text.replace("\n", "").isprintable()


def printable(text: str) -> str:
    """Escape what a terminal would obey: '\\x1b', '\\u202e'."""
    return text if _is_plain(text) else re.sub(_UNSAFE, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def safe_json(text: str) -> str:
    """Escape the same in JSON, where it means what it meant before."""
    return text if _is_plain(text) else re.sub(_UNSAFE, lambda match: f"\\u{ord(match[0]):04x}", text)


def mark_style(text: str) -> str:
    """Mark the escape sequences of a text that is safe otherwise as our own."""
    return text.replace(_CSI, _MARK)


class GuardedStream(io.TextIOBase):
    """Writes to another stream what is safe to be shown."""

    def __init__(self, raw: TextIO, *, redacted: bool) -> None:
        self.raw = raw
        self._redacted = redacted

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"expected str, not {type(text).__name__}")
        shown = hide_secrets(text) if self._redacted else text
        self.raw.write(printable(shown).replace(_MARK, _CSI))
        return len(text)

    def write_exactly(self, text: str) -> None:
        """For the text of a note that goes into a file or a pipe, which is to be the same there."""
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
        """Of the stream below: its buffer, which the MCP server speaks through, its encoding, its mode."""
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
    """The stream below, for what escapes by itself."""
    return stream.raw if isinstance(stream, GuardedStream) else stream


_CONFIGS: list[Config] = []


def remember_secrets(config: Config) -> None:
    """Keep the keys of the settings and the environment out of what is written to standard error from now on."""
    _CONFIGS.append(config)
    _redactor.cache_clear()


def hide_secrets(text: str) -> str:
    """Take out keys that the settings hold, and whatever else looks like a secret."""
    return _redactor()(text) if text.strip() else text


@cache
def _redactor() -> Redactor:
    from kept.config.secrets import secrets_of
    from kept.redact import Redactor

    return Redactor(secret for config in _CONFIGS for secret in secrets_of(config))
