"""Removing a text from the whole history."""

import subprocess
import sys

from tests.support.histories import LONG_TEXT, assert_sound, changes_of, history_files, versions_of
from tests.support.workspaces import open_memory, write_note


def test_a_text_is_removed_from_every_version_and_line(tmp_path):
    secret = "Tolkien-4711"
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/first.md", f"{LONG_TEXT}\n\nOnce {secret}.\n\n{LONG_TEXT}")
    with open_memory(tmp_path) as memory:
        memory.sync()
        memory.add("Harmless.", to="memory/other.md")
        memory.add(f"The word is {secret}.", to="memory/a.md", why=f"because of {secret}")
        memory.add("Later.", to="memory/a.md")
        write_note(workspace, "memory/first.md", "Gone.\n")
        memory.sync()
        before = changes_of(memory)
        memory.forgetting.apply(memory.forgetting.plan(secret))
        history = memory.history
        after = [change for change in changes_of(memory) if change.kind != "forget"]
        assert [change.id for change in after] == [change.id for change in before]
        assert not any(secret.encode() in data for _, data in versions_of(workspace))
        assert not any(secret in change.why for change in after)
        assert after[0] == before[0], "what does not contain the text keeps its hashes"
        assert_sound(history)


def test_a_text_is_removed_from_the_histories_of_all_machines(tmp_path):
    with open_memory(tmp_path, home=tmp_path / "first") as memory:
        memory.add(f"The word is xyzzy. {LONG_TEXT}", to="memory/a.md")
    with open_memory(tmp_path, home=tmp_path / "second") as memory:
        memory.add("Later.", to="memory/a.md")
        hashes = {name for change in changes_of(memory) for name in (change.before, change.after) if name}
        memory.forgetting.apply(memory.forgetting.plan("xyzzy"))
        stored = b"".join(path.read_bytes() for path in history_files(tmp_path))
        assert not any(name.encode() in stored for name in hashes)
        assert_sound(memory.history)


SCRUB = """
import resource, sys, zlib
from pathlib import Path
from kept.base.digest import digest_bytes
from kept.forgetting.needles import Needles
from kept.forgetting.old_versions import HistoryScrub
from kept.forgetting.plan import ForgetOrder, ForgetPlan, Place
from kept.notes.history.note_history import Author, NoteChange, format_change
from kept.notes.history.note_history import version_path
from kept.storage.files.file_storage import FileStorage
root, count = Path(sys.argv[1]), int(sys.argv[2])
last, lines = {}, []
for number in range(count):
    path = f"memory/{number % 50}.md"
    old = last.get(path, b"")
    new = last[path] = old + f"- fact {number} of this note, in some words\\n".encode()
    time = f"2026-01-01T00:00:00.{number % 1000:03d}Z"
    name = digest_bytes(old) if old else None
    lines.append(format_change(NoteChange(f"{number:016x}", time, path, "add", name, digest_bytes(new))))
    file = root / version_path(digest_bytes(new))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(zlib.compress(new, 1))
(root / ".kept/history/changes").mkdir()
(root / ".kept/history/changes/x.jsonl").write_bytes(b"\\n".join([*lines, b""]))
del lines, last
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
place = Place("history", "memory/7.md", "", "", "")
plan = ForgetPlan("query", (place,), Needles(("fact 7",)))
order = ForgetOrder("1", str(root), plan)
storage = FileStorage(str(root))
scrub = HistoryScrub(storage, order, {}, by=Author(), time="")
storage.commit(scrub.changes())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_long_history_is_scrubbed_without_reading_it_into_memory(tmp_path):
    count = 4_000
    command = [sys.executable, "-c", SCRUB, str(tmp_path), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    mebibytes = int(done.stdout)
    print(f"{count:,} changes: {mebibytes} MiB more")
    texts = [data for path, data in versions_of(tmp_path) if path == "memory/7.md"]
    assert len(texts) == count // 50
    assert not any(b"fact 7 " in data for data in texts)
    assert mebibytes < 60, "a few versions at a time, and a few hundred bytes for each change"
