"""Start a program as on a machine of its own: python -m benchmarks.team_chaos.team_machine NAME SECONDS work|COMMAND …

The machine has that name, and its clock is that many seconds ahead. ``work`` is `machine_worker`; anything else is
given to `kept`.
"""

from __future__ import annotations

import datetime as dt
import socket
import sys
import time

from kept.clock import SystemClock


def set_machine(name: str, ahead_s: float) -> None:
    """Give this process the name and the clock of a machine."""
    ahead, ahead_ns = dt.timedelta(seconds=ahead_s), round(ahead_s * 1_000_000_000)
    socket.gethostname = lambda: name
    SystemClock.now = lambda clock: dt.datetime.now().astimezone() + ahead  # type: ignore[method-assign]
    SystemClock.time_ns = lambda clock: time.time_ns() + ahead_ns  # type: ignore[method-assign]


def main(name: str, ahead_s: str, program: str, *arguments: str) -> None:
    set_machine(name, float(ahead_s))
    if program == "work":
        from benchmarks.team_chaos.machine_worker import work

        work(*arguments)
        return
    from kept.cli import main as run_kept

    sys.argv = ["kept", program, *arguments]
    run_kept()


if __name__ == "__main__":
    main(*sys.argv[1:])
