"""`kept sync` between machines that share a repository: what travels, how it is merged, and when it is refused."""

import os

import pytest

from kept import Memory
from kept.base.clock import SystemClock
from kept.errors import SyncFailed, SyncRefused
from kept.notes.conflict_copies import find_original
from kept.sessions.forgotten_text import normalise_line
from tests.support.sync_machines import Machine, connect_machines, git, make_remote, settle


@pytest.fixture
def pair(tmp_path):
    return connect_machines(tmp_path, "desk", "road")


def forget_on(machine: Machine, *lines: str) -> None:
    machine.run_of._forgotten.add([], map(normalise_line, lines), SystemClock().now())


# merging


def test_a_note_travels_is_edited_and_is_removed(pair):
    desk, road = pair
    desk.write("memory/bees.md", "Ada keeps bees.\n")
    report = desk.sync()
    assert (report.committed, report.pushed) == (["memory/bees.md"], True)
    assert road.sync().received == ["memory/bees.md"]
    road.write("memory/bees.md", "Ada keeps bees.\nThey are calm.\n")
    road.sync()
    desk.sync()
    assert desk.read("memory/bees.md") == "Ada keeps bees.\nThey are calm.\n"
    (desk.workspace / "memory/bees.md").unlink()
    assert desk.sync().committed == ["memory/bees.md"]
    assert road.sync().received == ["memory/bees.md"]
    assert road.files() == {}
    assert not road.sync().pushed


def test_a_note_that_init_has_just_made_gives_way(pair):
    desk, road = pair
    desk.write("MEMORY.md", "# Memory\n\n- Ada was born on 10 December.\n")
    road.write("MEMORY.md", "# Memory\n")
    desk.sync()
    assert road.sync().conflicts == []
    assert not desk.sync().received
    assert desk.files() == road.files()
    assert "10 December" in desk.read("MEMORY.md")


def test_daily_notes_of_a_vault_are_known_by_its_own_pattern(tmp_path):
    pair = connect_machines(tmp_path, "desk", "road", workspace_layout="vault")
    for machine in pair:
        machine.write(".obsidian/daily-notes.json", '{"folder": "Log", "format": "DD.MM.YYYY"}')
        machine.write("Log/18.11.2026.md", "")
    settle(pair)
    for number, machine in enumerate(pair):
        machine.write("Log/18.11.2026.md", f"Line {number}\n")
    settle(pair)
    assert pair[0].files() == pair[1].files() | {}
    assert sorted(pair[0].read("Log/18.11.2026.md").split("\n")) == ["", "Line 0", "Line 1"]


@pytest.mark.parametrize("editor", [0, 1])
def test_an_edit_beats_a_deletion(pair, editor):
    pair[0].write("memory/plan.md", "First.\n")
    settle(pair)
    pair[editor].write("memory/plan.md", "First.\nSecond.\n")
    (pair[1 - editor].workspace / "memory/plan.md").unlink()
    settle(pair)
    assert pair[0].files() == pair[1].files() == {"memory/plan.md": b"First.\nSecond.\n"}


@pytest.mark.parametrize("path", ["memory/port.md", "MEMORY.md", "memory/" + "x" * 240 + ".md"])
def test_both_versions_of_the_same_line_are_kept_as_files(pair, path):
    desk, road = pair
    desk.write(path, "The port is 1.\n")
    settle(pair)
    desk.write(path, "The port is 2.\n")
    road.write(path, "The port is 3.\n")
    desk.sync()
    (copy,) = road.sync().conflicts
    assert find_original(copy) is not None
    assert (road.read(path), road.read(copy)) == ("The port is 3.\n", "The port is 2.\n")
    settle(pair)
    assert desk.files() == road.files()
    assert len(desk.files()) == 2


def test_notes_that_two_machines_had_before_are_joined(tmp_path):
    remote = make_remote(tmp_path)
    desk, road = Machine(tmp_path, "desk"), Machine(tmp_path, "road")
    desk.write("memory/a.md", "From the desk.\n")
    road.write("memory/a.md", "From the road.\n")
    road.write("memory/b.md", "Only on the road.\n")
    desk.connect(remote)
    assert len(road.connect(remote).conflicts) == 1
    desk.sync()
    assert desk.files() == road.files()
    assert sorted(desk.files().values()) == [b"From the desk.\n", b"From the road.\n", b"Only on the road.\n"]


@pytest.mark.parametrize("first", [0, 1])
def test_names_that_differ_in_case_or_stand_in_each_others_way_get_names_of_their_own(pair, first):
    desk, road = pair
    desk.write("memory/Otter.md", "Upper case.\n")
    desk.write("memory/shed.md", "A file.\n")
    road.write("memory/otter.md", "Lower case.\n")
    road.write("memory/shed.md/door.md", "In a folder.\n")
    for machine in (pair[first], pair[1 - first], pair[first]):
        machine.sync()
    assert desk.files() == road.files()
    assert len({path.casefold() for path in desk.files()}) == 4
    assert sorted(desk.files().values()) == [b"A file.\n", b"In a folder.\n", b"Lower case.\n", b"Upper case.\n"]


