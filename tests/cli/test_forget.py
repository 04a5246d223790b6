"""kept forget: shows the places, asks, forgets, and prints a receipt."""

import json

import pytest

from kept.forgetting.needles import Needles
from kept.forgetting.plan import ForgetOrder, ForgetPlan, Place, digest_of, write_journal
from kept.storage.files.file_storage import FileStorage
from tests.support.files import write_file
from tests.support.planted_words import places_of
from tests.support.terminals import run_on_terminal


@pytest.fixture
def note(workspace):
    return write_file(workspace / "MEMORY.md", "# Memory\n\n- The gate code is 4711.\n- The lighthouse is at Skerry.\n")


def test_nothing_goes_without_consent(kept, note):
    shown = kept("forget", "4711")
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert "1. MEMORY.md#L3  - The gate code is 4711." in shown.out
    assert "--yes or --places 1,3" in shown.err
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
    assert "Nothing to forget" in kept("forget", "4711", "--yes").out


@pytest.mark.parametrize("args", [[], [""], ["e"], ["--person", ""], ["--before", "someday"], ["--session", "x"]])
def test_a_request_that_makes_no_sense_gets_one_line(kept, note, args):
    ended = kept("forget", *args, "--yes")
    assert ended.code in (2, 3)
    assert ended.err.count("\n") == 1
    assert "4711" in note.read_text()


def interrupt(home, workspace):
    """Leave the journal of a forget that was killed at its start."""
    line = "- The gate code is 4711."
    place = Place("note", "MEMORY.md", "MEMORY.md#L3", "", digest_of(line), 3)
    order = ForgetOrder("abc", str(workspace), ForgetPlan("query", (place,), Needles(("4711",))))
    write_journal(FileStorage(str(home / "agents/main")), order)


@pytest.mark.parametrize(
    "args",
    [
        ("mcp",),
        ("search", "lighthouse"),
        ("hook", "session-start"),
        ("hook", "capture"),
        ("sessions", "list"),
        ("export", "a.tar"),
        ("import", "claude-code", "."),
        ("get", "MEMORY.md#L1", "--why"),
    ],
)
def test_every_command_that_reads_or_copies_finishes_what_was_interrupted(kept, note, home, workspace, tmp_path, args):
    interrupt(home, workspace)
    event = {"transcript_path": str(write_file(tmp_path / "t.jsonl", "")), "cwd": str(tmp_path)}
    ended = kept(*args, stdin=json.dumps(event) if args[0] == "hook" else b"")
    assert ended.code == 0, ended.err
    assert "has been finished: receipt abc" in ended.err
    assert "4711" not in note.read_text()
    assert not (home / "agents/main/forgetting.json").exists()


def test_a_journal_that_cannot_be_read_is_named_and_stops_no_command(kept, note, home):
    write_file(home / "agents/main/forgetting.json", "{")
    ended = kept("search", "lighthouse")
    assert ended.code == 0
    assert "cannot be read" in ended.err


def test_the_history_names_a_forget_as_the_author_and_an_undo_passes_over_it(kept, note):
    kept("add", "The shed is blue", "--to", "memory/shed.md")
    kept("search", "gate code")
    assert kept("forget", "gate code", "is", "4711", "--yes").code == 0
    change = kept("history", "--json").json["changes"][0]
    assert (change["path"], change["kind"], change["by"]["tool"]) == ("MEMORY.md", "forget", "kept forget")
    assert [entry["path"] for entry in kept("undo", "--yes", "--json").json["undone"]] == ["memory/shed.md"]


def test_only_the_places_that_are_named_go(kept, note, workspace):
    other = write_file(workspace / "memory/gate.md", "- 4711 is the gate.\n- 4711 was the shed.\n")
    shown = kept("forget", "4711", "--dry-run").out
    assert "1. MEMORY.md#L3" in shown
    assert "3. memory/gate.md#L2" in shown
    ended = kept("forget", "4711", "--places", "1,2")
    assert ended.code == 0, ended.err
    assert "it is still in" in ended.out
    assert "Not chosen, and left as it is: memory/gate.md#L2" in ended.out
    assert other.read_text() == "- 4711 was the shed.\n"
    assert "4711" not in note.read_text()
    assert kept("forget", "4711", "--places", "7").code == 2
    assert kept("forget", "4711", "--places", "none").code == 1


def test_a_person_at_a_terminal_chooses_by_number(kept, environment, note, workspace):
    env = {**environment, "KEPT_WORKSPACE": str(workspace)}
    assert "Nothing was forgotten." in run_on_terminal(["forget", "4711"], env, typed=b"none\n")
    shown = run_on_terminal(["forget", "the"], env, typed=b"2\n", columns=120)
    assert "Which? 1,3 / all / none" in shown
    assert note.read_text() == "# Memory\n\n- The gate code is 4711.\n"


