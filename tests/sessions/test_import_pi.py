"""pi's transcripts, and what every import holds to."""

import datetime as dt
import json
from functools import partial

import pytest

from kept.sessions.entries import (
    Attachment,
    CompactionEntry,
    Message,
    StateEntry,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from kept.sessions.store import SessionStore
from tests.support.files import tree_of, write_file
from tests.support.foreign_transcripts import (
    bring_in,
    bring_records,
    entries_of,
    lines,
    messages_of,
    pi_answer,
    pi_entry,
    pi_header,
    pi_user,
    record_of,
    say,
)

WALK = (
    pi_header(),
    pi_user("a1", None, "Where is the spade?"),
    pi_answer("a2", "a1", {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "s"}, say("In the shed.")),
)


@pytest.fixture
def bring(home, source):
    return partial(bring_records, home, "pi", source / "walk.jsonl")


@pytest.fixture
def source(tmp_path):
    return tmp_path / "elsewhere"


def test_ids_times_and_parents_are_kept(home, source, bring):
    report = bring(*WALK)
    assert (report.count("imported"), report.messages, report.problems) == (1, 2, ())
    first, second = entries_of(home, "walk-1")
    assert (first.id, first.parent_id, second.id, second.parent_id) == ("a1", "walk-1", "a2", "a1")
    assert first.timestamp == dt.datetime(2026, 1, 5, 10, 1, tzinfo=dt.UTC)
    assert second.body.content == (Thinking("Hm."), Text("In the shed."))
    assert (second.body.model, second.body.usage) == ("m-1", TokenUsage(111, 5, 116))
    record = record_of(home, "walk-1")
    assert (record.channel, record.user_id, record.folder) == ("pi", "walk-1", "/garden")
    assert record.created == dt.datetime(2026, 1, 5, 10, tzinfo=dt.UTC)
    assert record.metadata["imported"]["path"] == str(source / "walk.jsonl")


def test_what_was_added_to_the_source_is_added_here(home, source):
    path = write_file(source / "walk.jsonl", lines(*WALK))
    bring_in(home, "pi", source)
    write_file(path, lines(*WALK, pi_user("a3", "a2", "Thanks!", 3)))
    report = bring_in(home, "pi", source)
    assert (report.count("updated"), report.sessions[0].added) == (1, 1)
    assert [one.id for one in entries_of(home, "walk-1")] == ["a1", "a2", "a3"]
    assert record_of(home, "walk-1").messages == 3
    assert bring_in(home, "pi", source).count("unchanged") == 1


def test_a_torn_last_line_is_taken_in_once_it_is_whole(home, source):
    whole = lines(*WALK)
    path = write_file(source / "walk.jsonl", whole[:-20])
    report = bring_in(home, "pi", source)
    assert [problem.path for problem in report.problems] == [f"{path}:3"]
    write_file(path, whole)
    assert bring_in(home, "pi", source).count("updated") == 1
    assert [one.id for one in entries_of(home, "walk-1")] == ["a1", "a2"]


def test_a_session_that_went_on_in_both_places_is_reported_and_left_alone(home, source):
    path = write_file(source / "walk.jsonl", lines(*WALK))
    bring_in(home, "pi", source)
    with SessionStore.open(home=home) as store:
        store.append("walk-1", Message.of("user", "And the rake?"))
    assert bring_in(home, "pi", source).count("unchanged") == 1
    write_file(path, lines(*WALK, pi_user("a3", "a2", "Thanks!", 3)))
    before = tree_of(home / "agents" / "main" / "sessions")
    report = bring_in(home, "pi", source)
    assert report.sessions[0].outcome == "failed"
    assert "one of the two continued" in report.sessions[0].reason
    assert tree_of(home / "agents" / "main" / "sessions") == before


def test_two_conversations_of_one_id_are_both_taken_in(home, source):
    write_file(source / "a.jsonl", lines(*WALK))
    write_file(source / "b.jsonl", lines(pi_header(), pi_user("b1", None, "Another talk.")))
    assert bring_in(home, "pi", source).count("imported") == 2
    assert bring_in(home, "pi", source).count("unchanged") == 2
    with SessionStore.open(home=home) as store:
        assert len(store.recent()) == 2


def test_a_folder_that_was_moved_is_known_again(home, source, tmp_path, bring):
    bring(*WALK)
    source.rename(tmp_path / "moved")
    assert bring_in(home, "pi", tmp_path / "moved").count("unchanged") == 1


def test_every_branch_is_kept_and_the_one_that_goes_on_is_loaded(home, source):
    write_file(
        source / "walk.jsonl",
        lines(*WALK, pi_user("x1", "a2", "Left?"), pi_answer("x2", "x1", say("Yes.")), pi_user("y1", "a2", "Right?")),
    )
    bring_in(home, "pi", source)
    assert [(one.id, one.parent_id) for one in entries_of(home, "walk-1")][2:] == [
        ("x1", "a2"),
        ("x2", "x1"),
        ("y1", "a2"),
    ]
    with SessionStore.open(home=home) as store:
        assert [one.id for one in store.load("walk-1")] == ["walk-1", "a1", "a2", "y1"]
        added = store.append("walk-1", Message.of("user", "Straight on."))
        assert [one.id for one in store.load("walk-1")] == ["walk-1", "a1", "a2", "y1", added.id]


def test_tools_and_images_of_a_message_are_kept(home, source):
    call = {"type": "toolCall", "id": "c1", "name": "look", "arguments": {"at": "shed"}}
    image = {"type": "image", "data": "/9j/" + "A" * 396, "mimeType": "image/jpeg"}
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "look", "content": [say("A spade."), image]}
    path = write_file(
        source / "walk.jsonl",
        lines(
            pi_header(),
            pi_answer("a1", None, call, {"type": "hologram", "x": 1}),
            pi_entry("message", "a2", "a1", message={**result, "isError": True}),
        ),
    )
    bring_in(home, "pi", source)
    asked, found = messages_of(home, "walk-1")
    assert asked.content == (ToolCall("c1", "look", {"at": "shed"}),)
    assert found.role == "tool"
    assert found.content == (ToolResult("c1", "A spade.", "look", True), Attachment("image/jpeg", None, f"{path}#L3"))


