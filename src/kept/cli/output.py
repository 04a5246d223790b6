"""Output of the commands: JSON for scripts, plain text in a pipe, colour on a terminal; and standard input.

Names, notes, transcripts and answers of servers may contain what a terminal obeys: escape sequences, control
characters, overrides of the writing direction. `guard_streams` replaces both output streams once, so that no command
can forget about it: everything that is written is escaped. Our own colours are marked with a random number
that only this process knows, and become escape sequences after the check.

Standard error is redacted as well: error messages, tracebacks and logs of libraries may repeat a key.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TextIO

import click

from kept.base.wording import size_text
from kept.errors import KeptError, UsageError

if TYPE_CHECKING:
    import datetime as dt

    from kept.base.records import Progress
    from kept.base.redact import Redactor
    from kept.config import Config

# streams that are safe for a terminal

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


def printable(text: str, *, in_json: bool = False) -> str:
    """Escape characters that a terminal would obey: '\\x1b', '\\u202e'. In JSON, the value stays the same."""
    if text.replace("\n", "").isprintable():  # most output; no unsafe character is printable
        return text

    def escape(match: re.Match[str]) -> str:
        number = ord(match[0])
        return f"\\x{number:02x}" if number < 0x100 and not in_json else f"\\u{number:04x}"

    return re.sub(_UNSAFE, escape, text)


class GuardedStream:
    """Stream that escapes unsafe characters and writes to another stream."""

    def __init__(self, raw: TextIO, *, redacted: bool) -> None:
        self.raw = raw
        self._redacted = redacted
        self.flush, self.isatty = raw.flush, raw.isatty

    def write(self, text: str) -> int:
        shown = printable(hide_secrets(text) if self._redacted else text)
        self.raw.write(shown.replace(_MARK, _ESCAPE))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped stream, such as the buffer that the MCP server writes to."""
        return getattr(self.raw, name)


def guard_streams() -> None:
    """Make the standard streams safe: from now on they escape what the terminal or the encoding cannot show."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It was closed before the start. The next file to be opened would get its descriptor.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        if not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream, redacted=name == "stderr"))


def unguarded(stream: TextIO) -> TextIO:
    """Return the wrapped stream, for a writer that escapes on its own."""
    raw: TextIO = getattr(stream, "raw", stream)
    return raw


SETTINGS_IN_USE: list[Config] = []
"""Settings whose keys, and those of the environment, are redacted on standard error."""


def hide_secrets(text: str) -> str:
    """Replace the keys of the settings, and everything else that looks like a secret."""
    return _redactor(len(SETTINGS_IN_USE))(text) if text.strip() else text


@cache
def _redactor(count: int) -> Redactor:
    """Return the redactor for the first of the settings in use."""
    from kept.base.redact import Redactor
    from kept.config.agent_config import secrets_of

    return Redactor(secret for config in SETTINGS_IN_USE[:count] for secret in secrets_of(config))


# printing


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, with unsafe characters escaped. Commands print only with this."""
    stream = sys.stderr if err else sys.stdout
    shown = text if isinstance(stream, GuardedStream) else printable(text)
    stream.write(f"{shown}\n" if nl else shown)
    stream.flush()


def echo_exactly(text: str) -> None:
    """Print the text of a note: unchanged to a file or a pipe, escaped on a terminal."""
    stream = unguarded(sys.stdout)
    stream.write(printable(text) if stream.isatty() else text)
    stream.flush()


def print_json(value: Any) -> None:
    echo(json_text(value, indent=2))


def json_text(value: Any, *, indent: int | None = None) -> str:
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    return printable(json.dumps(value, ensure_ascii=not is_utf8, indent=indent), in_json=True)


def style(text: str, *, err: bool = False, **attributes: Any) -> str:
    """Return a text in a style, if the stream is a terminal. The escape sequences are marked as our own."""
    if not (sys.stderr if err else sys.stdout).isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(printable(text), **attributes).replace(_CSI, f"{_MARK}[")


bold = partial(style, bold=True)
dim = partial(style, dim=True)
cyan = partial(style, fg="cyan")
"""Returns a text in the colour of names: paths, notes, ids."""


def warn(message: str) -> None:
    """Print a problem that did not stop the command. It goes to standard error, apart from the results."""
    echo(style("Note: ", err=True, fg="yellow") + " ".join(printable(message).splitlines()), err=True)


_SAID: set[str] = set()
"""Notices about settings that were printed. Results repeat them, for programs that read nothing else."""
_REASONS_SHOWN = 50


def warn_all(reasons: Iterable[str], *, once: bool = False) -> None:
    """Print why a result may be incomplete, and of many reasons the first. What is said ``once`` is not repeated."""
    texts = [reason for reason in reasons if reason not in _SAID]
    for reason in texts[:_REASONS_SHOWN]:
        warn(reason)
    if len(texts) > _REASONS_SHOWN:
        warn(f"{len(texts) - _REASONS_SHOWN:,} more; --json shows them all.")
    _SAID.update(texts if once else ())


_MIN_NOTES_FOR_BAR = 100
_MIN_BYTES_FOR_BAR = 20_000_000
"""Less is indexed or imported before anyone could read it."""
_DRAW_INTERVAL_S = 0.1
_ERASE_LINE = "\r\x1b[K"


@contextmanager
def progress_bar(label: str, *, in_bytes: bool = False) -> Iterator[Progress | None]:
    """Show on a terminal how far a command is, if there is enough to do. Yield the callback to tell it."""
    if not sys.stderr.isatty():
        yield None
        return
    import shutil  # here, since it loads three libraries for archives

    from kept.cli.terminal_layout import cut

    stream, least = unguarded(sys.stderr), _MIN_BYTES_FOR_BAR if in_bytes else _MIN_NOTES_FOR_BAR
    room = shutil.get_terminal_size().columns - 1
    last_drawn = 0.0

    def report(completed: int, total: int, path: str) -> None:
        nonlocal last_drawn
        if total < least or time.monotonic() < last_drawn + _DRAW_INTERVAL_S:
            return
        last_drawn = time.monotonic()
        count = f"{size_text(completed)} of {size_text(total)}" if in_bytes else f"{completed:,} of {total:,}"
        line = f"{label}: {count}  {os.path.basename(path) if in_bytes else path}"
        stream.write(_ERASE_LINE + cut(printable(line).replace("\n", " "), room))
        stream.flush()

    try:
        yield report
    finally:
        if last_drawn:
            stream.write(_ERASE_LINE)
            stream.flush()


def local_time(timestamp: str | dt.datetime) -> str:
    """Return a time, or one in ISO 8601, for people: in the local time zone, to the minute."""
    if isinstance(timestamp, str):
        from datetime import datetime

        timestamp = datetime.fromisoformat(timestamp)
    return f"{timestamp.astimezone():%Y-%m-%d %H:%M}"


def require_consent(question: str) -> None:
    """Ask before something that cannot be undone. Exit with 1 if the answer is no."""
    if not click.confirm(question, default=False, err=True):
        echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


def log_to_stderr() -> None:
    """Log warnings of a server. Standard error is redacted: libraries log URLs that contain the bot token."""
    import logging

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
