"""When a note and the entries in it were written."""

import datetime as dt
import os

import pytest

from kept.index.note_rows import entry_timestamp_ms
from kept.testing import FrozenClock
from tests.support.workspaces import open_memory, write_note

NOW = dt.datetime(2026, 3, 14, 15, 30).astimezone()
DAY = "# 2026-03-14\n\n## 09:05\n\nThe heron stood in the pond.\n\n## 15:09 Standup\n\nThe otter came back.\n"


def found(memory, query, **filters):
    return [(hit.path, hit.start_line, str(hit.timestamp)[:16]) for hit in memory.search(query, min_score=0, **filters)]


@pytest.mark.parametrize(
    ("title", "time"),
    [
        ("15:09", dt.time(15, 9)),
        ("9:05 Standup", dt.time(9, 5)),
        ("15:09:30", dt.time(15, 9, 30)),
        ("3:09 pm", dt.time(15, 9)),
        ("12:10 a.m.", dt.time(0, 10)),
        ("25:00", None),
        ("13:00 pm", None),
        ("15:091", None),
        ("at 15:09", None),
    ],
)
def test_the_time_that_a_heading_begins_with(title, time):
    entry_ms = None if time is None else int(dt.datetime.combine(NOW, time).timestamp() * 1000)
    assert entry_timestamp_ms(NOW.date(), f"2026-03-14 > {title}") == entry_ms


def test_an_entry_of_a_daily_note_is_from_the_time_of_its_heading(tmp_path):
    write_note(tmp_path / "workspace", "memory/2026-03-14.md", DAY)
    write_note(tmp_path / "workspace", "memory/ferry.md", "# Ferry\n\n## 15:09\n\nThe otter ferry.\n")
    with open_memory(tmp_path, clock=FrozenClock(NOW)) as memory:
        path = "memory/2026-03-14.md"
        assert (path, 7, "2026-03-14 15:09") in found(memory, "otter")
        assert found(memory, "heron otter", since="2h", path=path) == [(path, 7, "2026-03-14 15:09")]
        assert found(memory, "heron otter", until="2026-03-14T10:00", path=path) == [(path, 1, "2026-03-14 09:05")]


def test_a_fact_added_a_moment_ago_is_from_the_last_two_hours(tmp_path):
    with open_memory(tmp_path, clock=FrozenClock(NOW)) as memory:
        memory.add("fresh fact: otter")
        assert len(memory.search("otter", since="2h")) == 1
        assert len(memory.search("otter", until="2026-03-14T00:30")) == 0


def test_created_is_the_time_of_a_note_and_stays_when_its_file_is_touched(tmp_path):
    dated = write_note(tmp_path / "workspace", "memory/a.md", "---\ncreated: 2026-01-15\n---\n\nThe heron.\n")
    plain = write_note(tmp_path / "workspace", "memory/b.md", "The otter.\n")
    with open_memory(tmp_path, clock=FrozenClock(NOW)) as memory:
        for seconds in (1_000_000_000, 1_100_000_000):
            for path in (dated, plain):
                os.utime(path, (seconds, seconds))
            assert str(memory.search("heron")[0].timestamp).startswith("2026-01-15 00:00")
            touched = dt.datetime.fromtimestamp(seconds).astimezone()
            assert memory.search("otter").hits[0].timestamp == touched
