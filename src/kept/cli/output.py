"""How things look: JSON for scripts, plain text in a pipe, colour and tables on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from kept.records import Progress

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def print_json(value: Any) -> None:
    click.echo(json_text(value, indent=2))


def json_text(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=not _shows_every_letter(), indent=indent)


def _shows_every_letter() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """A note's text for a terminal, which would obey the codes in it."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def use_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def style(text: str, **how: Any) -> str:
    return click.style(text, **how) if use_colour() else text


def warn(message: str) -> None:
    """Something that did not stop the work. To standard error, so that it never mixes with results."""
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    click.echo((click.style("Note: ", fg="yellow") if coloured else "Note: ") + printable(message), err=True)


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        # In a pipe nobody has said how wide it is, and a table that wraps cannot be read by a program.
        width=None if stream.isatty() else 10_000,
        # By itself NO_COLOR would leave bold and dim.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
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
        bar.update(task, completed=completed, total=total, path=path)

    try:
        yield report
    finally:
        for bar, _ in bars:
            bar.stop()


def _start_bar(label: str, total: int) -> tuple[Any, Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[path]}"),
        console=console(stderr=True),
        transient=True,
    )
    bar.start()
    return bar, bar.add_task(label, total=total, path="")


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_text(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def log_to_stderr() -> None:
    """Log warnings for as long as a server runs. Libraries that log every request would log the bot's token with it."""
    import logging

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
