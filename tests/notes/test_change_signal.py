"""When a long-running process scans its notes again: the kernel's signal, and how long it is trusted."""

import pytest

from kept.index import sources, workspace_index
from kept.index.workspace_index import RESCAN_AFTER_S, RESCAN_AT_LATEST_S, Freshness
from kept.notes.scan import ANY_FILE, ChangeSignal, scan_workspace
from kept.notes.workspace import Workspace
from tests.support.workspaces import open_memory, write_note


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
        return scan_workspace(Workspace.at(folder), max_bytes=1_000)

    monkeypatch.setattr(workspace_index.time, "thread_time", lambda: now)
    for _ in range(2):
        freshness.scan(scan)
        freshness.note_sync(ok=True)


@pytest.mark.parametrize(("takes_s", "trusted_s"), [(0.001, RESCAN_AFTER_S), (0.1, 20.0), (60.0, RESCAN_AT_LATEST_S)])
def test_a_long_scan_is_put_off(tmp_path, monkeypatch, takes_s, trusted_s):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    freshness = Freshness()
    scan_slowly(freshness, str(tmp_path / "workspace"), monkeypatch, takes_s=takes_s)
    scanned = workspace_index.time.monotonic()
    for later, fresh in ((trusted_s - 1, True), (trusted_s + 1, False)):
        monkeypatch.setattr(workspace_index.time, "monotonic", lambda later=later: scanned + later)
        assert freshness.is_fresh() is fresh
    freshness.close()


def test_every_change_is_seen_at_once_while_the_scan_is_put_off(tmp_path, monkeypatch):
    monkeypatch.setattr(workspace_index, "_RESCAN_SHARE", 1e9)
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


def test_a_search_looks_only_at_the_notes_that_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(workspace_index, "_RESCAN_SHARE", 1e9)
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory:
        for _ in range(3):
            memory.search("heron")
        listed = []
        monkeypatch.setattr(sources, "scan_workspace", lambda *args, **options: listed.append(1))
        memory.add("An otter swims by.")
        assert "otter" in memory.search("otter")[0].snippet
        write_note(workspace, "memory/a.md", "The stork stands still.\n")
        write_note(workspace, "memory/b.md", "A kingfisher dives.\n")
        assert memory.search("stork")[0].path == "memory/a.md"
        assert memory.search("kingfisher")[0].path == "memory/b.md"
        assert listed == []
        monkeypatch.undo()
        (workspace / "memory" / "b.md").unlink()
        assert "memory/b.md" not in {hit.path for hit in memory.search("kingfisher").hits}
