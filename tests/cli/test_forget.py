"""kept forget: shows the places, asks, forgets, and prints a receipt."""

from __future__ import annotations

import json

import pytest

from tests.support.files import write_file
from tests.support.planted_words import places_of


@pytest.fixture
def note(workspace):
    return write_file(workspace / "MEMORY.md", "# Memory\n\n- The gate code is 4711.\n- The lighthouse is at Skerry.\n")


def test_nothing_goes_without_consent(kept, note):
    shown = kept("forget", "4711")
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert "MEMORY.md#L3  - The gate code is 4711." in shown.out
    assert "--yes" in shown.err
    assert kept("forget", "4711", "--dry-run").code == 0
    assert kept("forget", "4711", "--json").code == 2
    assert "4711" in note.read_text()


def test_a_receipt_says_that_nothing_is_left(kept, note, home, workspace):
    kept("search", "gate code")
    ended = kept("forget", "gate code", "is", "4711", "--yes")
    assert ended.code == 0, ended.err
    assert "Forgotten: 1 place in notes." in ended.out
    assert "nothing of it is left." in ended.out
    assert "Not reached:\n  archives" in ended.out
    assert places_of("4711", home, workspace) == []
    assert note.read_text() == "# Memory\n\n- The lighthouse is at Skerry.\n"
    assert "query 1 place nothing left" in " ".join(kept("forget", "--receipts").out.split())
    assert "Nothing to forget" in kept("forget", "4711", "--yes").out


@pytest.mark.parametrize("args", [[], [""], ["e"], ["--person", ""], ["--before", "someday"], ["--session", "x"]])
def test_a_request_that_makes_no_sense_gets_one_line(kept, note, args):
    ended = kept("forget", *args, "--yes")
    assert ended.code in (2, 3)
    assert ended.err.count("\n") == 1
    assert "4711" in note.read_text()


def interrupt(home):
    """Leave the journal of a forget that was killed at its start."""
    order = {
        **{"version": 1, "id": "abc", "started": "2026-03-01", "request": "query", "words": ["4711"], "lines": []},
        **{"cuts": [], "entries": [], "notes": [], "sessions": [], "places": [["note", "MEMORY.md#L3"]]},
        **{"unreachable": [], "salt": "00", "sha256": "", "by_tool": False, "is_scoped": False, "done": []},
    }
    write_file(home / "agents/main/forgetting.json", json.dumps(order))


@pytest.mark.parametrize(
    "args",
    [
        ("mcp",),
        ("hook", "session-start"),
        ("hook", "capture"),
        ("sessions", "list"),
        ("export", "a.tar"),
        ("import", "claude-code", "."),
        ("get", "MEMORY.md#L1", "--why"),
    ],
)
def test_every_command_that_reads_or_copies_text_finishes_what_was_interrupted(kept, note, home, tmp_path, args):
    interrupt(home)
    event = {"transcript_path": str(write_file(tmp_path / "t.jsonl", "")), "cwd": str(tmp_path)}
    ended = kept(*args, stdin=json.dumps(event) if args[0] == "hook" else b"")
    assert ended.code == 0, ended.err
    assert "has been finished: receipt abc" in ended.err
    assert "4711" not in note.read_text()
    assert not (home / "agents/main/forgetting.json").exists()


def test_history_and_undo_say_that_a_change_was_forgotten(kept, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n")
    kept("add", "--to", "memory", "The gate code is 4711.")
    kept("add", "--to", "memory", "The lighthouse is at Skerry.")
    assert kept("forget", "4711", "--yes").code == 0
    changes = json.loads(kept("history", "--json", "--diff").out)["changes"]
    forgotten = [change for change in changes if change["forgotten"] == "all"]
    (change,) = [change for change in forgotten if change["kind"] == "add"]
    assert "4711" not in json.dumps(changes)
    shown = kept("history")
    assert "(forgotten)" in shown.out
    assert "4711" not in shown.out
    ended = kept("undo", change["id"], "--yes")
    assert ended.code == 4
    assert "was forgotten" in ended.err
    assert "does not come back" in ended.err
    assert "4711" not in (workspace / "MEMORY.md").read_text()


def test_the_next_command_finishes_what_was_interrupted(kept, note, home):
    kept("forget", "4711", "--dry-run")
    interrupt(home)
    ended = kept("search", "lighthouse")
    assert "has been finished: receipt abc" in ended.err
    assert "4711" not in note.read_text()
    write_file(home / "agents/main/forgetting.json", "{")
    ended = kept("search", "lighthouse")
    assert ended.code == 0
    assert "cannot be read" in ended.err


def test_a_person_is_listed_once_for_each_old_version(kept, note):
    kept("add", "Ada Lovelace prefers tea", "--to", "MEMORY.md")
    kept("index")
    citations = [
        place["citation"] for place in kept("forget", "--person", "Ada Lovelace", "--dry-run", "--json").json["places"]
    ]
    assert len(citations) == len(set(citations))
    out = kept("forget", "--person", "Ada Lovelace", "--dry-run").out
    assert "MEMORY.md  1 old version" in out


def test_the_history_names_a_forget_as_the_author_and_an_undo_passes_over_it(kept, note):
    kept("add", "The shed is blue", "--to", "memory/shed.md")
    kept("search", "gate code")
    assert kept("forget", "gate code", "is", "4711", "--yes").code == 0
    change = kept("history", "--json").json["changes"][0]
    assert (change["path"], change["kind"], change["by"]["tool"]) == ("MEMORY.md", "forget", "kept forget")
    assert [entry["path"] for entry in kept("undo", "--yes", "--json").json["undone"]] == ["memory/shed.md"]


def test_a_time_with_nothing_before_it_is_named(kept, note):
    assert "is from before that time" in kept("forget", "--before", "2001-01-01", "--yes").out
