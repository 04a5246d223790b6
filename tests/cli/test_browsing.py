"""kept list, kept recent, kept get by name, and a search for a time, as people type them."""

import datetime as dt
import os
from pathlib import Path

import pytest

from tests.support.files import write_file


@pytest.fixture
def notes(workspace: Path) -> Path:
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Ada keeps the lighthouse at Skerry.\n")
    write_file(workspace / "memory/2026-03-02.md", "# 2026-03-02\n\n## 09:30\n\nStaging moved.\n")
    write_file(workspace / "memory/2026-03-03.md", "# 2026-03-03\n\n## 10:00\n\nThe otter is back.\n")
    write_file(workspace / "memory/ideas.md", "# Boat ideas\n\nA red boat.\n")
    changes = {
        "MEMORY.md": "2026-01-05T08:00",
        "memory/2026-03-02.md": "2026-03-02T09:30",
        "memory/2026-03-03.md": "2026-03-05T10:00",
        "memory/ideas.md": "2026-03-02T12:00",
    }
    for path, when in changes.items():
        moment = dt.datetime.fromisoformat(when).timestamp()
        os.utime(workspace / path, (moment, moment))
    return workspace


def test_list_shows_date_size_path_title_and_first_words(kept, notes):
    ended = kept("list")
    assert ended.out.splitlines() == [
        "2026-03-03  43 B  memory/2026-03-03.md  The otter is back.",
        "2026-03-02  26 B  memory/ideas.md       Boat ideas: A red boat.",
        "2026-03-02  39 B  memory/2026-03-02.md  Staging moved.",
        "2026-01-05  48 B  MEMORY.md             Memory: Ada keeps the lighthouse at Skerry.",
    ]
    assert (ended.code, ended.err) == (0, "")


def test_list_can_be_narrowed_and_says_what_it_leaves_out(kept, notes):
    assert kept("list", "--since", "2 March 2026", "--path", "memory").out.count("\n") == 3
    assert kept("list", "--until", "2026-01").out.count("\n") == 1
    cut = kept("list", "-n", "1")
    assert cut.out.count("\n") == 1
    assert cut.err == "1 of 4 notes; -n 4 shows all.\n"
    nothing = kept("list", "--path", "nope")
    assert (nothing.code, nothing.out) == (0, "No notes.\n")
    assert nothing.err == "Note: No note matches 'nope'.\n"


def test_recent_changes_have_a_time(kept, notes):
    assert kept("list", "--changed").out.splitlines() == [
        "2026-03-05 10:00  43 B  memory/2026-03-03.md  The otter is back.",
        "2026-03-02 12:00  26 B  memory/ideas.md       Boat ideas: A red boat.",
        "2026-03-02 09:30  39 B  memory/2026-03-02.md  Staging moved.",
        "2026-01-05 08:00  48 B  MEMORY.md             Memory: Ada keeps the lighthouse at Skerry.",
    ]
    assert kept("list", "--changed", "-n", "1").out.count("\n") == 1
    assert kept("list", "--changed", "--since", "1 March 2026").out.count("2026-01") == 0
    assert kept("list", "--changed", "--since", "today").out == "No files.\n"


def test_a_search_for_a_time_lists_it_and_says_how_it_was_read(kept, notes):
    ended = kept("search", "what", "happened", "on", "2", "March", "2026?")
    assert ended.out.startswith("2 March 2026 = 2026-03-02\n2026-03-02 09:30  memory/2026-03-02.md#L1-L5")
    assert ended.out.index("Staging moved.") < ended.out.index("A red boat.")
    assert ended.out.endswith("\n2 entries\n")
    shown = kept("search", "2 March 2026", "--json").json
    assert shown["period"]["text"] == "2 March 2026 = 2026-03-02"
    assert shown["period"]["since"].startswith("2026-03-02T00:00:00")
    assert shown["period"]["until"].startswith("2026-03-03T00:00:00")
    assert [(hit["score"], hit["listed"]) for hit in shown["results"]] == [(1.0, True)] * 2


def test_get_takes_a_day_a_name_or_a_title(kept, notes):
    assert kept("get", "2026-03-03").out == (notes / "memory/2026-03-03.md").read_text()
    assert kept("get", "3", "March", "2026").out == (notes / "memory/2026-03-03.md").read_text()
    assert kept("get", "boat ideas").out == (notes / "memory/ideas.md").read_text()
    assert kept("get", "Boat", "ideas", "--from", "3").out == "A red boat.\n"
    assert kept("get", "ideas", "--json").json["path"] == "memory/ideas.md"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["get", "2026-03-09"], 3, "There is no daily note of 2026-03-09"),
        (["get", "no such note"], 3, "No note has the path, name or title 'no such note'"),
        (["get", "march 2026"], 2, "more than one day: 2026-03-01 to 2026-03-31"),
        (["get", "MEMORY.md#L99"], 3, "MEMORY.md has no line 99."),
        (["get", "MEMORY.md", "--from", "99"], 3, "MEMORY.md has no line 99."),
        (["search", "otter", "--since", "2026-03-03", "--until", "2026-03-02"], 2, "is after 'until'"),
        (["list", "--since", "someday"], 2, "'someday' is not a date."),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(kept, notes, args, code, message):
    ended = kept(*args)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1


def test_a_name_that_is_nearly_right_is_answered_with_the_note(kept, notes):
    write_file(notes / "memory/Priya Raman.md", "# Priya\n")
    question = "Did you mean 'memory/Priya Raman.md'?"
    for name in ("memory/Prija Raman.md", "people/Priya Raman.md", "prya-raman", "Raman"):
        ended = kept("get", name)
        assert (ended.code, ended.out) == (3, "")
        assert question in ended.err, name
    assert question in kept("get", "--links", "Prija Raman").err
    assert "Did you mean" not in kept("get", "memory/2026-03-09.md").err
    off = kept("--set", "memory_search.enabled=false", "get", "memory/Prija Raman.md")
    assert "there is no such note" in off.err
