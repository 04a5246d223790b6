"""kept watch"""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from kept.cli.index import report_line
from kept.cli.output import console, echo, json_option, json_text
from kept.cli.root import Globals
from kept.tools.record_json import to_json
from kept.wording import plural

if TYPE_CHECKING:
    from kept.automatic_sync import SyncEvent
    from kept.live import LiveEvent, LiveIndex, LiveState
    from kept.memory import Memory

_REFRESH_S = 0.5
"""How often the status line on a terminal is updated."""


@click.command("watch")
@json_option
@click.pass_obj
def command(options: Globals, as_json: bool) -> None:
    """Keep the index current while notes change.

    Runs until interrupted. If several processes watch the same index, one does the work and another takes over when it
    ends. With --json, each line is an event.
    """
    from kept.live import LiveIndex

    events: queue.SimpleQueue[LiveEvent | None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: events.put(None))
    with options.memory() as memory:
        memory.index_service.require_usable()
        with LiveIndex(memory, watch=True, listener=events.put) as live, _team_sync(memory, live, events):
            if as_json:
                for event in _until_stopped(events):
                    echo(json_text(event_json(event)))
            else:
                _show(memory, live, events)


def _team_sync(
    memory: Memory, live: LiveIndex, events: queue.SimpleQueue[LiveEvent | None]
) -> AbstractContextManager[object]:
    """Synchronise with the team meanwhile, if the settings say so. The index notices what that brings."""
    from kept.automatic_sync import automatic_sync, is_automatic

    if not is_automatic(memory.config):
        return nullcontext()
    from kept.cli.sync_command import event_line
    from kept.live import LiveEvent

    def report(event: SyncEvent) -> None:
        events.put(LiveEvent("notice", live.state(), event_line(event)))

    return automatic_sync(memory.config, memory.workspace, memory.clock, report)


def _until_stopped(events: queue.SimpleQueue[LiveEvent | None]) -> Iterator[LiveEvent]:
    while (event := events.get()) is not None:
        yield event


def event_json(event: LiveEvent) -> dict[str, Any]:
    shape: dict[str, Any] = {"event": event.kind, "state": to_json(event.state)}
    if event.message:
        shape["message"] = event.message
    if event.report is not None:
        shape["report"] = to_json(event.report)
    return shape


def _show(memory: Memory, live: LiveIndex, events: queue.SimpleQueue[LiveEvent | None]) -> None:
    watching = f"Watching {memory.workspace.root}; stop with Ctrl-C."
    if sys.stdout.isatty():
        echo(watching)
        with _status_line(live) as print_above:
            for event in _until_stopped(events):
                for line in (*messages_of(event), *filter(None, [result_of(event)])):
                    print_above(line)
        return
    for event in _until_stopped(events):
        for line in messages_of(event):
            echo(line, err=True)
        if result := result_of(event):
            echo(result)
        if event.kind == "synced" and event.state.syncs == 1:
            echo(watching, err=True)  # after the first sync: scripts wait for this line


def messages_of(event: LiveEvent) -> list[str]:
    """Return the messages that an event has besides the result of a sync."""
    if event.kind == "role":
        if event.state.role == "standby":
            return [f"Standing by: process {event.state.leader_pid or '?'} keeps the index current."]
        return ["Taking over: the process that kept the index current is gone."] if event.succeeds else []
    if event.report is None:
        return [f"Note: {event.message}"]
    rebuilt = [f"Rebuilt: {event.report.rebuilt.rstrip('.')}."] if event.report.rebuilt else []
    problems = [f"{problem.path}: {problem.reason}" for problem in event.report.problems]
    return [f"Note: {text}" for text in (*rebuilt, *problems)]


def result_of(event: LiveEvent) -> str | None:
    return report_line(event.report) if event.report is not None else None


@contextmanager
def _status_line(live: LiveIndex) -> Iterator[Callable[[str], None]]:
    """Show a status line at the bottom of the terminal. Yield the function that prints a line above it."""
    from rich.live import Live
    from rich.text import Text

    done = threading.Event()
    with Live(
        Text(), console=console(), auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as line:

        def keep_current() -> None:
            shown = ""
            while not done.is_set():
                text = state_line(live.state())
                if text != shown:
                    line.update(Text(text, style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)
                    shown = text
                done.wait(_REFRESH_S)

        painter = threading.Thread(target=keep_current, name="kept-status-line", daemon=True)
        painter.start()
        try:
            yield lambda text: line.console.print(Text(text))
        finally:
            done.set()
            painter.join()


def state_line(state: LiveState) -> str:
    if state.role == "standby":
        return f"○ standing by · process {state.leader_pid or '?'} keeps the index current"
    if state.syncing:
        activity = f"indexing {state.completed:,} of {state.total:,}" if state.total else "scanning"
    elif state.waiting:
        activity = f"{plural(state.waiting, 'change')} waiting"
    else:
        activity = "up to date" if state.last_sync and not state.problem else "waiting to retry"
    parts = ["● leading", activity, plural(state.files, "file"), plural(state.chunks, "chunk")]
    if state.last_change:
        parts.append(f"last change {state.last_change}")
    if state.watching == "polling":
        parts.append("polling")
    if state.problem:
        parts.append(state.problem)
    return " · ".join(parts)
