"""Random work on three machines: in the end all folders equal the rows, and no line that was written is missing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kept.team_files.file_tables import FileTables
from tests.support.file_hosts import FileHost, rows_of, settle
from tests.support.teams import Team

pytestmark = pytest.mark.slow

NAMES = ("ada", "bo", "cy")
NOTES = ("memory/list.md", "memory/2026-03-02.md", "memory/deep/plan.md")
hosts = st.sampled_from(range(len(NAMES)))


class Stopped(BaseException):
    """The process ends here, before or after the database accepted what it sent."""


class FilesMachine(RuleBasedStateMachine):
    team: Team

    def __init__(self) -> None:
        super().__init__()
        with self.team.database.writing() as connection:
            connection.execute("DELETE FROM file_workspaces")
        self.folder = tempfile.TemporaryDirectory()
        self.hosts = [FileHost(Path(self.folder.name), self.team, name) for name in NAMES]
        self.lines: list[str] = []

    def teardown(self) -> None:
        settle(self.hosts)
        rows = rows_of(self.team)
        text = b"\n".join(data for path, data in rows.items() if path.endswith(".md")).decode()
        for host in self.hosts:
            assert host.contents() == rows
            assert not host.files.unsent()
        assert [line for line in self.lines if line not in text] == []
        self.folder.cleanup()

    def new_line(self) -> str:
        self.lines.append(f"line-{len(self.lines):03}.")
        return self.lines[-1]

    @rule(host=hosts)
    def add(self, host: int) -> None:
        with self.hosts[host].memory() as memory:
            memory.add(f"Kept wrote {self.new_line()}", again=True)

    @rule(host=hosts, note=st.sampled_from(NOTES), at_start=st.booleans())
    def edit_by_hand(self, host: int, note: str, at_start: bool) -> None:
        file = self.hosts[host].workspace / note
        before = file.read_text() if file.exists() else ""
        line = f"By hand: {self.new_line()}\n"
        self.hosts[host].write(note, f"{line}\n{before}" if at_start else f"{before}\n{line}")

    @rule(host=hosts)
    def write_scratch(self, host: int) -> None:
        self.hosts[host].write("memory/scratch.md", f"scratch {len(self.lines)}\n")

    @rule(host=hosts)
    def remove_scratch(self, host: int) -> None:
        (self.hosts[host].workspace / "memory/scratch.md").unlink(missing_ok=True)

    @rule(host=hosts)
    def sync(self, host: int) -> None:
        self.hosts[host].run()

    @rule(host=hosts)
    def index(self, host: int) -> None:
        with self.hosts[host].memory() as memory:
            memory.sync()

    @rule(host=hosts, is_accepted=st.booleans(), adds=st.booleans())
    def stop_while_sending(self, host: int, is_accepted: bool, adds: bool) -> None:
        commit = FileTables.commit

        def stopping(*args: object, **options: object) -> None:
            if is_accepted:
                commit(*args, **options)  # type: ignore[arg-type]
            raise Stopped

        FileTables.commit = stopping  # type: ignore[method-assign, assignment]
        try:
            if adds:
                with self.hosts[host].memory() as memory:
                    memory.add(f"Stopped after {self.new_line()}", again=True)
            else:
                self.hosts[host].run()
        except Stopped:
            pass
        finally:
            FileTables.commit = commit  # type: ignore[method-assign]

    @rule(host=hosts)
    def lose_the_state(self, host: int) -> None:
        if os.path.exists(path := self.hosts[host].files.state.path):
            os.unlink(path)

    @invariant()
    def rows_are_sound(self) -> None:
        with self.team.database.reading() as connection:
            wrong = connection.execute(
                "SELECT path FROM files WHERE sha256 IS DISTINCT FROM encode(sha256(content), 'hex')"
            ).fetchall()
        assert wrong == []


def test_no_line_is_lost_whatever_three_machines_do(team: Team) -> None:
    machine = type("TeamFilesMachine", (FilesMachine,), {"team": team})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
