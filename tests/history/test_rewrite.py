"""Dropping old changes, and removing a text from the whole history."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from kept.digest import digest_bytes
from kept.history import rewrite
from kept.history.rewrite import prune_if_due, scrub_history
from kept.history.undo import select_by_id, undo_changes
from kept.workspace.change_recorder import Author
from tests.support.histories import LONG_TEXT, assert_sound, changes_of, history_files
from tests.support.workspaces import open_memory, write_note


class SetClock:
    """Clock that a test sets."""

    def __init__(self) -> None:
        self.moment = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)

    def now(self) -> dt.datetime:
        return self.moment

    def time_ns(self) -> int:
        return int(self.moment.timestamp() * 1e9)


def all_bytes(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in history_files(tmp_path))


def test_a_history_beyond_its_size_is_pruned_by_a_sync_and_later_changes_can_still_be_taken_back(tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite, "_GRACE_S", 0.0)
    clock = SetClock()
    with open_memory(tmp_path, clock=clock, settings={"history.max_bytes": 10_000}) as memory:
        for number in range(60):
            memory.add(f"Fact {number}. " + "word " * 100, to=f"memory/{number % 3}.md")
        assert len(all_bytes(tmp_path)) > 20_000
        memory.sync()
        clock.moment += dt.timedelta(days=1)
        memory.add("One more.")
        memory.sync()
        assert len(all_bytes(tmp_path)) < 12_000
        changes = changes_of(memory)
        assert 10 < len(changes) < 60
        assert_sound(memory.history)
        undo_changes(
            memory.history, select_by_id(memory.history, [changes[0].id]), author=Author(), max_bytes=10_000_000
        )
        assert_sound(memory.history)


def test_a_version_that_arrived_before_its_line_is_not_pruned(tmp_path, monkeypatch):
    with open_memory(tmp_path) as memory:
        digest = digest_bytes(b"From another machine.\n")
        memory.history.versions.put([b"From another machine.\n"])
        for grace, is_left in ((rewrite._GRACE_S, True), (0.0, False)):
            monkeypatch.setattr(rewrite, "_GRACE_S", grace)
            for number in range(6):
                memory.add(f"{grace} {number}.", to="memory/a.md")
            assert prune_if_due(memory.history, 1_000)
            assert (digest in memory.history.versions.digests()) is is_left


def test_a_text_is_removed_from_every_version_and_line(tmp_path):
    secret = "Tolkien-4711"
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/first.md", f"{LONG_TEXT}\nOnce {secret}.\n{LONG_TEXT}")
    with open_memory(tmp_path) as memory:
        memory.sync()
        memory.add("Harmless.", to="memory/other.md")
        memory.add(f"The word is {secret}.", to="memory/a.md", why=f"because of {secret}")
        memory.add("Later.", to="memory/a.md")
        write_note(workspace, "memory/first.md", "Gone.\n")
        memory.sync()
        before = changes_of(memory)
        count = scrub_history(memory.history, lambda text, path: text.replace(secret.encode(), b"[forgotten]"))
        assert count == 3
        history = memory.history
        after = changes_of(memory)
        assert [change.id for change in after] == [change.id for change in before]
        for change in after:
            for version in (change.before, change.after):
                assert secret.encode() not in (history.read_version(version) or b"")
            assert secret not in change.why
        assert after[0] == before[0], "what does not contain the text keeps its hashes"
        assert secret.encode() not in all_bytes(tmp_path)
        assert_sound(history)


def test_a_text_is_removed_from_the_histories_of_all_machines(tmp_path):
    with open_memory(tmp_path, home=tmp_path / "first") as memory:
        memory.add(f"The word is xyzzy. {LONG_TEXT}", to="memory/a.md")
    with open_memory(tmp_path, home=tmp_path / "second") as memory:
        memory.add("Later.", to="memory/a.md")
        hashes = {name for change in changes_of(memory) for name in (change.before, change.after) if name}
        scrub_history(memory.history, lambda text, path: text.replace(b"xyzzy", b""))
        stored = all_bytes(tmp_path)
        assert not any(name.encode() in stored for name in hashes)
        assert_sound(memory.history)
