"""The log of a day."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys

import pytest

from kept.errors import NoteTooLarge
from kept.indexing.note_rows import daily_date
from kept.testing import FrozenClock


def test_an_entry_that_does_not_fit_is_refused_and_changes_nothing(memory, workspace):
    full = memory(clock=FrozenClock(), settings={"memory_search.max_file_bytes": 1000})
    note = workspace / full.add("the heron nests " + "x" * 900).path
    before = note.read_text()
    with pytest.raises(NoteTooLarge):
        full.add("z" * 200)
    assert note.read_text() == before
    full.clock.move(days=1)
    assert full.add("another day").path == "memory/2026-03-15.md"


@pytest.mark.parametrize(
    ("name", "is_daily"),
    [(name, True) for name in ("", "-2", "-10", "-999")]
    + [(name, False) for name in ("-0", "-1", "-02", "-1000", "-2-3", "-standup", "-2a")],
)
def test_a_note_that_is_only_named_like_a_part_is_none(name, is_daily):
    assert daily_date(f"memory/2026-03-14{name}.md") == (dt.date(2026, 3, 14) if is_daily else None)


ADDS_MANY = """
import json, sys
from kept import Memory
workspace, home, name = json.loads(sys.argv[1])
settings = {"memory_search.provider": "none"}
with Memory.open(workspace, home=home, settings=settings) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        text = f"{name}{number} " + name * 200
        written = memory.add(text)
        print(json.dumps([written.path, written.end_line, text]), flush=True)
"""


def test_two_processes_write_the_same_log_and_lose_nothing(workspace, home):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", ADDS_MANY, json.dumps([str(workspace), str(home), name])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    added = [json.loads(line) for writer in writers for line in writer.communicate(timeout=60)[0].splitlines()]
    assert len(added) == 20
    for path, line, text in added:
        assert (workspace / path).read_text().split("\n")[line - 1] == text