def test_a_note_that_changed_its_case_travels_under_its_new_name(pair):
    desk, road = pair
    desk.write("memory/otter.md", "Blue.\n")
    settle(pair)
    (desk.workspace / "memory/otter.md").rename(desk.workspace / "memory/Otter.md")
    settle(pair)
    assert road.files() == {"memory/Otter.md": b"Blue.\n"}


# what stays


def test_private_notes_texts_that_wait_for_review_settings_and_other_files_stay(pair):
    desk, _ = pair
    settings = {"review.agent_writes": "proposed"}
    with Memory.open(desk.workspace, home=desk.home, settings=settings, person="http:ada") as ada:
        assert ada.add("Ada is pregnant.", by_tool=True).is_proposed
    assert list((desk.workspace / ".kept/proposals").glob("*.json"))
    for path in (
        "memory/private/ada/pin.md .kept.yaml .keptignore .kept/proposals/x.json memory/.hidden.md "
        "memory/photo.png memory/talk.jsonl README.md memory/.kept-0.tmp"
    ).split():
        desk.write(path, "memory_search: {max_file_bytes: 20000000}\n" if path == ".kept.yaml" else "secret\n")
    desk.write(".gitignore", "memory/draft.md\n")
    desk.write("memory/draft.md", "Not yet.\n")
    os.symlink("/etc/passwd", desk.workspace / "memory/link.md")
    desk.write("memory/open.md", "Shared.\n")
    report = desk.sync()
    assert (report.committed, report.problems) == (["memory/open.md"], [])
    assert git(desk.workspace, "log", "--all", "-S", "pregnant", "--format=%h") == ""
    assert git(desk.workspace, "ls-tree", "-r", "--name-only", "origin/main") == "memory/open.md"


def test_a_private_note_that_a_person_committed_is_not_pushed(pair):
    desk, _ = pair
    desk.write("memory/private/ada/pin.md", "1234\n")
    git(desk.workspace, "add", "-f", "memory/private")
    git(desk.workspace, "commit", "-qm", "Oops")
    with pytest.raises(SyncRefused, match=r"memory/private/ada/pin\.md, which Kept does not send"):
        desk.sync()
    assert git(desk.workspace, "ls-remote", "origin") == ""


def commit_hostile(remote, folder) -> None:
    """Push a commit with names and kinds of files that no machine of Kept sends."""
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=b"evil\n")
    large = git(folder, "hash-object", "-w", "--stdin", stdin=b"x" * 30_000_000)
    entries = {
        ".kept/history/x": ("100644", blob),
        ".kept.yaml": ("100644", blob),
        ".keptignore": ("100644", blob),
        ".obsidian/plugins/x/main.js": ("100644", blob),
        "memory/.kept-1.tmp": ("100644", blob),
        "memory/private/ada/x.md": ("100644", blob),
        "Memory/Private/ada/x.md": ("100644", blob),
        "memory/link.md": ("120000", blob),
        "memory/sub.md": ("160000", "1" * 40),
        "memory/bell\x07.md": ("100644", blob),
        "memory/line\nbreak.md": ("100644", blob),
        "memory/SOUL\u200b.md": ("100644", blob),
        "memory/run.sh": ("100755", blob),
        "memory/large.md": ("100644", large),
        "hooks/post-checkout": ("100755", blob),
        "memory/good.md": ("100644", blob),
    }
    lines = "".join(f"{mode} {oid}\t{path}\0" for path, (mode, oid) in entries.items())
    git(folder, "read-tree", "--empty")
    git(folder, "update-index", "-z", "--index-info", stdin=lines.encode())
    commit = git(folder, "commit-tree", "-m", "evil", git(folder, "write-tree"))
    git(folder, "push", "-q", str(remote), f"{commit}:refs/heads/main")


def test_of_a_hostile_commit_only_plain_notes_are_written_and_the_rest_is_named(tmp_path):
    remote = make_remote(tmp_path)
    evil = make_remote(tmp_path, "evil.git")
    commit_hostile(remote, evil)
    desk = Machine(tmp_path, "desk")
    desk.write("memory/own.md", "Mine.\n")
    report = desk.connect(remote)
    assert desk.files() == {"memory/good.md": b"evil\n", "memory/own.md": b"Mine.\n"}
    assert os.listdir(desk.workspace / ".kept") == ["storage"]
    assert len(report.problems) == 15
    assert all(problem.path.isprintable() for problem in report.problems)
    before = git(remote, "rev-parse", "main")
    assert desk.sync().committed == []  # what was not written is not taken for removed
    assert git(remote, "rev-parse", "main") == before


