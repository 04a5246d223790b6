"""kept sync, export and store drop, where the database of a team is the home of the files."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tests.support.commands import Outcome, run_kept
from tests.support.file_hosts import FileHost, rows_of
from tests.support.json_schema import check
from tests.support.teams import Team


@pytest.fixture
def hosts(tmp_path: Path, team: Team) -> tuple[FileHost, FileHost]:
    return FileHost(tmp_path, team, "ada"), FileHost(tmp_path, team, "bo")


def run(host: FileHost, *args: str | Path, **env: str) -> Outcome:
    return run_kept(*args, env={**os.environ, **host.environment, **env}, cwd=host.workspace)


def test_a_machine_finds_what_another_added(hosts):
    ada, bo = hosts
    assert run(ada, "add", "The staging port is 5433.").code == 0
    found = run(bo, "search", "staging port", "--json")
    assert "5433" in found.json["results"][0]["snippet"]
    reported = run(bo, "sync", "--json")
    check("teamFilesReport", reported.json)
    status = run(bo, "sync", "--status", "--json")
    check("teamFilesStatus", status.json)
    assert (status.json["changed"], status.json["behind"]) == ([], 0)


def test_a_sync_tells_what_it_did(hosts):
    ada, bo = hosts
    ada.write("memory/plan.md", "one\n")
    assert run(ada, "sync", "--dry-run").out.startswith("1 file would be sent (database, ")
    assert "memory/plan.md" in run(ada, "sync", "--status").out
    assert run(ada, "sync").out.startswith("1 file sent (database, ")
    assert run(bo, "sync").out.startswith("1 file received (database, ")
    assert run(bo, "sync").out.startswith("Nothing changed (database, ")
    refused = run(bo, "sync", "--init", "https://example.org/x.git")
    assert (refused.code, "not in git" in refused.err) == (2, True)


def test_a_write_during_an_outage_stays_and_is_sent_by_the_next_command(hosts, team):
    ada, bo = hosts
    away = {"KEPT_MEMORY_SEARCH__STORE__URL": "postgresql://postgres@/postgres?host=/nowhere"}
    run(ada, "sync")
    added = run(ada, "add", "Written during the outage.", **away)
    assert added.code == 0
    assert added.err.count("not sent to the database of the team yet") == 1
    assert not any(b"outage" in data for data in rows_of(team).values())
    assert run(ada, "add", "Written afterwards.").err == ""
    assert sum(data.count(b"during the outage") for path, data in rows_of(team).items() if path.endswith(".md")) == 1
    assert run(bo, "search", "outage", "--json").json["results"]
    assert not ada.files.unsent()


def test_an_export_from_an_empty_folder_has_the_same_files_and_can_be_restored(hosts, team, tmp_path):
    ada, bo = hosts
    run(ada, "add", "The staging port is 5433.")
    ada.write("memory/photo.png", b"\0picture")
    run(ada, "sync")
    for host in (ada, bo):
        assert run(host, "export", tmp_path / f"{host.name}.tar").code == 0
        assert run(host, "verify", tmp_path / f"{host.name}.tar").code == 0

    def notes(path: Path) -> dict[str, bytes]:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile() and "notes/" in member.name]
            return {member.name: archive.extractfile(member).read() for member in members}

    packed = notes(tmp_path / "ada.tar")
    assert packed == notes(tmp_path / "bo.tar")
    assert set(ada.contents().values()) <= set(packed.values())
    (ada.workspace / "memory/photo.png").unlink()
    assert run(ada, "sync").code == 0
    assert "memory/photo.png" not in rows_of(team)
    assert run(ada, "restore", tmp_path / "bo.tar").code == 0
    assert run(ada, "sync").code == 0
    run(bo, "sync")
    assert (bo.workspace / "memory/photo.png").read_bytes() == b"\0picture"


def test_a_schema_with_files_is_not_dropped_without_a_word_more(hosts, team):
    ada, _ = hosts
    run(ada, "add", "The staging port is 5433.")
    refused = run(ada, "store", "drop", "--yes", team.schema)
    assert refused.code == 2
    assert "only home of the files of main" in refused.err
    assert rows_of(team)
    assert run(ada, "store", "drop", "--yes", team.schema, "--with-files").code == 0
