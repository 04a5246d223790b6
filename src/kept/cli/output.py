"""Output of the commands: JSON for scripts, plain text in a pipe, colour and tables on a terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kept.base.wording import plural, size_text
from kept.cli.streams import GuardedStream, mark_style, printable, safe_json, unguarded

if TYPE_CHECKING:
    import datetime as dt

    from kept.base.records import Progress


person_option = click.option(
    "--as",
    "person",
    metavar="PERSON",
    help="As this person sees it: a name of session.identity_links, or an account such as telegram:5054.",
)


def max_results_option(default: int | None, most: int, *, note: str = "") -> Callable[[Any], Any]:
    """Return the option for the number of results, which every command calls the same."""
    return click.option(
        "-n",
        "--max-results",
        "--limit",
        "max_results",
        type=click.IntRange(1, most),
        default=default,
        metavar="N",
        help=f"Maximum number of results{note}.",
    )


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, with unsafe characters escaped. Commands print only with this."""
    stream = sys.stderr if err else sys.stdout
    shown = text if isinstance(stream, GuardedStream) else printable(text)
    stream.write(f"{shown}\n" if nl else shown)
    stream.flush()


def echo_exactly(text: str) -> None:
    """Print the text of a note: unchanged to a file or a pipe, escaped on a terminal."""
    if isinstance(sys.stdout, GuardedStream):
        sys.stdout.write_exactly(text)
        sys.stdout.flush()
    else:
        echo(text, nl=False)


def print_json(value: Any) -> None:
    echo(json_text(value, indent=2))


def json_text(value: Any, *, indent: int | None = None) -> str:
    return safe_json(json.dumps(value, ensure_ascii=not _is_utf8(), indent=indent))


def _is_utf8() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"


def use_colour(*, err: bool = False) -> bool:
    return (sys.stderr if err else sys.stdout).isatty() and not os.environ.get("NO_COLOR")


def style(text: str, *, err: bool = False, **attributes: Any) -> str:
    return mark_style(click.style(printable(text), **attributes)) if use_colour(err=err) else text


_SETTINGS_NOTICES: list[str] = []
"""Notices about settings that were printed. Results repeat them, for programs that read nothing else."""


def warn_of_settings(notices: Iterable[str]) -> None:
    """Print what the settings have wrong, once in a run."""
    for notice in notices:
        if notice not in _SETTINGS_NOTICES:
            warn(notice)
            _SETTINGS_NOTICES.append(notice)


def was_printed(message: str) -> bool:
    """Return whether a message is a notice about the settings that was printed already."""
    return message in _SETTINGS_NOTICES


def warn(message: str) -> None:
    """Print a problem that did not stop the command. It goes to standard error, apart from the results."""
    if was_printed(message):
        return
    echo(style("Note: ", err=True, fg="yellow") + " ".join(printable(message).splitlines()), err=True)


_REASONS_SHOWN = 50


def warn_all(reasons: Iterable[str]) -> None:
    """Print why a result may be incomplete, and of many reasons the first."""
    texts = [*reasons]
    for reason in texts[:_REASONS_SHOWN]:
        warn(reason)
    if len(texts) > _REASONS_SHOWN:
        warn(f"{len(texts) - _REASONS_SHOWN:,} more; --json shows them all.")


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


send_option = click.option(
    "--send",
    type=click.Choice(["recent", "memory", "nothing"]),
    help="Notes for the model when a session begins: MEMORY.md and those of the project; recent: daily notes and the "
    "last conversation in the folder too. Default: memory in a vault, else recent.",
)


def require_consent(question: str) -> None:
    """Ask before something that cannot be undone. Exit with 1 if the answer is no."""
    if not click.confirm(question, default=False, err=True):
        echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


def log_to_stderr() -> None:
    """Log warnings of a server. Standard error is redacted: libraries log URLs that contain the bot token."""
    import logging

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")


__all__ = [
    "echo",
    "echo_exactly",
    "json_text",
    "local_time",
    "log_to_stderr",
    "max_results_option",
    "person_option",
    "plural",
    "print_json",
    "printable",
    "progress_bar",
    "require_consent",
    "safe_json",
    "send_option",
    "size_text",
    "style",
    "use_colour",
    "warn",
    "warn_of_settings",
    "was_printed",
]