def test_no_program_that_a_repository_names_is_run(pair, tmp_path):
    desk, road = pair
    road.write("memory/a.md", "One.\n")
    settle(pair)
    ran = tmp_path / "ran"
    for name in ("pre-push", "post-merge", "post-index-change", "reference-transaction", "post-checkout"):
        hook = desk.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    for key in ("filter.x.clean", "filter.x.smudge", "merge.x.driver", "diff.x.command", "core.fsmonitor"):
        git(desk.workspace, "config", key, f"touch {ran}")
    desk.write(".git/info/attributes", "* filter=x merge=x diff=x\n")
    road.write("memory/a.md", "Two.\n")
    road.sync()
    desk.write("memory/a.md", "Three.\n")
    assert len(desk.sync().conflicts) == 1
    assert not ran.exists()


def test_a_line_that_was_forgotten_does_not_come_back(pair):
    desk, road = pair
    forget_on(desk, "The safe opens with 4711 and a kick.")
    road.write("memory/safe.md", "The safe is blue.\n- The safe opens with 4711 and a kick.\n")
    road.write("memory/code.md", "The safe opens with 4711 and a kick.\n")
    road.sync()
    report = desk.sync()
    assert desk.files() == {"memory/safe.md": b"The safe is blue.\n"}
    assert {problem.path for problem in report.problems} == {"memory/safe.md", "memory/code.md"}
    road.sync()
    assert road.files() == desk.files()


# repositories of people


def test_other_files_of_a_vault_are_taken_and_never_sent(tmp_path):
    desk, road = connect_machines(tmp_path, "desk", "road", workspace_layout="vault")
    desk.write("photo.png", b"\x89one")
    desk.write("draft.png", b"\x89draft")
    desk.write(".obsidian/app.json", "{}")
    git(desk.workspace, "add", "photo.png", ".obsidian")
    git(desk.workspace, "commit", "-qm", "A photo")
    desk.write("Bees.md", "Bees.\n")
    assert desk.sync().committed == ["Bees.md"]
    report = road.sync()
    assert road.files() == {"Bees.md": b"Bees.\n", "photo.png": b"\x89one"}
    assert [problem.path for problem in report.problems] == [".obsidian/app.json"]
    road.write("photo.png", b"\x89edited")
    desk.write("photo.png", b"\x89two")
    git(desk.workspace, "commit", "-qam", "Another photo")
    desk.sync()
    assert [problem.path for problem in road.sync().problems] == ["photo.png"]
    assert road.read("Bees.md") == "Bees.\n"
    assert (road.workspace / "photo.png").read_bytes() == b"\x89edited"


def test_a_repository_that_somebody_works_in_is_left_alone(pair):
    desk, _ = pair
    desk.write("memory/a.md", "One.\n")
    desk.sync()
    desk.write("memory/b.md", "Staged.\n")
    git(desk.workspace, "add", "memory/b.md")
    with pytest.raises(SyncRefused, match="staged for a commit"):
        desk.sync()
    git(desk.workspace, "reset", "-q")
    desk.write(".git/MERGE_HEAD", "")
    with pytest.raises(SyncRefused, match="A merge, a rebase or the like is under way"):
        desk.sync()
    (desk.workspace / ".git/MERGE_HEAD").unlink()
    git(desk.workspace, "checkout", "-q", "--detach")
    with pytest.raises(SyncFailed, match="HEAD is not a symbolic ref"):
        desk.sync()
    assert git(desk.workspace, "ls-tree", "--name-only", "-r", "HEAD") == "memory/a.md"


def test_what_is_missing_is_said_in_one_line(tmp_path, monkeypatch):
    desk = Machine(tmp_path, "desk")
    with pytest.raises(SyncRefused, match="is no git repository"):
        desk.sync()
    git(desk.workspace, "init", "-q")
    with pytest.raises(SyncFailed, match="'origin' does not appear to be a git repository"):
        desk.sync()
    git(desk.workspace, "remote", "add", "origin", str(tmp_path / "nowhere.git"))
    with pytest.raises(SyncFailed, match=r"git fetch failed: fatal: .*nowhere\.git"):
        desk.sync()
    with pytest.raises(SyncFailed, match="remote origin already exists"):
        desk.connect(tmp_path / "elsewhere.git")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SyncRefused, match="git cannot be run"):
        desk.sync()


def test_a_rewritten_branch_is_refused_until_a_person_allows_it(pair):
    desk, road = pair
    desk.write("memory/a.md", "One.\n")
    settle(pair)
    git(road.workspace, "commit", "-q", "--amend", "-m", "Rewritten")
    git(road.workspace, "push", "-qf", "origin", "main")
    with pytest.raises(SyncRefused, match="rewritten"):
        desk.sync()
    git(desk.workspace, "update-ref", "-d", "refs/kept/remote")
    desk.sync()
    assert desk.files() == {"memory/a.md": b"One.\n"}


def test_a_workspace_that_lost_all_notes_does_not_remove_them_for_everybody(pair):
    desk, road = pair
    for number in range(30):
        desk.write(f"memory/{number}.md", f"Note {number}\n")
    settle(pair)
    for file in (desk.workspace / "memory").iterdir():
        file.unlink()
    with pytest.raises(SyncRefused, match="All 30 notes are gone here"):
        desk.sync()
    road.sync()
    assert len(road.files()) == 30
