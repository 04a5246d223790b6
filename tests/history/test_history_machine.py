"""After any sequence of writes, edits by hand, undos, kills and syncs, the notes are what the history says."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from kept.app import open_sessions
from kept.config import load_config
from kept.errors import UndoConflict
from kept.tools.toolbox import Toolbox
from tests.support.note_machine import NAMES, NoteMachine

LINES = st.lists(st.sampled_from(["- one", "- two", "", "# Heading", "ข้าวผัด", "long " * 500]), max_size=5)
TEXTS = st.sampled_from(["- three", "A fact.", "Two\n\nparagraphs.", "many words " * 300])
STEPS = ("fsync", "write", "replace", "unlink", "close")


class History(NoteMachine):
    # writes

    @rule(name=NAMES, text=TEXTS)
    def add(self, name, text):
        self.memory.add(text, to=name)

    @rule(text=TEXTS)
    def write_as_an_agent(self, text):
        loaded = load_config(workspace=str(self.workspace), home=str(self.home), trust_workspace=True)
        sessions = open_sessions(loaded)
        outcome = Toolbox(self.memory, sessions).run("memory_write", {"text": text, "to": "memory/a.md"}, session="s1")
        assert not outcome.is_error
        sessions.close()

    @rule(name=NAMES, lines=LINES)
    def edit_by_hand(self, name, lines):
        self.rewrite(name, lines)

    # taking back

    @rule()
    def undo_the_last_change(self):
        """The last change of a note leads back to the bytes before it."""
        self.sync()
        change = next(iter(self.memory.history.changes()), None)
        if change is None or change.is_undone:
            return
        before = self.memory.history.read_version(change.before)
        self.memory.history.undo(change.id)
        assert self.notes().get(change.was or change.path) == before

    @rule(number=st.integers(0, 8))
    def undo_an_earlier_change(self, number):
        changes = [change for change in self.memory.history.changes() if not change.is_undone]
        before = self.notes()
        if number < len(changes):
            try:
                self.memory.history.undo(changes[number].id)
            except UndoConflict:
                assert self.notes() == before

    # kills

    @rule(name=NAMES, text=TEXTS, step=st.sampled_from(STEPS), count=st.integers(1, 6))
    def kill_a_write(self, name, text, step, count):
        self.kill(lambda memory: memory.add(text, to=name), step, count)

    @rule(step=st.sampled_from(STEPS), count=st.integers(1, 6))
    def kill_an_undo(self, step, count):
        self.kill(lambda memory: memory.history.undo(), step, count)

    @rule(name=NAMES, lines=LINES, step=st.sampled_from(STEPS), count=st.integers(1, 8))
    def kill_a_sync(self, name, lines, step, count):
        self.edit_by_hand(name, lines)
        self.kill(lambda memory: memory.sync(), step, count)


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
