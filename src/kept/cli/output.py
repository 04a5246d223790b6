"""Output of the commands: JSON for scripts, plain text in a pipe, colour and tables on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from kept.cli.streams import GuardedStream, mark_style, printable, safe_json, unguarded
from kept.wording import plural, size_text

if TYPE_CHECKING:
    import datetime as dt

    from rich.console import Console
    from rich.progress import Progress as Bars

    from kept.records import Progress


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
    """Print a text, with unsafe characters escaped. Commands print only with this and with `console`."""
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


def warn_all(reasons: Iterable[str]) -> None:
    """Print why a result may be incomplete."""
    for reason in reasons:
        warn(reason)


@cache
def _console_type() -> type[Console]:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class GuardedConsole(Console):
        """Console that escapes every text it renders. The library marks its own control sequences as such."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return GuardedConsole


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return _console_type()(
        file=unguarded(stream),
        # A pipe has no width, and a program cannot read a table with wrapped lines.
        width=None if stream.isatty() else 10_000,
        # With NO_COLOR alone, rich keeps bold and dim.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        # Brackets and colons in a text are part of it.
        markup=False,
        emoji=False,
    )


_MIN_NOTES_FOR_BAR = 100
_MIN_BYTES_FOR_BAR = 20_000_000
"""Less is indexed or imported before anyone could read a bar."""


@contextmanager
def progress_bar(label: str, *, in_bytes: bool = False) -> Iterator[Progress | None]:
    """Show a bar on a terminal, if there is enough to do. Yield the callback that moves it."""
    if not sys.stderr.isatty():
        yield None
        return
    started: list[Any] = []
    least = _MIN_BYTES_FOR_BAR if in_bytes else _MIN_NOTES_FOR_BAR

    def report(completed: int, total: int, path: str) -> None:
        if not started and total < least:
            return
        if not started:
            started.append(_start_bar(label, total, in_bytes=in_bytes))
        bar, task = started[0]
        shown = os.path.basename(path) if in_bytes else path
        bar.update(task, completed=completed, total=total, path=printable(shown))

    try:
        yield report
    finally:
        for bar, _ in started:
            bar.stop()


def _start_bar(label: str, total: int, *, in_bytes: bool) -> tuple[Any, Any]:
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TimeRemainingColumn

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    bar = bars(BarColumn(), count, TimeRemainingColumn(), last="path")
    bar.start()
    return bar, bar.add_task(label, total=total, path="")


def bars(*columns: Any, last: str | None = None) -> Bars:
    """Return progress bars with these columns between the description and the field that ``last`` names."""
    from rich.progress import Progress, TextColumn

    all_columns: list[Any] = [TextColumn("{task.description}", markup=False), *columns]
    if last:
        all_columns.append(TextColumn(f"{{task.fields[{last}]}}", style="dim", markup=False))
    # The streams are not redirected: the library would take our style marks for text.
    screen = console(stderr=True)
    return Progress(*all_columns, console=screen, transient=True, redirect_stdout=False, redirect_stderr=False)


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
    "bars",
    "console",
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
