"""python -m benchmarks.soak [--minutes 10] [--processes 20]

Run many processes of every kind on one home and print what went wrong. Nothing may be rebuilt, repaired or embedded
twice, nothing may end in a traceback, and the final answers must equal those of a freshly built index.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.soak_workers import WORDS
from kept import Memory
from kept.base.sqlite import file_number
from kept.testing import FrozenClock

FIRST = ("gateway", "watch", "mcp", "search", "add", "index", "command", "mcp")
REST = ("search", "add", "mcp", "command", "search", "index")
GRACE_S = 180.0
"""Time for a process to exit after its run, before it is terminated."""
QUESTIONS = 200


@dataclass
class Figures:
    operations: int = 0
    rebuilds: int = 0
    re_embedded: int = 0
    tracebacks: int = 0
    lock_errors: int = 0
    failures: int = 0
    unfinished: int = 0
    notes: int = 0
    chunks: int = 0
    answers: int = 0
    differing: int = 0
    """Answers that differ from those of a freshly built index."""
    details: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """Names of the figures that have to be zero, and are not."""
        must = "rebuilds re_embedded tracebacks lock_errors failures unfinished differing"
        return [name.replace("_", " ") for name in must.split() if getattr(self, name)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n\n")[2])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-soak-") as scratch:
        figures = soak(Path(scratch), seconds=chosen.minutes * 60, processes=chosen.processes)
    print(json.dumps(figures.__dict__, indent=2) if chosen.json else table(figures))
    sys.exit(1 if figures.faults else 0)


def soak(scratch: Path, *, seconds: float, processes: int) -> Figures:
    env = environment(scratch)
    workspace, home = Path(env["KEPT_WORKSPACE"]), Path(env["KEPT_HOME"])
    seed_notes(workspace)
    with Memory.open(workspace, home=home) as memory:
        memory.sync()
        index = memory.index_service.path
    before = file_number(index)
    figures = Figures()
    run_workers(scratch, env, seconds, processes, figures)
    examine(workspace, home, figures, replaced=file_number(index) != before)
    compare(scratch, workspace, home, figures)
    return figures


def environment(scratch: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KEPT_", "PYTHON"))}
    own = {"HOME": scratch, "KEPT_HOME": scratch / "home", "KEPT_WORKSPACE": scratch / "notes", "NO_COLOR": "1"}
    return {**kept, **{name: str(value) for name, value in own.items()}, "PYTHONPATH": str(Path(__file__).parents[1])}


def seed_notes(workspace: Path) -> None:
    for number, word in enumerate(WORDS):
        path = workspace / "memory" / f"{number:03}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        other = WORDS[number * 7 % len(WORDS)]
        path.write_text(f"# {word}\n\nThe {word} belongs to {other}.\n", encoding="utf-8")


def run_workers(scratch: Path, env: dict[str, str], seconds: float, processes: int, figures: Figures) -> None:
    kinds = islice(chain(FIRST, cycle(REST)), processes)
    running = []
    for seed, kind in enumerate(kinds):
        command = [sys.executable, "-m", "benchmarks.soak_workers", kind, str(seed), str(seconds)]
        errors = open(scratch / f"{kind}-{seed}.err", "w+", encoding="utf-8")  # noqa: SIM115
        running.append(
            (kind, subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True), errors)
        )
    deadline = time.monotonic() + seconds + GRACE_S
    for kind, process, errors in running:
        try:
            out, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()
            out, _ = process.communicate()
        errors.seek(0)
        take_in(kind, out, errors.read(), figures)
        errors.close()


def take_in(kind: str, out: str, errors: str, figures: Figures) -> None:
    """Add the report of one worker."""
    tracebacks = errors.count("Traceback (most recent call last)")
    figures.tracebacks += tracebacks
    if tracebacks:
        figures.details.append(f"{kind}: {errors[-2000:]}")
    try:
        report: dict[str, Any] = json.loads(out)
    except ValueError:
        figures.unfinished += 1
        figures.details.append(f"{kind} did not finish: {errors[-500:]}")
        return
    figures.operations += report["operations"]
    for name in ("lock_errors", "failures"):
        setattr(figures, name, getattr(figures, name) + len(report[name]))
    figures.rebuilds += len(report["rebuilt"])
    figures.details += [
        f"{report['name']}: {one}" for name in ("lock_errors", "failures", "rebuilt") for one in report[name]
    ]


def examine(workspace: Path, home: Path, figures: Figures, *, replaced: bool) -> None:
    """Read the figures of the home itself: a new index file or generation is a rebuild, reported or not."""
    with Memory.open(workspace, home=home) as memory:
        memory.sync()
        status = memory.status()
        with memory.index_service.inspecting() as (index, _):
            generations = index.generation_number()
    figures.rebuilds += generations + replaced
    figures.notes, figures.chunks = status.files, status.chunks
    if status.cache_entries:  # vectors of the built-in embedder are not cached: it is faster than the cache
        figures.re_embedded = sum(spent.texts for spent in status.spending) - status.cache_entries


def compare(scratch: Path, workspace: Path, home: Path, figures: Figures) -> None:
    """Compare the answers of this index with those of a new one from the same notes and transcripts."""
    fresh = scratch / "fresh"
    shutil.copytree(home / "agents/main/sessions", fresh / "agents/main/sessions")
    clock = FrozenClock()
    lists = []
    for place in (home, fresh):
        with Memory.open(workspace, home=place, clock=clock) as memory:
            memory.sync()
            found = (memory.search(f"{word} {WORDS[-number]}") for number, word in enumerate(WORDS[:QUESTIONS]))
            lists.append([[(hit.citation, hit.score) for hit in result] for result in found])
    figures.answers = len(lists[0])
    for number, (ours, theirs) in enumerate(zip(*lists, strict=True)):
        if ours != theirs:
            figures.differing += 1
            figures.details.append(f"question {number}: {ours} instead of {theirs}")


def table(figures: Figures) -> str:
    rows = [
        f"| {name.replace('_', ' ')} | {value:,} |" for name, value in figures.__dict__.items() if name != "details"
    ]
    verdict = f"Failed: {', '.join(figures.faults)}." if figures.faults else "Passed."
    return "\n".join(["| figure | |", "|---|--:|", *rows, "", verdict, *figures.details[:20]])


if __name__ == "__main__":
    main()
