"""When a long-running process scans its notes again: the kernel's signal, and how long it is trusted."""

from __future__ import annotations

import os

import pytest

from kept.indexing import index_handle
from kept.indexing.index_handle import RESCAN_AFTER_S, RESCAN_AT_LATEST_S, Freshness
from kept.workspace import scan
from kept.workspace.scan import ANY_FILE, ChangeSignal, are_local, scan_workspace
from kept.workspace.workspace import Workspace
from tests.support.workspaces import open_memory, write_note


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """Writes a table of mounts in which the temporary folder is on a file system of some kind."""

    def write(kind: str) -> None:
        device = tmp_path.stat().st_dev
        place = f"{os.major(device)}:{os.minor(device)}"
        table = tmp_path / "mountinfo"
        table.write_text(
            f"22 1 0:20 / /proc rw - proc proc rw\n"
            f"29 1 {place} / / rw,relatime shared:1 master:2 - {kind} /dev/disk rw\n"
        )
        monkeypatch.setattr(scan, "_MOUNTS", str(table))

    return write


@pytest.mark.parametrize(
    ("kind", "local"), [("ext4", True), ("tmpfs", True), ("nfs4", False), ("overlay", False), ("fuse.sshfs", False)]
)
def test_only_disks_of_this_machine_are_local(mounts, tmp_path, kind, local):
    mounts(kind)
    assert are_local([str(tmp_path)]) is local


def test_what_cannot_be_told_is_not_local(mounts, tmp_path):
    mounts("ext4")
    assert not are_local([str(tmp_path), str(tmp_path / "missing")])
    (tmp_path / "mountinfo").write_text("nonsense\n")
    assert not are_local([str(tmp_path)])
    (tmp_path / "mountinfo").unlink()
    assert not are_local([str(tmp_path)])


def test_a_folder_whose_parent_is_moved_is_noticed(tmp_path):
    folder = tmp_path / "above" / "workspace"
    folder.mkdir(parents=True)
    signal = ChangeSignal()
    signal.watch([str(folder)])
    assert signal.read_changes() == set()
    (tmp_path / "above").rename(tmp_path / "elsewhere")
    assert ANY_FILE in signal.read_changes()
    signal.close()


def scan_slowly(freshness: Freshness, folder: str, monkeypatch, *, takes_s: float) -> None:
    """Scan twice, as a process that keeps searching does. Each scan takes so much CPU time."""
    now = 0.0

    def scan():
        nonlocal now
        now += takes_s
        return scan_workspace(Workspace(folder), max_bytes=1_000)

    monkeypatch.setattr(index_handle.time, "thread_time", lambda: now)
    for _ in range(2):
        freshness.scan(scan)
        freshness.note_sync(ok=True)


@pytest.mark.parametrize(
    ("kind", "takes_s", "trusted_s"),
    [
        ("ext4", 0.001, RESCAN_AFTER_S),
        ("ext4", 0.5, 100.0),
        ("ext4", 60.0, RESCAN_AT_LATEST_S),
        ("nfs4", 0.5, RESCAN_AFTER_S),
    ],
)
def test_a_long_scan_of_a_local_disk_is_put_off(mounts, tmp_path, monkeypatch, kind, takes_s, trusted_s):
    mounts(kind)
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    freshness = Freshness()
    scan_slowly(freshness, str(tmp_path / "workspace"), monkeypatch, takes_s=takes_s)
    scanned = index_handle.time.monotonic()
    for later, fresh in ((trusted_s - 1, True), (trusted_s + 1, False)):
        monkeypatch.setattr(index_handle.time, "monotonic", lambda later=later: scanned + later)
        assert freshness.is_fresh() is fresh
    freshness.close()


def test_a_note_with_a_second_name_is_looked_at_often(mounts, tmp_path, monkeypatch):
    mounts("ext4")
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    os.link(tmp_path / "workspace" / "memory" / "a.md", tmp_path / "other-name.md")
    freshness = Freshness()
    scan_slowly(freshness, str(tmp_path / "workspace"), monkeypatch, takes_s=1.0)
    scanned = index_handle.time.monotonic()
    monkeypatch.setattr(index_handle.time, "monotonic", lambda: scanned + RESCAN_AFTER_S + 1)
    assert not freshness.is_fresh()
    freshness.close()


def test_every_change_is_seen_at_once_while_the_scan_is_put_off(mounts, tmp_path, monkeypatch):
    mounts("ext4")
    monkeypatch.setattr(index_handle, "_RESCAN_SHARE", 1e9)
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory:
        for _ in range(3):
            assert len(memory.search("heron").hits) == 1
        write_note(workspace, "memory/b.md", "Another heron.\n")
        assert len(memory.search("heron").hits) == 2
        write_note(workspace, "memory/new/folder/c.md", "A third heron.\n")
        assert len(memory.search("heron").hits) == 3
        write_note(workspace, "memory/new/folder/d.md", "A fourth heron.\n")
        (workspace / "memory" / "a.md").unlink()
        assert len(memory.search("heron").hits) == 3
        (workspace / "memory" / "new").rename(workspace / "memory" / "old")
        assert {hit.path for hit in memory.search("heron").hits} == {
            "memory/b.md",
            "memory/old/folder/c.md",
            "memory/old/folder/d.md",
        }
