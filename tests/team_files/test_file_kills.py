"""Processes that are killed or that write at once: nothing is lost, and nothing is sent twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kept.team_files.file_tables import FileTables
from tests.support.command_forks import KEPT
from tests.support.file_hosts import FileHost, rows_of, settle
from tests.support.teams import Team

pytestmark = pytest.mark.kills

WRITER = """
import sys
from kept import Memory
with Memory.open() as memory:
    for number in range(int(sys.argv[2])):
        memory.add(f"Line {number} of {sys.argv[1]}.", again=True)
"""


def run_killed(action: Callable[[], object]) -> None:
    """Run an action in a forked process that is expected to kill itself."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    assert os.WTERMSIG(status) == signal.SIGKILL


def kill_self(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_write_that_was_killed_is_sent_once(tmp_path: Path, team: Team, is_committed: bool) -> None:
    ada, bo = FileHost(tmp_path, team, "ada"), FileHost(tmp_path, team, "bo")
    with ada.memory() as memory:
        memory.add("Before the kill.")
    settle([ada, bo])

    def write() -> None:
        commit = FileTables.commit

        def killing(*args: object, **options: object) -> None:
            if is_committed:
                commit(*args, **options)  # type: ignore[arg-type]
            kill_self()

        FileTables.commit = killing  # type: ignore[method-assign, assignment]
        with ada.memory() as memory:
            memory.add("During the kill.")

    run_killed(write)
    assert ada.files.unsent()
    with ada.memory() as memory:
        memory.add("After the kill.")
    assert not ada.files.unsent()
    settle([bo, ada])
    assert ada.contents() == bo.contents() == rows_of(team)
    notes = b"".join(data for path, data in rows_of(team).items() if path.endswith(".md"))
    assert [notes.count(text) for text in (b"Before", b"During", b"After")] == [1, 1, 1]
    with bo.memory() as memory:
        assert len(memory.history.changes()) == 3


@pytest.mark.parametrize("files", [0, 1, 5, 9])
def test_a_pull_that_was_killed_goes_on(tmp_path: Path, team: Team, files: int) -> None:
    from kept.working_copy.file_placement import FilePlacement

    ada, bo = FileHost(tmp_path, team, "ada"), FileHost(tmp_path, team, "bo")
    for number in range(10):
        ada.write(f"memory/note{number}.md", f"note {number}\n")
    settle([ada, bo])
    for number in range(10):
        ada.write(f"memory/note{number}.md", f"note {number}\n\nmore by ada\n")
    ada.run()
    bo.write("memory/note3.md", "first by bo\n\nnote 3\n")

    def pull() -> None:
        put, count = FilePlacement.put, 0

        def killing(*args: object, **options: object) -> None:
            nonlocal count
            if count == files:
                kill_self()
            count += 1
            put(*args, **options)  # type: ignore[arg-type]

        FilePlacement.put = killing  # type: ignore[method-assign, assignment]
        bo.run()

    run_killed(pull)
    settle([bo, ada])
    assert ada.contents() == bo.contents() == rows_of(team)
    assert bo.read("memory/note3.md") == "first by bo\n\nnote 3\n\nmore by ada\n"
    assert bo.read("memory/note9.md") == "note 9\n\nmore by ada\n"


def test_three_machines_write_to_one_daily_note_at_once(tmp_path: Path, team: Team) -> None:
    hosts = [FileHost(tmp_path, team, name) for name in ("ada", "bo", "cy")]
    settle(hosts)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, f"{host.name}{number}", "5"], env={**os.environ, **host.environment}
        )
        for host in hosts
        for number in range(2)
    ]
    assert [writer.wait(120) for writer in writers] == [0] * len(writers)
    settle(hosts)
    assert hosts[0].contents() == hosts[1].contents() == hosts[2].contents() == rows_of(team)
    (note,) = [path for path in rows_of(team) if path.startswith("memory/")]
    text = hosts[0].read(note)
    lines = [f"Line {line} of {host.name}{number}." for host in hosts for number in range(2) for line in range(5)]
    assert {line: text.count(line) for line in lines if text.count(line) != 1} == {}


def test_commands_killed_at_any_moment_lose_nothing(tmp_path: Path, team: Team) -> None:
    ada, bo = FileHost(tmp_path, team, "ada"), FileHost(tmp_path, team, "bo")
    settle([ada, bo])
    for number in range(12):
        environment = {**os.environ, **ada.environment}
        process = subprocess.Popen([KEPT, "add", f"Line {number:02}."], env=environment, stdout=subprocess.DEVNULL)
        try:
            process.wait(0.15 + number * 0.05)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    written = b"".join(data for path, data in ada.contents().items() if path.endswith(".md"))
    settle([ada, bo])
    assert ada.contents() == bo.contents() == rows_of(team)
    notes = b"".join(data for path, data in rows_of(team).items() if path.endswith(".md"))
    for number in range(12):
        line = f"Line {number:02}.".encode()
        assert notes.count(line) == written.count(line)


def test_connections_that_end_in_the_middle_lose_nothing(tmp_path: Path, team: Team) -> None:
    ada, bo = FileHost(tmp_path, team, "ada"), FileHost(tmp_path, team, "bo")
    settle([ada, bo])
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, host.name, "8"], env={**os.environ, **host.environment})
        for host in (ada, bo)
    ]
    while any(writer.poll() is None for writer in writers):
        team.end_connections()
        try:
            writers[0].wait(0.2)
        except subprocess.TimeoutExpired:
            pass
    assert [writer.wait(120) for writer in writers] == [0, 0]
    settle([ada, bo])
    assert ada.contents() == bo.contents() == rows_of(team)
    notes = b"".join(data for path, data in rows_of(team).items() if path.endswith(".md"))
    assert all(notes.count(f"Line {line} of {name}.".encode()) == 1 for name in ("ada", "bo") for line in range(8))
