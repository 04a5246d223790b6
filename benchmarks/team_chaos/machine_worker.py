"""Writes notes and searches for them, until it is told to stop. What it did goes into files, since it may be killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kept import Memory
from kept.errors import KeptError

WORDS = [f"{kind}{number}" for kind in ("parrot", "harbour", "engine", "ledger") for number in range(40)]
NOTES_EACH = 8
ACKNOWLEDGED, REPORT = "acknowledged", "worker.jsonl"


class MachineWorker:
    def __init__(self, folder: Path, seed: str) -> None:
        self._folder = folder
        self._name = folder.name
        self._chance = random.Random(f"{self._name} {seed}")
        self._memory = Memory.open()
        self._root = Path(self._memory.workspace.root)
        self._stopped = False
        self._reason = ""
        """Why the last search was not complete."""
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def run(self) -> None:
        actions = (self.add, self.add, self.write, self.search, self.search, self.find_other, self.remove)
        while not self._stopped:
            self._record(self._chance.choice(actions))
            time.sleep(self._chance.uniform(0.05, 0.4))
        self._memory.close()

    def _record(self, action: Callable[[], str]) -> None:
        began = time.monotonic()
        failure: KeptError | None = None
        try:
            outcome = action()
        except KeptError as exc:
            outcome, failure = "failed", exc
        reason, self._reason = self._reason, ""
        line: dict[str, Any] = {"action": action.__name__, "outcome": outcome, "at": began, "until": time.monotonic()}
        if outcome == "degraded":
            line["reason"] = reason
        if failure is not None:
            line |= {"code": failure.code, "message": failure.message}
        append_line(self._folder / REPORT, json.dumps(line))

    # writing

    def add(self) -> str:
        """Add a line to the note of the day, which all machines share, or to a note of this one, and look for it."""
        mark = f"mark{os.urandom(6).hex()}"
        to = None if self._chance.random() < 0.5 else f"memory/{self._name}/list.md"
        self._memory.add(f"The {self._words(3)} has {mark}.", to=to, again=True)
        append_line(self._folder / ACKNOWLEDGED, mark)
        return self._find(mark)

    def write(self) -> str:
        """Write a note with headings, tags and links, as an editor does."""
        number = self._chance.randrange(NOTES_EACH)
        link = f"[[{self._chance.choice('abc')} note {self._chance.randrange(NOTES_EACH)}]]"
        parts = [
            f"# {self._name} note {number}\n\n{self._words(12)} #{self._chance.choice(WORDS)} {link}\n",
            *(f"## {self._words(1)}\n\n{self._words(25)}.\n" for _ in range(self._chance.randrange(1, 4))),
        ]
        path = self._note(number)
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text("\n".join(parts))
        temporary.replace(path)
        return "done"

    def remove(self) -> str:
        self._note(self._chance.randrange(NOTES_EACH)).unlink(missing_ok=True)
        return "done"

    def _note(self, number: int) -> Path:
        return self._root / "memory" / self._name / f"{number}.md"

    # searching

    def search(self) -> str:
        result = self._memory.search(self._words(2))
        self._reason = "".join(result.degraded[:1])
        return "degraded" if result.degraded else "done"

    def find_other(self) -> str:
        """Search for a line that this or another machine has written."""
        logs = [path for path in self._folder.parent.glob(f"*/{ACKNOWLEDGED}") if path.stat().st_size]
        return self._find(self._chance.choice(self._chance.choice(logs).read_text().split())) if logs else "done"

    def _find(self, mark: str) -> str:
        result = self._memory.search(mark)
        self._reason = "".join(result.degraded[:1])
        if result.degraded:
            return "degraded"
        passages = [passage for hit in result.hits for passage in (hit, *hit.further)]
        return "done" if any(mark in passage.snippet for passage in passages) else f"missed {mark}"

    def _words(self, count: int) -> str:
        return " ".join(self._chance.choices(WORDS, k=count))


def append_line(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(f"{line}\n")


def work(folder: str, seed: str) -> None:
    MachineWorker(Path(folder), seed).run()
