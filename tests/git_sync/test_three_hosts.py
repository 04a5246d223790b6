"""After any edits of three machines in any order, all have the same bytes, and nothing that was written is lost."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from kept.testing import FrozenClock
from kept.workspace.notes import add_note
from kept.workspace.workspace import Workspace
from tests.support.sync_hosts import connect_team, settle

pytestmark = pytest.mark.slow

HOSTS = st.integers(0, 2)
NOTES = st.sampled_from(["MEMORY.md", "memory/list.md", "memory/x/plan.md"])
MINUTES = st.integers(0, 3)
DAY = "memory/2026-11-16.md"


class ThreeHosts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kept-team-"))
        self.hosts = connect_team(self.folder, "harbour", "skerry", "lantern")
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

    @rule(host=HOSTS, minute=MINUTES)
    def add_to_the_day(self, host, minute):
        now = dt.datetime(2026, 11, 16, 9, 30 + minute).astimezone()
        workspace = Workspace.at(str(self.hosts[host].workspace))
        add_note(workspace, self.new_word(), to="daily", clock=FrozenClock(now), max_bytes=1_000_000)

    @rule(host=HOSTS, note=NOTES)
    def append_a_line(self, host, note):
        path = self.hosts[host].workspace / note
        before = path.read_text() if path.exists() else ""
        self.hosts[host].write(note, f"{before}- {self.new_word()}\n")

    @rule(host=HOSTS, note=st.one_of(NOTES, st.just(DAY)), at=st.integers(0, 9), ends=st.booleans())
    def change_a_line(self, host, note, at, ends):
        path = self.hosts[host].workspace / note
        lines = path.read_text().splitlines() if path.exists() else []
        changeable = [number for number, line in enumerate(lines) if "word" in line]
        if changeable:
            number = changeable[at % len(changeable)]
            self.drop(lines[number])
            lines[number] = f"- changed {self.new_word()}"
            path.write_text("\n".join(lines) + ("\n" if ends else ""))

    @rule(host=HOSTS, note=NOTES)
    def remove_a_note(self, host, note):
        path = self.hosts[host].workspace / note
        if path.exists():
            self.drop(path.read_text())
            path.unlink()

    @rule(host=HOSTS, note=NOTES, other=NOTES)
    def rename_a_note(self, host, note, other):
        path, target = self.hosts[host].workspace / note, self.hosts[host].workspace / other
        if path.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)

    @rule(host=HOSTS)
    def attach_a_file(self, host):
        self.hosts[host].write("memory/photo.bin", b"\0" + self.new_word().encode())
        old = next(iter(word for word in sorted(self.alive) if word in getattr(self, "attached", "")), "")
        self.drop(old)
        self.attached = f"word{self.words:03d}"

    # synchronising

    @rule(host=HOSTS)
    def synchronise(self, host):
        self.hosts[host].run()

    def teardown(self):
        try:
            settle(self.hosts)
            files = [host.files() for host in self.hosts]
            assert files[0] == files[1] == files[2]
            text = b"\n".join(files[0].values()).decode("utf-8", "replace")
            assert {word for word in self.alive if word not in text} == set()
            assert "<<<<<<<" not in text
        finally:
            shutil.rmtree(self.folder)


TestThreeHosts = ThreeHosts.TestCase
TestThreeHosts.settings = settings(
    max_examples=7,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
