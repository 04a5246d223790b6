"""After any edits of three machines, synchronised in any order, all have the same notes, and nothing is lost."""

import datetime as dt
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from kept.notes.note_writer import Addition, NoteWriter
from kept.notes.workspace import Workspace
from tests.support.sync_machines import connect_machines, settle

pytestmark = pytest.mark.slow

MACHINES = st.integers(0, 2)
NOTES = st.sampled_from(["MEMORY.md", "memory/list.md", "memory/x/plan.md"])
MINUTES = st.integers(0, 3)
DAY = "memory/2026-11-16.md"


class ThreeMachines(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kept-sync-"))
        self.machines = connect_machines(self.folder, "harbour", "skerry", "lantern")
        self.words = 0
        self.alive: set[str] = set()
        """Words that nobody removed on purpose."""

    def new_word(self) -> str:
        self.words += 1
        word = f"word{self.words:03d}"
        self.alive.add(word)
        return word

    def drop(self, text: str) -> None:
        self.alive -= {word for word in self.alive if word in text}

    # writing

    @rule(machine=MACHINES, minute=MINUTES)
    def add_to_the_day(self, machine, minute):
        now = dt.datetime(2026, 11, 16, 9, 30 + minute).astimezone()
        workspace = Workspace.at(str(self.machines[machine].workspace))
        NoteWriter(workspace, now, 1_000_000).commit(Addition(self.new_word(), "daily"))

    @rule(machine=MACHINES, note=NOTES)
    def append_a_line(self, machine, note):
        path = self.machines[machine].workspace / note
        before = path.read_text() if path.exists() else ""
        self.machines[machine].write(note, f"{before}- {self.new_word()}\n")

    @rule(machine=MACHINES, note=st.one_of(NOTES, st.just(DAY)), at=st.integers(0, 9), ends=st.booleans())
    def change_a_line(self, machine, note, at, ends):
        path = self.machines[machine].workspace / note
        lines = path.read_text().splitlines() if path.exists() else []
        changeable = [number for number, line in enumerate(lines) if "word" in line]
        if changeable:
            number = changeable[at % len(changeable)]
            self.drop(lines[number])
            lines[number] = f"- changed {self.new_word()}"
            path.write_text("\n".join(lines) + ("\n" if ends else ""))

    @rule(machine=MACHINES, note=NOTES)
    def remove_a_note(self, machine, note):
        path = self.machines[machine].workspace / note
        if path.exists():
            self.drop(path.read_text())
            path.unlink()

    @rule(machine=MACHINES, note=NOTES, other=NOTES)
    def rename_a_note(self, machine, note, other):
        path, target = self.machines[machine].workspace / note, self.machines[machine].workspace / other
        if path.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)

    # synchronising

    @rule(machine=MACHINES)
    def synchronise(self, machine):
        self.machines[machine].sync()

    def teardown(self):
        try:
            settle(self.machines)
            files = [machine.files() for machine in self.machines]
            assert files[0] == files[1] == files[2]
            text = b"\n".join(files[0].values()).decode("utf-8", "replace")
            assert {word for word in self.alive if word not in text} == set()
            assert "<<<<<<<" not in text
        finally:
            shutil.rmtree(self.folder)


TestThreeMachines = ThreeMachines.TestCase
TestThreeMachines.settings = settings(
    max_examples=7, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
