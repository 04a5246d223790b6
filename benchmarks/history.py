"""A history of many changes: the CPU time of adding a note, of listing the last day, and of taking a change back.

    python -m benchmarks.history                  # 100,000 changes over a year
    python -m benchmarks.history --changes 10000

The history is made below a temporary folder. Each command runs in a process of its own, so imports count.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
import zlib
from pathlib import Path

from benchmarks.measure import median_cost
from kept.base.digest import digest_bytes
from kept.notes.history.note_history import MACHINE_ID, Author, NoteChange, format_change, utc_text, version_path
from kept.storage.contract import Write
from kept.storage.files.file_storage import FileStorage

KEPT = str(Path(sys.executable).with_name("kept"))
DAYS = 365
MACHINE = "benchmark"
COMMANDS = (
    ("add", "A fact."),
    ("history", "--since", "24h", "-n", "10000"),
    ("history", "--since", "24h", "-n", "10000", "--json"),
    ("history", "--diff", "-n", "5"),
    ("undo", "--dry-run"),
)


def make_history(workspace: Path, changes: int) -> None:
    """Write a log of appends: each day has a note of its own."""
    now = dt.datetime.now(dt.UTC)
    folder = workspace / ".kept/history/changes"
    folder.mkdir(parents=True, exist_ok=True)
    base: NoteChange | None = None
    content = b""
    versions: list[bytes] = []
    with (folder / f"{MACHINE}.jsonl").open("wb") as file:
        for number in range(changes):
            when = now - dt.timedelta(days=DAYS * (1 - (number + 1) / changes))
            path = f"memory/{when:%Y-%m-%d}.md"
            if base is None or base.path != path:
                base, content = None, b""
            text = f"- Fact {number} about something that happened on that day.\n"
            after = content + text.encode()
            before = base.after if base else None
            author = Author("main", "1f0e", "memory_write", client="benchmark")
            base = NoteChange(f"{number:016x}", utc_text(when), path, "add", before, digest_bytes(after), author)
            content = after
            versions.append(content)
            file.write(format_change(base))
    packed = {version_path(digest_bytes(version)): zlib.compress(version, 1) for version in versions}
    FileStorage(str(workspace)).commit([Write(path, data) for path, data in packed.items()])
    (workspace / path).parent.mkdir(exist_ok=True)
    (workspace / path).write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-history-") as scratch:
        home = Path(scratch) / "home"
        environment = {**os.environ, "KEPT_HOME": str(home)}
        median_cost([KEPT, "init"], env=environment, runs=1)
        make_history(home / "workspace", chosen.changes)
        (home / MACHINE_ID).write_text(f"{MACHINE}\n")
        size = sum(path.stat().st_size for path in (home / "workspace/.kept").rglob("*") if path.is_file())
        print(f"{chosen.changes:,} changes, {size:,} bytes")
        for command in COMMANDS:
            cost = median_cost([KEPT, *command], env=environment, runs=chosen.runs)
            print(f"kept {' '.join(command):<40} {cost.cpu_s:.3f} s CPU")


if __name__ == "__main__":
    main()
