"""kept watch"""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kept.cli.index import report_line, show_report
from kept.cli.output import as_shape, console, json_option, json_text, plural, printable, warn
from kept.cli.root import Globals

if TYPE_CHECKING:
    from kept.live import LiveEvent, LiveIndex, LiveState
    from kept.memory import Memory

_LOOK_S = 0.5
"""How often the line on a terminal is compared with what is going on."""


@click.command("watch")
@json_option
@click.pass_obj
def command(options: Globals, as_json: bool) -> None:
    """Keep the index current while notes and conversations change, until interrupted.

    Where several run for one index, one does the work and the others take over when it ends. With --json, each line is
    an event.
    """
    from kept.live import LiveIndex

    events: queue.SimpleQueue[LiveEvent | None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: events.put(None))
    with options.memory() as memory:
        memory.require_usable()
        with LiveIndex(memory, watch=True, listener=events.put) as live:
            if as_json:
                for event in _until_told(events):
                    click.echo(json_text(event_json(event)))
            else:
                _show(memory, live, events)


def _until_told(events: queue.SimpleQueue[LiveEvent | None]) -> Iterator[LiveEvent]:
    while (event := events.get()) is not None:
        yield event


def event_json(event: LiveEvent) -> dict[str, Any]:
    shape: dict[str, Any] = {"event": event.kind, "state": as_shape(event.state)}
    if event.message:
        shape["message"] = event.message
    if event.report is not None:
        shape["report"] = as_shape(event.report)
    return shape


def _show(memory: Memory, live: LiveIndex, events: queue.SimpleQueue[LiveEvent | None]) -> None:
    watching = f"Watching {memory.workspace.root}; stop with Ctrl-C."
    if not sys.stdout.isatty():
        for event in _until_told(events):
            _show_event(event, watching)
        return
    click.echo(watching, err=True)
    with _status_line(live):
        for event in _until_told(events):
            _show_event(event, None)


def _show_event(event: LiveEvent, watching: str | None) -> None:
    """``watching`` is said when there is something to show for it: that is a sign for scripts."""
    match event.kind:
        case "synced" if event.report is not None:
            first = event.state.syncs == 1
            show_report(event.report) if first or event.report.problems else click.echo(report_line(event.report))
            if first and watching:
                click.echo(watching, err=True)
        case "role":
            if event.state.role == "standby":
                click.echo(f"Standing by: process {event.state.leader_pid} keeps the index current.", err=True)
            elif event.state.role == "leader" and event.state.syncs:
                click.echo("Taking over: the process that kept the index current is gone.", err=True)
        case _:
            warn(event.message)


@contextmanager
def _status_line(live: LiveIndex) -> Iterator[None]:
    """One line at the bottom of the terminal, which changes when there is something new to say."""
    from rich.live import Live
    from rich.text import Text

    done = threading.Event()
    with Live(Text(), console=console(), auto_refresh=False, transient=True) as line:

        def keep_current() -> None:
            shown = ""
            while not done.is_set():
                text = state_line(live.state())
                if text != shown:
                    line.update(Text(text, style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)
                    shown = text
                done.wait(_LOOK_S)

        painter = threading.Thread(target=keep_current, name="kept-status-line", daemon=True)
        painter.start()
        try:
            yield
        finally:
            done.set()
            painter.join()


def state_line(state: LiveState) -> str:
    if state.role == "standby":
        return f"○ standing by · process {state.leader_pid or '?'} keeps the index current"
    if state.syncing:
        doing = f"indexing {state.completed:,} of {state.total:,}" if state.total else "looking"
    elif state.waiting:
        doing = f"{plural(state.waiting, 'change')} waiting to settle"
    else:
        doing = "up to date" if state.last_sync and not state.problem else "waiting to try again"
    parts = ["● leading", doing, plural(state.files, "file"), plural(state.chunks, "chunk")]
    if state.last_change:
        parts.append(f"last change {printable(state.last_change)}")
    if state.watching == "polling":
        parts.append("looking from time to time")
    if state.problem:
        parts.append(printable(state.problem))
    return " · ".join(parts)
