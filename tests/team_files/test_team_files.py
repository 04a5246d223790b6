"""Files of a team in PostgreSQL: folders of several machines are copies of the rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kept.errors import ConfigError, GitSyncRefused
from kept.team_files.write_through import take_notices
from tests.support.file_hosts import FileHost, rows_of, settle
from tests.support.teams import Team


def make_hosts(tmp_path: Path, team: Team, *names: str) -> list[FileHost]:
    return [FileHost(tmp_path, team, name) for name in names]


def test_a_write_is_in_the_database_before_the_call_returns(tmp_path: Path, team: Team) -> None:
    (ada,) = make_hosts(tmp_path, team, "ada")
    with ada.memory() as memory:
        written = memory.add("The staging port is 5433.")
    assert b"5433" in rows_of(team)[written.path]
    assert not ada.files.unsent()
    assert rows_of(team) == ada.contents()


def test_a_new_machine_gets_everything_and_finds_it(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    with ada.memory() as memory:
        memory.add("The staging port is 5433.")
        memory.add("Ada likes tea.", to="memory")
    with bo.memory() as memory:
        assert "5433" in memory.search("staging port").hits[0].snippet
        assert [change.kind for change in memory.history.changes()] == ["add", "add"]
    settle([ada, bo])
    assert ada.contents() == bo.contents() == rows_of(team)


def test_a_change_can_be_taken_back_on_another_machine(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    with ada.memory() as memory:
        memory.add("First fact of all.", to="memory")
        memory.add("Second fact of all.", to="memory")
    bo.run()
    with bo.memory() as memory:
        memory.history.undo()
    ada.run()
    assert "First" in ada.read("MEMORY.md")
    assert "Second" not in ada.read("MEMORY.md")


def test_both_edits_of_a_note_stay(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    ada.write("memory/plan.md", "one\n\ntwo\n\nthree\n")
    settle([ada, bo])
    ada.write("memory/plan.md", "ONE\n\ntwo\n\nthree\n")
    bo.write("memory/plan.md", "one\n\ntwo\n\nTHREE\n")
    settle([ada, bo])
    assert ada.read("memory/plan.md") == bo.read("memory/plan.md") == "ONE\n\ntwo\n\nTHREE\n"


def test_the_same_lines_changed_on_both_stand_in_two_versions(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    ada.write("memory/plan.md", "port 1\n")
    settle([ada, bo])
    ada.write("memory/plan.md", "port 2\n")
    bo.write("memory/plan.md", "port 3\n")
    ada.run()
    report = bo.run()
    ada.run()
    assert report.conflicts == ["memory/plan.md"]
    assert "port 2" in ada.read("memory/plan.md")
    assert "port 3" in ada.read("memory/plan.md")
    assert ada.contents() == bo.contents()


def test_a_picture_changed_on_both_becomes_two(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    ada.write("memory/photo.png", b"\0one")
    settle([ada, bo])
    ada.write("memory/photo.png", b"\0two")
    bo.write("memory/photo.png", b"\0three")
    settle([ada, bo])
    assert ada.contents() == bo.contents()
    assert {b"\0two", b"\0three"} <= set(ada.contents().values())


def test_a_removal_travels_and_a_change_wins_over_it(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    ada.write("memory/old.md", "old\n")
    ada.write("memory/both.md", "both\n")
    settle([ada, bo])
    (ada.workspace / "memory/old.md").unlink()
    (ada.workspace / "memory/both.md").unlink()
    bo.write("memory/both.md", "both, changed\n")
    settle([ada, bo])
    assert not (bo.workspace / "memory/old.md").exists()
    assert ada.read("memory/both.md") == "both, changed\n"
    ada.write("memory/old.md", "old again\n")
    settle([ada, bo])
    assert bo.read("memory/old.md") == "old again\n"


def test_removing_most_files_needs_consent(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    for number in range(30):
        ada.write(f"memory/note{number}.md", f"note {number}\n")
    settle([ada, bo])
    for file in (ada.workspace / "memory").iterdir():
        file.unlink()
    with pytest.raises(GitSyncRefused, match="30 of 30 files are gone here"):
        ada.run()
    bo.run()
    assert len(bo.contents()) >= 30
    ada.run(remove_many=True)
    bo.run()
    assert not [path for path in bo.contents() if path.startswith("memory/")]


def test_an_empty_folder_with_the_same_home_gets_everything_back(tmp_path: Path, team: Team) -> None:
    (ada,) = make_hosts(tmp_path, team, "ada")
    with ada.memory() as memory:
        memory.add("The staging port is 5433.")
    before = ada.contents()
    os.rename(ada.workspace, tmp_path / "lost")
    ada.workspace.mkdir()
    ada.run()
    assert ada.contents() == before
    with ada.memory() as memory:
        memory.add("Another fact entirely.")
        assert len(memory.history.changes()) == 2
    assert ada.contents() == rows_of(team)


def test_a_folder_that_lost_its_state_loses_and_doubles_nothing(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    ada.write("memory/a.md", "one\n")
    ada.write("memory/b.md", "two\n")
    settle([ada, bo])
    bo.write("memory/a.md", "one\n\nmore by bo\n")
    bo.run()
    os.unlink(ada.files.state.path)
    ada.write("memory/c.md", "three\n")
    settle([ada, bo])
    assert ada.read("memory/a.md") == "one\n\nmore by bo\n"
    assert bo.read("memory/c.md") == "three\n"
    assert ada.contents() == bo.contents()


def test_a_proposal_is_decided_on_another_machine(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    with ada.memory() as memory:
        memory.add("The tests run at night.", only_propose=True)
    bo.run()
    with bo.memory() as memory:
        (item,) = memory.review.list().items
        memory.review.accept(item.id)
    ada.run()
    assert (take_notices(), ada.files.unsent()) == ([], [])
    with ada.memory() as memory:
        assert memory.review.count() == 0
    assert any(b"The tests run at night." in data for path, data in ada.contents().items() if path.endswith(".md"))


def test_a_listed_write_is_rejected_on_another_machine(tmp_path: Path, team: Team) -> None:
    settings = {"review.agent_writes": "listed"}
    ada, bo = FileHost(tmp_path, team, "ada", **settings), FileHost(tmp_path, team, "bo", **settings)
    with ada.memory() as memory:
        memory.add("The moon is cheese.", by_tool=True)
    bo.run()
    with bo.memory() as memory:
        (item,) = memory.review.list().items
        memory.review.reject(item.id)
    ada.run()
    notes = [data for path, data in ada.contents().items() if path.endswith(".md")]
    assert not any(b"cheese" in data for data in notes)


HOSTILE = [
    "../outside.md",
    "/etc/kept.md",
    "memory/../../outside.md",
    ".git/config",
    ".env",
    ".kept/copy/state.sqlite",
    ".kept/history/changes/x.jsonl",
    "memory/" + "x" * 300 + ".md",
    "memory/large.md",
    "memory/link/planted.md",
    "memory/bell\x07.md",
    "memory/Case.md",
    "memory/case.md",
]


def test_hostile_rows_change_nothing_outside_and_are_reported(tmp_path: Path, team: Team) -> None:
    ada = FileHost(tmp_path, team, "ada", **{"sync.database.max_file_bytes": 1_000_000})
    ada.run()
    (ada.workspace / "memory").mkdir(exist_ok=True)
    os.symlink(tmp_path, ada.workspace / "memory" / "link")
    with team.database.writing() as connection:
        for number, path in enumerate(HOSTILE):
            content = b"x" * 11_000_000 if path.endswith("large.md") else b"planted"
            connection.execute(
                "INSERT INTO files (workspace, path, version, seq, sha256, content, host)"
                " VALUES (1, %s, 1, %s, encode(sha256(%s), 'hex'), %s, 'evil')",
                [path, number + 1, content, content],
            )
        connection.execute(
            "INSERT INTO grown_files VALUES (1, '.kept/history/changes/../../../x.jsonl', 1, 1, 99, 'evil')"
        )
        connection.execute("UPDATE file_workspaces SET seq = 100")
    report = ada.run()
    outside = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in outside if "outside" in path or "planted" in path or path.endswith("x.jsonl")]
    named = {problem.path for problem in report.problems}
    assert {"../outside.md", "/etc/kept.md", ".git/config", "memory/large.md"} <= named
    assert ada.read("memory/Case.md") == ada.read("memory/case.md") == "planted"
    assert "\x07" not in "".join(named)


def test_a_damaged_row_is_not_taken_and_is_repaired_from_a_folder(tmp_path: Path, team: Team) -> None:
    from kept.doctor import examine, repair

    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    ada.write("memory/a.md", "one\n")
    ada.run()
    with team.database.writing() as connection:
        connection.execute("UPDATE files SET content = 'other' WHERE path = 'memory/a.md'")
    report = bo.run()
    assert not (bo.workspace / "memory/a.md").exists()
    assert any("SHA-256" in problem.reason for problem in report.problems)
    with ada.memory() as memory:
        checks = examine(memory)
        assert [check.ok for check in checks if check.name == "team files"] == [False]
        assert all(check.ok for check in repair(memory, checks) if check.name == "team files")
    bo.run()
    assert bo.read("memory/a.md") == "one\n"


def test_a_forgotten_text_is_gone_from_all_tables_and_does_not_come_back(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    with ada.memory() as memory:
        memory.add("The safe opens with 90210-4711-X.", to="memory")
        memory.add("Lunch is at noon.", to="memory")
    settle([ada, bo])
    # Bo is away with an edit of the same note that was not sent.
    bo.write("MEMORY.md", bo.read("MEMORY.md") + "- Bo was here.\n")
    with ada.memory() as memory:
        receipt = memory.forgetting.apply(memory.forgetting.plan("90210-4711-X"))
    assert receipt.is_finished
    assert "files of the team" in receipt.removed
    settle([bo, ada])
    assert "Bo was here." in ada.read("MEMORY.md")
    assert "noon" in bo.read("MEMORY.md")
    for host in (ada, bo):
        assert not [path for path, data in host.contents().items() if b"90210-4711-X" in data]
    with team.database.reading() as connection:
        for table in ("files", "file_versions", "grown_files", "file_pieces"):
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            assert not [row for row in rows if b"90210-4711-X" in b" ".join(v for v in row if isinstance(v, bytes))]


def test_git_and_the_database_exclude_each_other(tmp_path: Path, team: Team) -> None:
    ada = FileHost(tmp_path, team, "ada", **{"sync.git.enabled": True})
    with pytest.raises(ConfigError, match="exclude each other"):
        ada.run()


def test_earlier_versions_are_dropped_when_every_machine_has_seen_later_ones(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    for number in range(5):
        ada.write("memory/a.md", f"version {number}\n")
        settle([ada, bo])
    ada.write("memory/b.md", "b\n")
    settle([ada, bo])
    with team.database.reading() as connection:
        (count,) = connection.execute("SELECT count(*) FROM file_versions").fetchone() or (None,)
    assert count is not None
    assert count <= 1


def test_a_machine_that_only_sends_keeps_what_it_began_with(tmp_path: Path, team: Team) -> None:
    ada, bo, cy = make_hosts(tmp_path, team, "ada", "bo", "cy")
    settle([ada, bo, cy])
    with bo.memory() as memory:
        memory.add("Bo wrote this first.", to="memory")
    for text in ("one", "two", "three"):
        for host in (ada, cy):
            host.run()
            host.write("MEMORY.md", f"{host.name} {text}\n\n{host.read('MEMORY.md')}")
            host.run()
    with team.database.reading() as connection:
        base = connection.execute("SELECT 1 FROM file_versions WHERE path = 'MEMORY.md' AND version = 1").fetchone()
    assert base is not None
    with bo.memory() as memory:
        memory.add("Bo wrote this later.", to="memory")
    settle([ada, bo, cy])
    text = ada.read("MEMORY.md")
    assert [text.count(line) for line in ("first.", "later.", "ada one", "cy three")] == [1, 1, 1, 1]


def test_a_dry_run_and_the_status_change_nothing(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    ada.write("memory/a.md", "one\n")
    ada.run()
    bo.write("memory/b.md", "two\n")
    report = bo.files.preview()
    assert (report.sent, report.received) == (["memory/b.md"], ["memory/a.md"])
    status = bo.files.status()
    assert status.changed == ("memory/b.md",)
    assert status.behind
    assert "memory/b.md" not in rows_of(team)
    assert not (bo.workspace / "memory/a.md").exists()


def test_a_damaged_state_is_made_anew(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    for number in range(200):
        ada.write(f"memory/note{number}.md", f"note {number}\n")
    settle([ada, bo])
    path = Path(bo.files.state.path)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    bo.write("memory/note7.md", "note 7\n\nmore by bo\n")
    with bo.memory() as memory:
        assert memory.search("more by bo").hits
    settle([bo, ada])
    assert ada.read("memory/note7.md") == "note 7\n\nmore by bo\n"
    assert ada.contents() == bo.contents() == rows_of(team)


@pytest.mark.slow
def test_an_empty_folder_gets_a_thousand_notes(tmp_path: Path, team: Team) -> None:
    ada, bo = make_hosts(tmp_path, team, "ada", "bo")
    for number in range(1_000):
        ada.write(f"memory/part{number % 20}/note{number}.md", f"note {number}\n" * 50)
    assert len(ada.run().sent) == 1_000
    report = bo.run()
    assert (len(report.received), report.problems) == (1_000, [])
    assert ada.contents() == bo.contents() == rows_of(team)
    assert not bo.run().received


def test_a_role_that_may_only_read_takes_the_files(tmp_path: Path, team: Team) -> None:
    from kept.postgres.role_rights import grant_rights

    ada = FileHost(tmp_path, team, "ada")
    ada.write("memory/a.md", "one\n")
    ada.run()
    role = f"reader_{team.schema}"
    with team.server.connect() as connection:
        connection.execute(f'CREATE ROLE "{role}" LOGIN')
    try:
        grant_rights(team.database, role, read_only=True)
        url = (team.settings.url or "").replace("postgres@", f"{role}@")
        bo = FileHost(tmp_path, team, "bo", **{"memory_search.store.url": url})
        assert bo.run().received == ["memory/a.md"]
        assert bo.read("memory/a.md") == "one\n"
    finally:
        from kept.postgres.open_database import close_databases

        close_databases()
        with team.server.connect() as connection:
            connection.execute(f'DROP OWNED BY "{role}"')
            connection.execute(f'DROP ROLE "{role}"')
