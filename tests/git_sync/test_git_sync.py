"""`GitSync` on real repositories: what travels, what is merged, what is refused, and what a remote cannot do."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kept import Memory
from kept.clock import SystemClock
from kept.errors import GitSyncFailed, GitSyncRefused, LockBusy
from kept.testing import FakeEmbedder
from kept.workspace.conflict_copies import find_original
from kept.workspace.notes import add_note
from kept.workspace.workspace import Workspace
from tests.support.sync_hosts import SyncHost, connect_team, git, make_remote, settle


@pytest.fixture
def machines(tmp_path: Path) -> list[SyncHost]:
    return connect_team(tmp_path, "harbour", "skerry")


def every_byte(host: SyncHost) -> dict[str, bytes]:
    return {path: data for path, data in host.files().items() if path != ".gitignore"}


def open_memory(host: SyncHost) -> Memory:
    return Memory.open(host.workspace, home=host.home, embedder=FakeEmbedder())


# merging


def test_entries_of_a_day_are_joined_in_the_order_of_their_times(machines):
    harbour, skerry = machines
    harbour.write("memory/2026-11-16.md", "# 2026-11-16\n\n## 09:30\n\nTea.\n")
    settle(machines)
    harbour.write("memory/2026-11-16.md", "# 2026-11-16\n\n## 09:30\n\nGreen tea.\n\n## 11:00\n\nBread.\n")
    skerry.write("memory/2026-11-16.md", "# 2026-11-16\n\n## 09:30\n\nBlack tea.\n\n## 10:00\n\nMilk.\n")
    settle(machines)
    expected = (
        "# 2026-11-16\n\n## 09:30 (harbour)\n\nGreen tea.\n\n## 09:30 (skerry)\n\nBlack tea.\n\n## 10:00\n\nMilk.\n"
    )
    assert (
        harbour.read("memory/2026-11-16.md")
        == skerry.read("memory/2026-11-16.md")
        == f"{expected}\n## 11:00\n\nBread.\n"
    )


def test_lines_that_both_changed_stay_in_marks_that_status_names(machines):
    harbour, skerry = machines
    harbour.write("memory/port.md", "# Port\n\n- The port is 5432.\n- Ada runs it.\n")
    settle(machines)
    harbour.write("memory/port.md", "# Port\n\n- The port is 5433.\n- Ada runs it.\n- It restarts at night.\n")
    skerry.write("memory/port.md", "# The port\n\n- The port is 5434.\n- Ada runs it.\n")
    harbour.run()
    report = skerry.run()
    assert report.conflicts == ["memory/port.md"]
    versions = [
        "<!-- version of harbour -->",
        "- The port is 5433.",
        "<!-- version of skerry -->",
        "- The port is 5434.",
    ]
    lines = ["# The port", "", *versions, "<!-- end of versions -->", "- Ada runs it.", "- It restarts at night.", ""]
    assert skerry.read("memory/port.md") == "\n".join(lines)
    with open_memory(skerry) as memory:
        assert "line 3 begins versions of several machines" in memory.sync().problems[0].reason


def test_a_change_wins_over_a_removal_and_follows_a_rename(machines):
    harbour, skerry = machines
    lines = "".join(f"- line {number}\n" for number in range(9))
    for name in ("gone", "moved", "both"):
        harbour.write(f"memory/{name}.md", f"# {name}\n{lines}")
    settle(machines)
    (harbour.workspace / "memory/gone.md").unlink()
    (harbour.workspace / "memory/both.md").unlink()
    (harbour.workspace / "memory/moved.md").rename(harbour.workspace / "memory/new place.md")
    (skerry.workspace / "memory/both.md").unlink()
    skerry.write("memory/gone.md", f"# gone\n{lines}- kept\n")
    skerry.write("memory/moved.md", f"# moved\n{lines}- added meanwhile\n")
    settle(machines)
    assert every_byte(harbour) == every_byte(skerry)
    assert "- kept" in harbour.read("memory/gone.md")
    assert "- added meanwhile" in harbour.read("memory/new place.md")
    assert {path.name for path in (harbour.workspace / "memory").iterdir()} == {"gone.md", "new place.md"}


def test_files_that_are_no_text_become_conflict_copies(machines):
    harbour, skerry = machines
    harbour.write("memory/photo.png", b"\x89PNG\0harbour")
    skerry.write("memory/photo.png", b"\x89PNG\0skerry")
    settle(machines)
    copies = {path: data for path, data in every_byte(harbour).items() if "photo" in path}
    assert sorted(copies.values()) == [b"\x89PNG\0harbour", b"\x89PNG\0skerry"]
    assert [find_original(path) for path in copies if path != "memory/photo.png"] == ["memory/photo.png"]
    assert every_byte(harbour) == every_byte(skerry)


STRANGE = {
    "memory/with space.md": b"- a\n",
    "memory/new\nline.md": b"- a\n",
    'memory/"quoted".md': b"- a\n",
    "memory/:colon.md": b"- a\n",
    "memory/-dash.md": b"- a\n",
    "memory/Cafe\u0301.md": b"decomposed\n",
    "memory/Caf\u00e9.md": b"composed\n",
    "memory/CASE.md": b"upper\n",
    "memory/case.md": b"lower\n",
    "memory/crlf.md": b"a\r\nb\r\n",
    "memory/no end.md": b"a",
    "memory/empty.md": b"",
    "memory/utf16.md": "- ä\n".encode("utf-16"),
    "memory/latin.md": b"caf\xe9\n",
}


def test_every_byte_and_every_name_arrives_whatever_git_is_set_to(machines, monkeypatch, tmp_path):
    harbour, skerry = machines
    config = tmp_path / "gitconfig"
    config.write_text('[core]\n\tautocrlf = true\n[filter "evil"]\n\tclean = rev\n\tsmudge = rev\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    harbour.write("memory/.gitattributes", "* text=auto eol=crlf filter=evil\n")
    for path, data in STRANGE.items():
        harbour.write(path, data)
    os.chmod(harbour.workspace / "memory/case.md", 0o755)
    settle(machines)
    assert {path: data for path, data in every_byte(skerry).items() if path in STRANGE} == STRANGE
    harbour.write("memory/crlf.md", b"a\r\nb\r\nc\r\n")
    skerry.write("memory/crlf.md", b"x\r\na\r\nb\r\n")
    harbour.write("memory/utf16.md", "- ä\n- ö\n".encode("utf-16"))
    skerry.write("memory/utf16.md", "# T\n- ä\n".encode("utf-16"))
    (skerry.workspace / "memory/CASE.md").rename(skerry.workspace / "memory/Case.md")
    settle(machines)
    assert (harbour.workspace / "memory/crlf.md").read_bytes() == b"x\r\na\r\nb\r\nc\r\n"
    assert (harbour.workspace / "memory/utf16.md").read_bytes().decode("utf-16") == "# T\n- ä\n- ö\n"
    assert harbour.read("memory/Case.md") == "upper\n"
    assert not (harbour.workspace / "memory/CASE.md").exists()


# what the rest of Kept sees


def test_the_next_search_finds_what_was_received_and_the_history_says_from_where(machines):
    harbour, skerry = machines
    skerry.write("memory/old.md", "The walrus sleeps.\n")
    with open_memory(skerry) as memory:
        memory.sync()
    harbour.write("memory/bees.md", "Ada keeps bees at Skerry.\n")
    settle(machines)
    with open_memory(skerry) as memory:
        assert memory.sync().indexed == 1
        assert memory.search("bees").hits[0].path == "memory/bees.md"
        (change,) = memory.history.changes("memory/bees.md")
    assert (change.kind, change.why, change.by.client) == ("merge", "merged from harbour", "harbour")
    assert "Kept-Host: harbour" in git(harbour.workspace, "log", "--format=%B", "--", "memory/bees.md")
    assert git(skerry.workspace, "status", "--porcelain") == ""


def test_proposals_travel_and_history_private_notes_and_ignored_files_do_not(machines):
    harbour, skerry = machines
    item = (
        '{"version": 1, "id": "%s", "state": "%s", "time": "2026-11-16T09:30:00.000Z", "path": "MEMORY.md", "by": {},'
    )
    item += ' "why": "", "text": "T", "to": "memory", "replaces": null, "again": false, "project": null, "writes": [],'
    item += ' "changes": []}'
    harbour.write(".kept/proposals/0123456789abcdef.json", item % ("0123456789abcdef", "proposed"))
    harbour.write(".kept/proposals/fedcba9876543210.json", item % ("fedcba9876543210", "written"))
    harbour.write("memory/private/ada/diary.md", "Secret.\n")
    harbour.write("memory/drafts/a.md", "Draft.\n")
    harbour.write(".gitignore", "/memory/drafts/\n")
    harbour.write(".env", "TOKEN=x\n")
    harbour.write("memory/.obsidian/plugin.js", "evil()\n")
    with open_memory(harbour) as memory:
        memory.add("A fact.", to="memory")
    settle(machines)
    assert set(skerry.files()) == {"MEMORY.md", ".gitignore", ".kept/proposals/0123456789abcdef.json"}
    (skerry.workspace / ".kept/proposals/0123456789abcdef.json").unlink()
    settle(machines)
    assert (harbour.workspace / ".kept/proposals/fedcba9876543210.json").exists()
    assert not (harbour.workspace / ".kept/proposals/0123456789abcdef.json").exists()


def test_a_gitignore_of_a_person_stays_and_their_commits_get_no_history(tmp_path):
    remote = make_remote(tmp_path)
    host = SyncHost(tmp_path, "harbour")
    host.write(".gitignore", "/memory/drafts/\n")
    host.connect(remote)
    with open_memory(host) as memory:
        memory.add("A fact.", to="memory")
    assert host.read(".gitignore") == "/memory/drafts/\n"
    shown = git(host.workspace, "status", "--porcelain", "--untracked-files=all")
    assert "MEMORY.md" in shown
    assert ".kept/history" not in shown


# two at once


def test_machines_that_push_at_once_all_succeed(tmp_path):
    machines = connect_team(tmp_path, "harbour", "skerry", "lantern", "islet")
    for host in machines:
        host.write("memory/2026-11-16.md", f"# 2026-11-16\n\n## 09:30\n\nHello from {host.name}.\n")
    threads = [threading.Thread(target=host.run) for host in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle(machines)
    texts = {host.read("memory/2026-11-16.md") for host in machines}
    assert len(texts) == 1
    assert all(f"Hello from {host.name}." in next(iter(texts)) for host in machines)


def test_one_process_at_a_time_synchronises_a_workspace(machines):
    harbour = machines[0]
    with harbour.sync._exclusive(0), pytest.raises(LockBusy):
        harbour.run(wait_s=0)


# a person at work


def stage(host: SyncHost) -> None:
    git(host.workspace, "add", "memory/mine.md")


def switch(host: SyncHost) -> None:
    git(host.workspace, "switch", "--quiet", "--create", "idea")


def detach(host: SyncHost) -> None:
    git(host.workspace, "switch", "--quiet", "--detach")


def rebase(host: SyncHost) -> None:
    (host.workspace / ".git/rebase-merge").mkdir()


def lock_index(host: SyncHost) -> None:
    (host.workspace / ".git/index.lock").touch()


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (stage, "memory/mine.md is staged"),
        (switch, "on the branch 'idea'"),
        (detach, "without a branch"),
        (rebase, "A rebase is under way"),
        (lock_index, "index.lock"),
    ],
)
def test_a_person_at_work_in_the_repository_is_not_disturbed(machines, act, says):
    harbour = machines[0]
    harbour.write("memory/mine.md", "Mine.\n")
    act(harbour)
    before = git(harbour.workspace, "for-each-ref"), (harbour.workspace / ".git/index").read_bytes()
    with pytest.raises(GitSyncRefused, match=says):
        harbour.run()
    assert (git(harbour.workspace, "for-each-ref"), (harbour.workspace / ".git/index").read_bytes()) == before


def test_commits_and_other_files_of_a_person_stay_as_they_are(machines):
    harbour, skerry = machines
    harbour.write("memory/mine.md", "Mine.\n")
    harbour.write("script.sh", "echo hello\n")
    git(harbour.workspace, "add", ".")
    git(harbour.workspace, "commit", "--quiet", "-m", "By hand")
    harbour.write("script.sh", "echo changed\n")
    skerry.write("memory/hers.md", "Hers.\n")
    settle(machines)
    assert skerry.read("memory/mine.md") == "Mine.\n"
    assert "script.sh" in git(skerry.workspace, "ls-tree", "--name-only", "HEAD")
    assert not (skerry.workspace / "script.sh").exists()
    assert harbour.read("script.sh") == "echo changed\n"
    assert git(harbour.workspace, "status", "--porcelain") == "M script.sh"
    assert "By hand" in git(skerry.workspace, "log", "--format=%s")


def test_removing_most_files_for_everybody_needs_consent(machines):
    harbour, skerry = machines
    for number in range(30):
        harbour.write(f"memory/{number}.md", f"{number}\n")
    settle(machines)
    for number in range(30):
        (harbour.workspace / f"memory/{number}.md").unlink()
    with pytest.raises(GitSyncRefused, match="30 of 31 files are gone here"):
        harbour.run()
    harbour.run(remove_many=True)
    skerry.run()
    assert every_byte(skerry) == {}


# remotes


def test_a_remote_that_is_away_keeps_nothing_from_being_committed(machines, tmp_path):
    harbour, skerry = machines
    harbour.write("memory/a.md", "A.\n")
    (tmp_path / "team.git").rename(tmp_path / "away.git")
    with pytest.raises(GitSyncFailed, match="does not appear to be a git repository"):
        harbour.run()
    assert git(harbour.workspace, "status", "--porcelain") == ""
    (tmp_path / "away.git").rename(tmp_path / "team.git")
    settle(machines)
    assert skerry.read("memory/a.md") == "A.\n"


def test_a_rewritten_branch_is_merged_only_on_request(machines, tmp_path):
    harbour, skerry = machines
    harbour.write("memory/a.md", "A.\n")
    settle(machines)
    remote = tmp_path / "team.git"
    git(remote, "update-ref", "refs/heads/main", git(remote, "rev-list", "--max-parents=0", "main").split()[0])
    skerry.write("memory/b.md", "B.\n")
    with pytest.raises(GitSyncRefused, match="was rewritten"):
        skerry.run()
    skerry.run(merge_rewritten=True)
    harbour.run()
    assert every_byte(harbour) == every_byte(skerry) == {"memory/a.md": b"A.\n", "memory/b.md": b"B.\n"}


def evil_tree(remote: Path, *entries: tuple[str, str, bytes]) -> None:
    """Push a commit with files of any mode and name to a repository, on top of its branch."""
    lines = [b"commit refs/heads/main\ncommitter Eve <eve@example.com> 1700000000 +0000\ndata 4\nevil\n"]
    lines.append(b"from refs/heads/main^0\n")
    for mode, path, data in entries:
        if mode == "160000":
            lines.append(f"M 160000 {'1' * 40} {path}\n".encode())
        else:
            lines.append(f"M {mode} inline {path}\ndata {len(data)}\n".encode() + data + b"\n")
    git(remote, "fast-import", "--quiet", stdin=b"".join(lines) + b"\n")


def test_a_hostile_remote_writes_only_notes_into_the_workspace(machines, tmp_path):
    harbour, _ = machines
    remote = tmp_path / "team.git"
    outside = tmp_path / "outside.md"
    evil_tree(
        remote,
        ("120000", "memory/link.md", str(outside).encode()),
        ("120000", "memory/folder", str(tmp_path).encode()),
        ("160000", "memory/module.md", b""),
        ("100755", ".obsidian/plugins/evil.js", b"evil()"),
        ("100644", ".gitmodules", b'[submodule "x"]\n\tpath = memory/module.md\n\turl = ../evil\n'),
        ("100644", ".kept/history/changes/x.jsonl", b"{}\n"),
        ("100644", ".vscode/tasks.json", b"{}"),
        ("100644", "memory/.keptignore", b"*.tmp\n"),
        ("100644", "memory/good.md", b"Good.\n"),
        ("100644", f"memory/{'n' * 250}.md", b"Long.\n"),
    )
    ran = tmp_path / "ran"
    for name in (
        "post-checkout",
        "post-merge",
        "post-commit",
        "pre-push",
        "reference-transaction",
        "post-index-change",
    ):
        hook = harbour.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    report = harbour.run()
    assert set(harbour.files()) == {".gitignore", "memory/good.md", "memory/.keptignore", f"memory/{'n' * 250}.md"}
    assert {problem.path for problem in report.problems} == {"memory/folder", "memory/link.md", "memory/module.md"}
    assert not ran.exists()
    harbour.write("memory/good.md", "Better.\n")
    harbour.run()
    assert "memory/module.md" in git(remote, "ls-tree", "-r", "--name-only", "main")


def test_a_file_that_is_too_large_stays_where_it_is(machines, tmp_path):
    harbour, skerry = machines
    harbour.settings = {**harbour.settings, "sync.git.max_file_bytes": 2_000}
    evil_tree(tmp_path / "team.git", ("100644", "memory/huge.bin", b"x" * 3_000), ("100644", "memory/a.md", b"A.\n"))
    harbour.write("memory/mine.bin", b"y" * 3_000)
    report = harbour.run()
    assert [(problem.path, problem.reason.partition("; ")[2]) for problem in report.problems] == [
        ("memory/mine.bin", "not sent"),
        ("memory/huge.bin", "not taken from the remote"),
    ]
    assert not (harbour.workspace / "memory/huge.bin").exists()
    harbour.write("memory/a.md", "A2.\n")
    settle(machines)
    assert (skerry.workspace / "memory/huge.bin").stat().st_size == 3_000
    evil_tree(tmp_path / "team.git", ("100644", "memory/b.bin", os.urandom(200_000)))
    with pytest.raises(GitSyncFailed, match="sends more than 80,000 bytes"):
        harbour.run()


def test_a_commit_that_names_millions_of_files_is_refused(machines, tmp_path):
    harbour, _ = machines
    remote = tmp_path / "team.git"
    oid, mode, kind = git(remote, "hash-object", "-w", "--stdin", stdin=b"boom"), "100644", "blob"
    for _ in range(7):
        listing = "".join(f"{mode} {kind} {oid}\tmemory{number}\n" for number in range(10))
        oid, mode, kind = git(remote, "mktree", stdin=listing.encode()), "040000", "tree"
    commit = git(remote, "commit-tree", oid, "-p", "main", "-m", "bomb")
    git(remote, "update-ref", "refs/heads/main", commit)
    harbour.write("memory/a.md", "A.\n")
    with pytest.raises(GitSyncRefused, match="has more files than any team writes"):
        harbour.run()
    assert set(every_byte(harbour)) == {"memory/a.md"}


def test_a_link_in_the_workspace_is_never_written_through(machines, tmp_path):
    harbour, skerry = machines
    skerry.write("memory/deep/a.md", "A.\n")
    skerry.run()
    (tmp_path / "elsewhere").mkdir()
    (harbour.workspace / "memory/deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="symbolic links are not followed"):
        harbour.run()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (harbour.workspace / "memory/deep").unlink()
    settle(machines)
    assert every_byte(harbour) == every_byte(skerry)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("--upload-pack=touch x", "is not the address"),
        ("ext::sh -c 'touch evil'", "not allowed"),
        ("", "is not the address"),
    ],
)
def test_an_address_runs_nothing(tmp_path, url, says):
    host = SyncHost(tmp_path, "harbour")
    with pytest.raises((GitSyncRefused, GitSyncFailed), match=says):
        host.connect(url)
    assert not list(tmp_path.rglob("evil"))


def test_a_remote_that_does_not_answer_is_given_up(tmp_path):
    import socket

    host = SyncHost(tmp_path, "harbour", **{"sync.git.timeout_s": 1})
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(GitSyncFailed, match="longer than 1 second"):
        host.connect(f"git://127.0.0.1:{server.getsockname()[1]}/team.git")


def test_files_that_the_settings_let_in_later_are_written_and_not_taken_for_removed(machines):
    harbour, skerry = machines
    harbour.settings = {**harbour.settings, "sync.git.private": True}
    harbour.write("memory/private/ada.md", "Diary.\n")
    harbour.write("memory/large.bin", b"x" * 3_000)
    skerry.settings = {**skerry.settings, "sync.git.max_file_bytes": 2_000}
    settle(machines)
    assert every_byte(skerry) == {}
    harbour.write("memory/large.bin", b"small")
    settle(machines)
    assert every_byte(skerry) == {"memory/large.bin": b"small"}
    skerry.settings = {**skerry.settings, "sync.git.private": True}
    settle(machines)
    assert every_byte(skerry) == every_byte(harbour)
    assert harbour.read("memory/private/ada.md") == "Diary.\n"


def test_a_folder_takes_the_name_of_a_file(machines):
    harbour, skerry = machines
    harbour.write("memory/plan", b"a file")
    settle(machines)
    (harbour.workspace / "memory/plan").unlink()
    harbour.write("memory/plan/a.md", "A.\n")
    settle(machines)
    assert every_byte(skerry) == every_byte(harbour) == {"memory/plan/a.md": b"A.\n"}
    skerry.write("memory/other", b"a file")
    harbour.write("memory/other/b.md", "B.\n")
    harbour.run()
    with pytest.raises(GitSyncRefused, match="is in a folder here whose name is a file"):
        skerry.run()


def test_others_write_while_a_large_merge_is_written(machines):
    harbour, skerry = machines
    for number in range(150):
        harbour.write(f"memory/{number:03d}.md", f"- {number}\n")
    harbour.run()
    workspace = Workspace.at(str(skerry.workspace))

    def add_in_between(number: int, total: int, path: str) -> None:
        if number == 90:
            thread.start()

    def add() -> None:
        add_note(workspace, "From here.", to="memory/140.md", clock=SystemClock(), max_bytes=1_000_000)

    thread = threading.Thread(target=add)
    skerry.run(progress=add_in_between)
    thread.join()
    settle(machines)
    assert every_byte(skerry) == every_byte(harbour)
    assert all(line in harbour.read("memory/140.md") for line in ("- 140\n", "From here.\n"))


def test_a_name_that_is_no_text_is_reported(machines):
    (Path(os.fsdecode(os.fsencode(machines[0].workspace) + b"/memory/\xff.md"))).write_bytes(b"A.\n")
    assert [problem.reason for problem in machines[0].run().problems] == ["its name is not valid UTF-8"]


def test_locks_that_a_killed_git_left_are_removed(machines):
    harbour, skerry = machines
    for name in ("kept-index.lock", "refs/kept/remote.lock"):
        os.utime(harbour.write(f".git/{name}", b""), (0, 0))
    harbour.write("memory/a.md", "A.\n")
    settle(machines)
    assert skerry.read("memory/a.md") == "A.\n"


# connecting


def test_existing_notes_and_a_repository_with_another_history_are_joined(tmp_path):
    remote = make_remote(tmp_path)
    first, second = SyncHost(tmp_path, "harbour"), SyncHost(tmp_path, "skerry")
    first.write("MEMORY.md", "# Memory\n\n- Ada likes tea.\n")
    second.write("MEMORY.md", "# Memory\n\n- Bo likes coffee.\n")
    first.connect(remote)
    second.connect(remote)
    first.run()
    assert first.read("MEMORY.md") == "# Memory\n\n- Ada likes tea.\n- Bo likes coffee.\n"
    with pytest.raises(GitSyncRefused, match="The remote 'origin' of the repository is"):
        first.connect(tmp_path / "other.git")


def test_clones_that_lack_history_and_folders_inside_repositories_are_refused(tmp_path):
    first, second = connect_team(tmp_path, "harbour", "skerry")
    for number in range(3):
        first.write("memory/a.md", f"{number}\n")
        first.run()
    shallow = SyncHost(tmp_path, "lantern")
    (shallow.workspace / "memory").rmdir()
    shallow.workspace.rmdir()
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{tmp_path}/team.git", str(shallow.workspace))
    shallow.write("memory/b.md", "B.\n")
    shallow.run()  # the remote has not moved
    assert (second.run().pulled, second.read("memory/b.md")) == (["memory/a.md", "memory/b.md"], "B.\n")
    inner = SyncHost(first.workspace / "memory", "inner")
    with pytest.raises(GitSyncRefused, match="inside another git repository"):
        inner.connect(tmp_path / "team.git")
    other = make_remote(tmp_path, "other.git")
    git(other, "symbolic-ref", "HEAD", "refs/heads/trunk")
    git(first.workspace, "push", "--quiet", str(other), "main:trunk")
    with pytest.raises(GitSyncRefused, match=r"no branch 'main'\. It has: trunk"):
        SyncHost(tmp_path, "islet").connect(other)