def test_compactions_states_and_records_of_other_kinds_have_their_place(home, source, bring):
    bring(
        *WALK,
        pi_entry("compaction", "c1", "a2", summary="Spades.", firstKeptEntryId="a2", tokensBefore=900),
        pi_entry("model_change", "m1", "c1", provider="p", modelId="m-9"),
        pi_entry("session_info", "n1", "m1", name="Garden"),
        pi_entry("branch_summary", "b1", "n1", fromId="a2", summary="We looked left."),
        pi_entry("custom_message", "k1", "b1", customType="weather", content="Rain.", display=True),
        pi_entry("label", "l1", "k1", targetId="a1", label="here"),
        pi_entry(
            "message", "s1", "l1", message={"role": "bashExecution", "command": "ls", "output": "shed", "exitCode": 1}
        ),
        pi_entry("reset", "r1", "s1", what="a kind that we have too, and mean otherwise"),
    )
    entries = {one.id: one for one in entries_of(home, "walk-1")}
    assert entries["c1"].body == CompactionEntry("Spades.", "a2", 900, source="model")
    assert [entries[one].body for one in ("m1", "n1")] == [StateEntry("model", "p/m-9"), StateEntry("title", "Garden")]
    assert entries["s1"].body.text == "$ ls\nshed"
    assert (entries["b1"].body.role, entries["k1"].body.text) == ("system", "Rain.")
    assert entries["s1"].parent_id == "k1", "a label is no part of the conversation"
    assert "r1" not in entries
    record = record_of(home, "walk-1")
    assert (record.ended, record.compactions, record.model_override) == (None, 1, "p/m-9")


def test_a_file_that_is_not_jsonl_is_named_once(home, source):
    write_file(source / "one.jsonl", json.dumps({"messages": [1, 2]}, indent=1))
    write_file(source / "two.jsonl", bytes(range(256)) * 50)
    write_file(source / "empty.jsonl", "")
    write_file(source / "header.jsonl", lines(pi_header()))
    write_file(source / "codex.jsonl", lines({"type": "event_msg", "payload": {}}))
    report = bring_in(home, "pi", source)
    assert {problem.path.rpartition("/")[2]: problem.reason for problem in report.problems} == {
        "one.jsonl": "is not JSONL: no line of it is a record",
        "two.jsonl": "is not JSONL: no line of it is a record",
    }
    assert len(report.ignored) == 3
    assert report.sessions == ()


def test_links_and_pipes_are_not_followed(home, source, tmp_path):
    import os

    write_file(tmp_path / "outside.jsonl", lines(*WALK))
    source.mkdir()
    (source / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    os.mkfifo(source / "pipe.jsonl")
    report = bring_in(home, "pi", source)
    assert [problem.reason for problem in report.ignored] == ["is a symbolic link, which is not followed"]
    assert [problem.reason for problem in report.problems] == ["cannot be read (not a file)"]
