"""Removing a text from the whole history."""

from __future__ import annotations

from pathlib import Path

from kept.notes.history.rewrite import scrub_history
from tests.support.histories import LONG_TEXT, assert_sound, changes_of, history_files
from tests.support.workspaces import open_memory, write_note


def all_bytes(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in history_files(tmp_path))


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
