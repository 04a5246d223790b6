"""A day's log that is full goes on in a further file, which is that day's log everywhere."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys

import pytest

from kept.connect.recent import recent_context
from kept.errors import NoteTooLarge
from kept.indexing.note_rows import daily_date
from kept.mcp.resources import list_notes, read_resource
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock
from kept.tools.toolbox import Toolbox

LIMIT = "memory_search.max_file_bytes"
FIRST, SECOND, THIRD = (f"memory/2026-03-14{part}.md" for part in ("", "-2", "-3"))


@pytest.fixture
def full(memory):
    """A memory whose log of today is in three files."""
    opened = memory(clock=FrozenClock(), settings={LIMIT: 1000})
    texts = ("the heron nests " + "x" * 950, "the otter swims " + "y" * 950, "the badger digs")
    assert [opened.add(text).path for text in texts] == [FIRST, SECOND, THIRD]
    return opened


def test_a_full_log_goes_on_in_a_further_file(full, workspace):
    assert full.add("and the fox").path == THIRD
    assert (workspace / THIRD).read_text() == "# 2026-03-14\n\n## 15:09\n\nthe badger digs\n\n* * *\n\nand the fox\n"
    full.clock.move(days=1)
    assert full.add("another day").path == "memory/2026-03-15.md"


def test_an_entry_that_fits_no_file_is_refused_and_begins_none(full, workspace):
    before = sorted((workspace / "memory").iterdir())
    with pytest.raises(NoteTooLarge):
        full.add("z" * 2_000)
    assert sorted((workspace / "memory").iterdir()) == before


def test_every_part_has_the_date_of_its_day(full):
    dates = {hit.path: str(hit.timestamp)[:10] for hit in full.search("heron otter badger", min_score=0.0).hits}
    assert dates == dict.fromkeys((FIRST, SECOND, THIRD), "2026-03-14")
    assert {hit.path for hit in full.search("on 14 March 2026", min_score=0.0).hits} >= {SECOND, THIRD}
    assert {hit.path for hit in full.search("badger", since="2026-03-14", until="2026-03-14").hits} == {THIRD}


def test_whoever_reads_the_log_is_told_where_it_goes_on(full, home):
    with SessionStore.open(home=home, clock=full.clock) as sessions:
        toolbox = Toolbox(full, sessions)
        shown = toolbox.run("memory_get", {"date": "today"}).text
        assert shown.endswith(f"\n\nThe log of this day continues in {SECOND}.")
        assert toolbox.run("memory_get", {"path": SECOND}).text.endswith(f"continues in {THIRD}.")
        assert "continues in" not in toolbox.run("memory_get", {"path": THIRD}).text


def test_the_log_of_a_day_is_one_resource(full):
    text = read_resource(full, "kept://daily/today")
    assert [word for word in ("heron", "otter", "badger") if word in text] == ["heron", "otter", "badger"]
    titles = [note.title for note in list_notes(full, None)[0]]
    assert sorted(titles) == ["Daily log 2026-03-14", "Daily log 2026-03-14, part 2", "Daily log 2026-03-14, part 3"]


def test_a_new_session_is_told_the_end_of_the_day(full, home):
    with SessionStore.open(home=home, clock=full.clock) as sessions:
        shown = recent_context(full, sessions, cwd=None, current=None)
    assert f"{THIRD} (today):" in shown
    assert "the badger digs" in shown


def test_what_stands_in_a_further_part_can_be_forgotten(full, home, workspace):
    hit = full.search("badger").hits[0]
    full.forgetting.apply(full.forgetting.plan(f"{hit.path}#L5"))
    assert "badger" not in (workspace / THIRD).read_text()


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
settings = {"memory_search.provider": "none", "memory_search.max_file_bytes": 1_000}
with Memory.open(workspace, home=home, settings=settings) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        text = f"{name}{number} " + name * 200
        written = memory.add(text)
        print(json.dumps([written.path, written.end_line, text]), flush=True)
"""


def test_two_processes_fill_the_same_files_and_lose_nothing(workspace, home):
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
    files = list((workspace / "memory").iterdir())
    assert 5 <= len(files) <= 8
    assert all(file.stat().st_size <= 1_000 for file in files)
