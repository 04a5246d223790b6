"""Measure the cost and the latency of a live index: python -m benchmarks.live [--notes N] [--idle SECONDS]

Idle: CPU seconds per minute of `kept watch` when nothing changes, for the leader and for a standby process. Edit: the
time from writing a note until a reader that does not sync finds it, and the CPU time that this costs the watcher.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.cases import kept
from benchmarks.corpus import write_notes
from kept import Memory

ROUNDS = 7


def main() -> None:
    chosen = arguments()
    with tempfile.TemporaryDirectory(prefix="kept-live-") as scratch:
        workspace, home = os.path.join(scratch, "notes"), os.path.join(scratch, "home")
        say(f"writing {chosen.notes:,} notes")
        write_notes(workspace, notes=chosen.notes)
        say("indexing")
        leader = start(workspace, home)
        standby = start(workspace, home)
        try:
            say(f"idle for {chosen.idle} s")
            idle = [cpu_while(chosen.idle, one.pid) * 60 / chosen.idle for one in (leader, standby)]
            say(f"{ROUNDS} edits")
            edits = [edit(workspace, home, leader.pid, number) for number in range(ROUNDS)]
        finally:
            for one in (leader, standby):
                one.send_signal(signal.SIGTERM)
                one.communicate()
    waits, costs = [wait for wait, _ in edits], [cost for _, cost in edits]
    print(f"{chosen.notes:,} notes, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    print(f"idle, leader:      {idle[0]:.3f} s CPU per minute")
    print(f"idle, standby:     {idle[1]:.3f} s CPU per minute")
    print(f"edit to hit:       median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s of {ROUNDS}")
    print(f"CPU per edit:      median {statistics.median(costs):.2f} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__.split("\n")[0])
    parser.add_argument("--notes", type=int, default=10_000)
    parser.add_argument("--idle", type=int, default=30, help="idle time to measure, in seconds")
    return parser.parse_args()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def start(workspace: str, home: str) -> subprocess.Popen[str]:
    """Start a watcher and wait until it is a leader with a current index, or a standby."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("KEPT_", "PYTHON"))}
    env |= {"KEPT_WORKSPACE": workspace, "KEPT_HOME": home}
    watcher = subprocess.Popen(kept("index", "--watch", "--json"), env=env, stdout=subprocess.PIPE, text=True)
    assert watcher.stdout is not None
    for line in watcher.stdout:
        event = json.loads(line)
        if event["event"] == "synced" or event["state"]["role"] == "standby":
            break
    time.sleep(2)  # the leader scans the folders once more when its watch is set up
    return watcher


def cpu_while(seconds: int, pid: int) -> float:
    before = cpu_of(pid)
    time.sleep(seconds)
    return cpu_of(pid) - before


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far, from /proc."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def edit(workspace: str, home: str, pid: int, number: int) -> tuple[float, float]:
    note = os.path.join(workspace, "memory", "000", f"note-{number:05}.md")
    before, started = cpu_of(pid), time.perf_counter()
    with open(note, "a", encoding="utf-8") as file:
        file.write(f"\n## Edit\n\nThe zyxwvut{number} was moved.\n")
    settings = {"memory_search.sync.on_search": False, "memory_search.provider": "none"}
    with Memory.open(workspace, home=home, settings=settings) as reader:
        while not reader.search(f"zyxwvut{number}"):
            time.sleep(0.01)
    waited = time.perf_counter() - started
    time.sleep(2)  # work that the watcher does afterwards is part of the cost
    return waited, cpu_of(pid) - before


if __name__ == "__main__":
    main()
