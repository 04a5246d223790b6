"""State machine of notes that people and programs change: rules and checks that several machines share."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kept import Memory
from kept.errors import KeptError
from kept.history.rewrite import check_history
from kept.testing import FakeEmbedder

NAMES = st.sampled_from(["MEMORY.md", "memory/a.md", "memory/b.md", "memory/x/c.md"])


class NoteMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kept-machine-"))
        self.workspace, self.home = self.folder / "workspace", self.folder / "home"
        (self.workspace / "memory" / "x").mkdir(parents=True)
        self.memory = self.open()
        self.is_synced = False

    def open(self) -> Memory:
        return Memory.open(self.workspace, home=self.home, embedder=FakeEmbedder())

    def notes(self) -> dict[str, bytes]:
        paths = [self.workspace / "MEMORY.md", *(self.workspace / "memory").rglob("*.md")]
        return {str(path.relative_to(self.workspace)): path.read_bytes() for path in paths if path.exists()}

    def rewrite(self, name: str, lines: list[str]) -> None:
        (self.workspace / name).write_text("\n".join(lines))
        self.is_synced = False

    @rule(name=NAMES)
    def remove_by_hand(self, name):
        if (self.workspace / name).exists():
            (self.workspace / name).unlink()
            self.is_synced = False

    @rule(name=NAMES, other=NAMES)
    def rename_by_hand(self, name, other):
        if (self.workspace / name).exists() and not (self.workspace / other).exists():
            (self.workspace / name).rename(self.workspace / other)
            self.is_synced = False

    @rule()
    def sync(self):
        report = self.memory.sync()
        assert not report.problems
        self.is_synced = True

    def kill(self, action: Callable[[Memory], object], step: str, count: int) -> None:
        """Run an action in a process that is killed when it makes a system call for the ``count``-th time."""
        self.memory.close()
        child = os.fork()
        if child == 0:
            calls = iter(range(count - 1))
            original = getattr(os, step)

            def call(*args, **kwargs):
                if next(calls, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **kwargs)

            try:
                memory = self.open()
                setattr(os, step, call)
                action(memory)
            except KeptError:
                pass
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        self.memory = self.open()
        self.is_synced = False

    @invariant()
    def notes_are_what_the_history_says(self):
        if not self.is_synced:
            return
        states: dict[str, str | None] = {}
        for change in reversed(list(self.memory.history.log.iter_newest())):
            states |= {change.was: None} if change.was else {}
            states[change.path] = change.after
        present = {path: hashlib.sha256(content).hexdigest() for path, content in self.notes().items()}
        assert {path: digest for path, digest in states.items() if digest} == present

    def teardown(self):
        self.sync()
        self.notes_are_what_the_history_says()
        self.check_at_the_end()
        assert check_history(self.memory.history).lost == 0
        self.memory.close()
        shutil.rmtree(self.folder)

    def check_at_the_end(self) -> None:
        """Check what else must hold, before the memory is closed."""