def test_yes_takes_exact_places_only_and_changes_nothing_if_there_are_none(kept, workspace):
    note = write_file(workspace / "memory/home.md", "- Wifi password of the new router is plum.\n- Lunch at noon.\n")
    ended = kept("forget", "the wifi password", "--yes")
    assert ended.code == 1
    assert "memory/home.md#L1" in ended.out
    assert "no place has exactly this" in ended.err
    assert note.read_text().count("\n") == 2
    assert kept("forget", "the wifi password", "--places", "1").code == 0
    assert note.read_text() == "- Lunch at noon.\n"


def test_tokens_usage_and_settings_are_data_and_a_schedule_goes_only_if_it_is_chosen(kept, home, workspace):
    kept("token", "create", "ci", "--scope", "read")
    kept("add", "Books I read: Dune", "--to", "memory/books.md")
    kept("schedule", "add", "every day at 09:00", "What did I read yesterday?")
    tokens = (home / "tokens.json").read_bytes()
    places = kept("forget", "read", "--dry-run", "--json").json["places"]
    assert [place["kind"] for place in places] == ["note", "schedule"]
    kept("forget", "read", "--places", "1")
    assert "What did I read yesterday?" in kept("schedule", "list").out
    kept("forget", "read", "--yes")
    assert "yesterday" not in kept("schedule", "list").out
    assert (home / "tokens.json").read_bytes() == tokens
    assert "ci" in kept("token", "list").out
    kept("add", "A query is a question", "--to", "memory/books.md")
    places = kept("forget", "query", "--dry-run", "--json").json["places"]
    assert [place["kind"] for place in places] == ["note"]  # and not the receipts, which say what kind they are of


def test_the_schema_of_a_database_and_names_that_kept_gives_are_no_trace(kept, workspace):
    for word in ("heading", "memory", "source", "timestamp"):
        write_file(workspace / "memory/a.md", f"- A {word} here.\n- Lunch.\n")
        kept("index")
        ended = kept("forget", word, "--yes")
        assert ended.code == 0, (word, ended.out)
        assert "nothing of it is left." in ended.out


def test_a_folder_with_the_name_is_said_before_and_counted_after(kept, workspace):
    write_file(workspace / "memory/quokka-trip/plan.md", "- Take the quokka map.\n- Lunch.\n")
    assert "memory/quokka-trip: the name of this folder" in kept("forget", "quokka", "--dry-run").out
    ended = kept("forget", "quokka", "--yes")
    assert ended.code == 1
    assert "(a name that was forgotten)/plan.md" in ended.out
    assert (workspace / "memory/quokka-trip/plan.md").read_text() == "- Lunch.\n"


PERSON = {
    "People/Luca Moretti.md": "---\naliases: [Luca]\n---\n# Luca Moretti\n\nBorn in Como.\n",
    "Meetings/2026-10-02.md": "---\ndate: 2026-10-02\ntype: meeting\nattendees: [Ada, Luca Moretti, Priya]\n"
    "owner: Luca Moretti\n---\n\nAttendees: [[Ada]], [[Luca Moretti]] and [[Priya]]\n\n- Migration by Luca\n",
    "Projects/Harbor.md": "# Harbor\n\n- Ada Bos, Luca Moretti, Priya Rao, Jan Smit\n"
    "- Luca Moretti, our plumber, costs 80\n",
}


def test_a_person_is_taken_out_of_lists_and_the_others_and_the_properties_stay(kept, workspace):
    for name, text in PERSON.items():
        write_file(workspace / "memory" / name, text)
    ended = kept("forget", "--person", "Luca Moretti", "--yes")
    assert ended.code == 0, ended.out
    assert not (workspace / "memory/People/Luca Moretti.md").exists()
    assert (workspace / "memory/Meetings/2026-10-02.md").read_text() == (
        "---\ndate: 2026-10-02\ntype: meeting\nattendees: [Ada, Priya]\nowner:\n---\n\n"
        "Attendees: [[Ada]] and [[Priya]]\n\n"
    )
    assert (workspace / "memory/Projects/Harbor.md").read_text() == "# Harbor\n\n- Ada Bos, Priya Rao, Jan Smit\n"
    assert places_of("luca", workspace) == []


def test_a_first_name_that_may_be_somebody_else_is_named_and_left(kept, workspace):
    write_file(workspace / "memory/a.md", "- Luca Moretti likes tea.\n")
    other = write_file(workspace / "memory/b.md", "- Went to Luca's address.\n")
    ended = kept("forget", "--person", "Luca Moretti", "--yes")
    assert "nothing of it is left" not in ended.out
    assert "Not chosen, and left as it is: memory/b.md#L1" in ended.out
    assert other.read_text() == "- Went to Luca's address.\n"
    title = write_file(
        workspace / "memory/c.md", "---\ntitle: Call with Ada Lovelace\ndate: 2026-10-02\n---\nAgreed.\n"
    )
    assert kept("forget", "--person", "Ada Lovelace", "--yes").code == 1, "one place, and it is not sure"
    assert "title: Call" in title.read_text()
