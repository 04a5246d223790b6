"""How things look: JSON for scripts, plain text in a pipe, colour and tables on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from kept.cli.streams import GuardedStream, mark_style, printable, safe_json, unguarded

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

    from kept.records import Progress

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, escaped where a terminal would obey it. Commands print with this and with `console` only."""
    stream = sys.stderr if err else sys.stdout
    shown = text if isinstance(stream, GuardedStream) else printable(text)
    stream.write(f"{shown}\n" if nl else shown)
    stream.flush()


def echo_exactly(text: str) -> None:
    """Print the text of a note: the same into a file or a pipe, escaped on a terminal."""
    if isinstance(sys.stdout, GuardedStream):
        sys.stdout.write_exactly(text)
        sys.stdout.flush()
    else:
        echo(text, nl=False)


def print_json(value: Any) -> None:
    echo(json_text(value, indent=2))


def json_text(value: Any, *, indent: int | None = None) -> str:
    return safe_json(json.dumps(value, ensure_ascii=not _shows_every_letter(), indent=indent))


def _shows_every_letter() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"


def use_colour(*, err: bool = False) -> bool:
    return (sys.stderr if err else sys.stdout).isatty() and not os.environ.get("NO_COLOR")


def style(text: str, *, err: bool = False, **how: Any) -> str:
    return mark_style(click.style(printable(text), **how)) if use_colour(err=err) else text


def warn(message: str) -> None:
    """Something that did not stop the work. To standard error, so that it never mixes with results."""
    echo(style("Note: ", err=True, fg="yellow") + " ".join(printable(message).splitlines()), err=True)


@cache
def _console_type() -> type[Console]:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class GuardedConsole(Console):
        """Escapes every piece of text that is drawn. Its own control sequences are told apart by the library."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return GuardedConsole


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return _console_type()(
        file=unguarded(stream),
        # In a pipe nobody has said how wide it is, and a table that wraps cannot be read by a program.
        width=None if stream.isatty() else 10_000,
        # By itself NO_COLOR would leave bold and dim.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        # What stands in brackets or between colons is somebody's text.
        markup=False,
        emoji=False,
    )


_WORTH_A_BAR = 100
"""Fewer notes than this are indexed before a bar could be read."""


@contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """A bar on a terminal, nothing elsewhere. Little work shows none."""
    if not sys.stderr.isatty():
        yield None
        return
    bars: list[Any] = []

    def report(completed: int, total: int, path: str) -> None:
        if not bars and total < _WORTH_A_BAR:
            return
        if not bars:
            bars.append(_start_bar(label, total))
        bar, task = bars[0]
        bar.update(task, completed=completed, total=total, path=printable(path))

    try:
        yield report
    finally:
        for bar, _ in bars:
            bar.stop()


def _start_bar(label: str, total: int) -> tuple[Any, Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    bar = bars(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), last="path")
    bar.start()
    return bar, bar.add_task(label, total=total, path="")


def bars(*columns: Any, last: str | None = None) -> Bars:
    """Progress bars on a terminal, between a description and a field named ``last``; nothing elsewhere."""
    from rich.progress import Progress, TextColumn

    shown: list[Any] = [TextColumn("{task.description}", markup=False), *columns]
    if last:
        shown.append(TextColumn(f"{{task.fields[{last}]}}", style="dim", markup=False))
    # The streams are not redirected: the library would take our marks for text.
    return Progress(*shown, console=console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_text(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


__all__ = [
    "bars",
    "console",
    "echo",
    "echo_exactly",
    "json_option",
    "json_text",
    "plural",
    "print_json",
    "printable",
    "progress_bar",
    "safe_json",
    "size_text",
    "style",
    "use_colour",
    "warn",
]
