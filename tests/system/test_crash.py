"""Killed at any moment, or out of space: the next run opens, verifies and converges, and no note is touched."""

import hashlib
import random
import subprocess
from pathlib import Path

import pytest

from kept import Memory
from kept.errors import StoreError
from kept.index.sqlite.integrity import find_damage
from kept.testing import FakeEmbedder
from tests.support.commands import start_python
from tests.support.files import largest_file
from tests.support.index_dump import dump_index
from tests.support.workspaces import index_path, open_memory, paths, write_note

pytestmark = pytest.mark.kills

SYNC = """
    import sys
    from kept import Memory
    from kept.config import load_config
    from kept.index.sources import IndexLimits
    from kept.testing import FakeEmbedder
    limits = IndexLimits(batch_files=5)  # many small transactions, so that a kill falls between and inside them
    config = load_config(workspace=sys.argv[1], home=sys.argv[2]).config
    memory = Memory(config, embedder=FakeEmbedder(model=sys.argv[3]), limits=limits)
    print("ready", flush=True)
    while True:
        memory.sync(force=True)
"""


def digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(folder.rglob("*.md")):
        whole.update(file.name.encode() + file.read_bytes())
    return whole.hexdigest()


def fresh(tmp_path: Path, model: str):
    options = {"home": tmp_path / "fresh", "embedder": FakeEmbedder(model=model)}
    with Memory.open(tmp_path / "workspace", **options) as memory:
        memory.sync(force=True)
        return dump_index(memory)


def test_kill_dash_nine_at_any_point_of_a_sync_loses_nothing(tmp_path):
    workspace = tmp_path / "workspace"
    for number in range(60):
        write_note(workspace, f"memory/{number}.md", f"# Note {number}\n\nparrot{number} " + "word " * number + "\n")
    before = digest(workspace)
    expected = fresh(tmp_path, "a")
    rng = random.Random(7)
    for _ in range(15):
        process = start_python(SYNC, workspace, tmp_path / "home", "a")
        process.stdout.readline()
        try:
            process.wait(timeout=rng.uniform(0.0, 0.25))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        with Memory.open(workspace, home=tmp_path / "home", embedder=FakeEmbedder(model="a")) as memory:
            memory.sync()
            assert dump_index(memory) == expected
            with memory.index_service.inspecting() as (index, _):
                assert find_damage(index) == []
    assert digest(workspace) == before


def test_a_disk_that_fills_up_leaves_notes_and_index_sound(tmp_path):  # the index is a file on this disk
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/first.md", "The parrot is green.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
    for number in range(200):
        write_note(
            workspace, f"memory/{number}.md", f"# Note {number}\n\nparrot{number} " + f"word{number} " * 200 + "\n"
        )
    before = digest(workspace)
    limit = index_path(tmp_path).stat().st_size + 150_000
    with largest_file(limit), open_memory(tmp_path) as memory:
        with pytest.raises(StoreError) as full:
            memory.sync()
        result = memory.search("green parrot", min_score=0.1)
    assert full.value.code == "disk_full"
    assert "memory/first.md" in paths(result)
    assert "could not be brought up to date" in str(result.degraded)
    with open_memory(tmp_path) as memory:
        assert memory.sync().indexed > 0
        assert memory.status().files == 201
        with memory.index_service.inspecting() as (index, _):
            assert find_damage(index) == []
    assert digest(workspace) == before


def test_a_note_that_changes_while_it_is_indexed_converges(tmp_path):
    """The file's state is taken from the handle that is read, so a change after that is seen by the next sync."""
    workspace = tmp_path / "workspace"
    note = write_note(workspace, "memory/a.md", "The parrot is green.\n")

    class Meddling(FakeEmbedder):
        def embed(self, texts, *, role):
            if role == "document" and "green" in texts[0]:
                note.write_text("The parrot is white.\n")
            return super().embed(texts, role=role)

    with open_memory(tmp_path, embedder=Meddling()) as memory:
        memory.sync()
        assert "white" in memory.search("parrot").hits[0].snippet


def test_a_rebuild_that_was_killed_leaves_nothing_behind(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        with memory.index_service.inspecting() as (index, _):
            index.begin_generation()
            assert count_unfinished(index) > 0
        write_note(tmp_path / "workspace", "memory/b.md", "The zeppelin is silver.\n")
        memory.sync()
        with memory.index_service.inspecting() as (index, _):
            assert count_unfinished(index) == 0


def count_unfinished(index) -> int:
    """Return how many tables there are of a generation that is not live."""
    return index.db.execute("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'next_%'").get


def test_the_lock_of_a_killed_process_is_gone_with_it(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
    script = """
        import sys
        from kept import Memory
        memory = Memory.open(sys.argv[1], home=sys.argv[2])
        with memory.index_service.inspecting() as (index, _), index.indexing(wait_s=1):
            print("locked", flush=True)
            sys.stdin.read()
    """
    holder = start_python(script, tmp_path / "workspace", tmp_path / "home")
    assert holder.stdout.readline() == "locked\n"
    holder.kill()
    holder.communicate()
    write_note(tmp_path / "workspace", "memory/b.md", "The zeppelin is silver.\n")
    with open_memory(tmp_path) as memory:
        assert memory.sync().indexed == 1
