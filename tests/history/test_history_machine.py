"""After any sequence of writes, edits by hand, undos, kills and syncs, the notes are what the history says."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kept import Memory
from kept.app import open_sessions
from kept.config import load_config
from kept.errors import KeptError, UndoConflict
from kept.history.history_check import check_history
from kept.testing import FakeEmbedder
from kept.tools.toolbox import Toolbox

NAMES = st.sampled_from(["MEMORY.md", "memory/a.md", "memory/b.md", "memory/x/c.md"])
LINES = st.lists(st.sampled_from(["- one", "- two", "", "# Heading", "ข้าวผัด", "long " * 500]), max_size=5)
TEXTS = st.sampled_from(["- three", "A fact.", "Two\n\nparagraphs.", "many words " * 300])
STEPS = ("fsync", "write", "replace", "unlink", "close")


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kept-history-"))
        self.workspace = self.folder / "workspace"
        (self.workspace / "memory" / "x").mkdir(parents=True)
        self.memory = self.open()
        self.is_synced = False

    def open(self) -> Memory:
        return Memory.open(self.workspace, home=self.folder / "home", embedder=FakeEmbedder())

    def notes(self) -> dict[str, bytes]:
        paths = [self.workspace / "MEMORY.md", *(self.workspace / "memory").rglob("*.md")]
        return {str(path.relative_to(self.workspace)): path.read_bytes() for path in paths if path.exists()}

    # writes

    @rule(name=NAMES, text=TEXTS)
    def add(self, name, text):
        self.memory.add(text, to=name)

    @rule(text=TEXTS)
    def write_as_an_agent(self, text):
        loaded = load_config(workspace=str(self.workspace), home=str(self.folder / "home"), trust_workspace=True)
        sessions = open_sessions(loaded)
        outcome = Toolbox(self.memory, sessions).run("memory_write", {"text": text, "to": "memory/a.md"}, session="s1")
        assert not outcome.is_error
        sessions.close()

    @rule(name=NAMES, lines=LINES)
    def edit_by_hand(self, name, lines):
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

    # taking back

    @rule()
    def undo_the_last_change(self):
        """The last change of a note leads back to the bytes before it."""
        self.sync()
        change = next(iter(self.memory.changes()), None)
        if change is None or change.is_undone:
            return
        before = self.memory.history.read_version(change.before)
        self.memory.undo(change.id)
        assert self.notes().get(change.was or change.path) == before

    @rule(number=st.integers(0, 8))
    def undo_an_earlier_change(self, number):
        changes = [change for change in self.memory.changes() if not change.is_undone]
        before = self.notes()
        if number < len(changes):
            try:
                self.memory.undo(changes[number].id)
            except UndoConflict:
                assert self.notes() == before

    # kills

    @rule(name=NAMES, text=TEXTS, step=st.sampled_from(STEPS), count=st.integers(1, 6))
    def kill_a_write(self, name, text, step, count):
        self.kill(lambda memory: memory.add(text, to=name), step, count)

    @rule(step=st.sampled_from(STEPS), count=st.integers(1, 6))
    def kill_an_undo(self, step, count):
        self.kill(lambda memory: memory.undo(), step, count)

    @rule(name=NAMES, lines=LINES, step=st.sampled_from(STEPS), count=st.integers(1, 8))
    def kill_a_sync(self, name, lines, step, count):
        self.edit_by_hand(name, lines)
        self.kill(lambda memory: memory.sync(), step, count)

    def kill(self, action, step, count):
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

    # checks

    @rule()
    def sync(self):
        report = self.memory.sync()
        assert not report.problems
        self.is_synced = True

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
        faults = [fault for fault in check_history(self.memory.history).faults if not fault.is_repairable]
        assert faults == []
        self.memory.close()
        shutil.rmtree(self.folder)


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
