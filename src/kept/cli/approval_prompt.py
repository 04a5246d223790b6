"""Asks at the terminal whether the agent may call a tool."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from kept.cli.output import echo, style

if TYPE_CHECKING:
    from kept.agent.events import ApprovalAsked

_YES = ("y", "yes")
_MAX_LINE_BYTES = 4_096


async def ask_at_terminal(asked: ApprovalAsked) -> bool:
    """Return whether the person allows a call. Anything but yes, also no answer in time, is no."""
    from kept.agent.approvals import describe_approval

    echo(style(describe_approval(asked), err=True, bold=True), err=True)
    echo("Allow it? [y/N] ", nl=False, err=True)
    try:
        async with asyncio.timeout(asked.timeout_s):
            line = await _read_line(sys.stdin.fileno())
    except TimeoutError:
        echo("No answer, so it is not allowed.", err=True)
        return False
    return line.strip().lower() in _YES


async def _read_line(descriptor: int) -> str:
    """Return the next line that is typed. Unlike `input`, this can be cancelled and does not block the event loop."""
    loop = asyncio.get_running_loop()
    is_readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if is_readable.done() else is_readable.set_result(None))
    try:
        await is_readable
        return os.read(descriptor, _MAX_LINE_BYTES).decode("utf-8", "replace")
    finally:
        loop.remove_reader(descriptor)
