"""Measure the CPU time of session operations with a million messages: python -m benchmarks.sessions [COUNT]"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kept.sessions.entries import Message, format_entry
from kept.sessions.store import SessionStore

KEPT = str(Path(sys.executable).with_name("kept"))


def cpu_ms(action: Callable[[], object], *, times: int = 1) -> float:
    """Return the CPU time per call, of this process without its children."""
    before = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - before) / times * 1000


def command(home: str, *args: str) -> dict[str, float]:
    """Return CPU and wall time of a whole command, including the start of Python."""
    before, started = os.times(), time.monotonic()
    subprocess.run([KEPT, "--home", home, *args], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"cpuMs": round(cpu * 1000), "wallMs": round((time.monotonic() - started) * 1000)}


def main(count: int) -> None:
    figures: dict[str, object] = {"messages": count}
    with tempfile.TemporaryDirectory() as home:
        with SessionStore.open(home=home) as store:
            session = store.get_or_create("bench", "1")
            entry = store.append(session.id, Message.of("user", "What did we decide about the staging backups? " * 3))
            figures["append, short, cpuMs"] = round(
                cpu_ms(lambda: store.append(session.id, Message.of("user", "x" * 150)), times=500), 3
            )
            line = format_entry(entry)
            transcript = os.path.join(store.config.paths.folder, session.log)
            with open(transcript, "ab") as file:
                for _ in range(count // 1000):
                    file.write(line * 1000)
            figures["bytes"] = os.path.getsize(transcript)
            figures["catalogue rebuilt, cpuMs"] = round(cpu_ms(store.recent))
            figures["append, long, cpuMs"] = round(
                cpu_ms(lambda: store.append(session.id, Message.of("user", "x" * 150)), times=500), 3
            )
            figures["list, cpuMs"] = round(cpu_ms(store.recent, times=100), 3)
            figures["tail 20, cpuMs"] = round(cpu_ms(lambda: store.tail(session.id, 20), times=100), 3)
        figures["kept sessions list"] = command(home, "sessions", "list")
        figures["kept sessions show --tail 20"] = command(home, "sessions", "show", session.id, "--tail", "20")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
