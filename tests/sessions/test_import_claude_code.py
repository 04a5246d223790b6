"""Claude Code's transcripts."""

from functools import partial

import pytest

from kept.sessions.entries import Attachment, CompactionEntry, StateEntry, Text, Thinking, ToolCall, ToolResult
from kept.sessions.store import SessionStore
from tests.support.files import write_file
from tests.support.foreign_transcripts import (
    bring_in,
    bring_records,
    cc,
    cc_answer,
    cc_user,
    entries_of,
    lines,
    messages_of,
    record_of,
    say,
)


@pytest.fixture
def bring(home, source):
    return partial(bring_records, home, "claude-code", source / "cc-1.jsonl")


@pytest.fixture
def source(tmp_path):
    return tmp_path / "projects"


def test_a_conversation_with_tools_is_one_chain_without_the_noise_between(home, bring):
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": [say("spade")], "is_error": True}]
    report = bring(
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
        cc("progress", "p0", None),
        cc_user("u1", "p0", "Where is the spade?"),
        cc_answer("a1", "u1", {"type": "thinking", "thinking": "Hm.", "signature": "s"}),
        cc_answer("a2", "a1", {"type": "tool_use", "id": "t1", "name": "Look", "input": {"at": "shed"}}, output=9),
        cc("progress", "p1", "a2"),
        cc_user("r1", "a2", result, toolUseResult={"stdout": "spade"}),
        cc("system", "h1", "r1", subtype="stop_hook_summary"),
        cc_answer("a3", "h1", say("In the shed."), answer="msg-2"),
    )
    assert report.problems == ()
    entries = entries_of(home, "cc-1")
    assert [(one.id, one.parent_id) for one in entries] == [
        ("u1", "cc-1"),
        ("a1", "u1"),
        ("a2", "a1"),
        ("r1", "a2"),
        ("a3", "r1"),
    ]
    assert [one.body.content for one in entries] == [
        (Text("Where is the spade?"),),
        (Thinking("Hm."),),
        (ToolCall("t1", "Look", {"at": "shed"}),),
        (ToolResult("t1", "spade", None, True),),
        (Text("In the shed."),),
    ]
    assert [one.body.role for one in entries] == ["user", "assistant", "assistant", "tool", "assistant"]
    record = record_of(home, "cc-1")
    assert (record.channel, record.user_id, record.folder) == ("claude-code", "cc-1", "/garden")


def test_several_tools_at_once_are_no_branch_but_a_question_asked_anew_is(home, bring):
    def call(name):
        return {"type": "tool_use", "id": name, "name": "Look", "input": {}}

    def result(name):
        return [{"type": "tool_result", "tool_use_id": name, "content": name}]

    bring(
        cc_user("u1", None, "Look twice."),
        cc_answer("a1", "u1", call("t1")),
        cc_answer("a2", "a1", call("t2")),
        cc_user("r1", "a1", result("t1")),
        cc_user("r2", "a2", result("t2")),
        cc_answer("a3", "r2", say("Seen."), answer="msg-2"),
        cc_user("u2", "a3", "Wrong turn."),
        cc_answer("a4", "u2", say("Indeed."), answer="msg-3"),
        cc_user("u3", "a3", "Right turn."),
    )
    with SessionStore.open(home=home) as store:
        shown = [one.id for one in store.load("cc-1")]
    assert shown == ["cc-1", "u1", "a1", "a2", "r1", "r2", "a3", "u3"]
    assert len(entries_of(home, "cc-1")) == 9


def test_a_compaction_is_told_by_its_summary(home, source, bring):
    bring(
        cc_user("u1", None, "Hello"),
        cc(
            "system",
            "b1",
            None,
            subtype="compact_boundary",
            logicalParentUuid="u1",
            content="Conversation compacted",
            compactMetadata={"trigger": "auto", "preTokens": 155_000},
        ),
        cc_user("s1", "b1", "We said hello.", isCompactSummary=True),
        cc_user("u2", "s1", "Go on."),
    )
    entries = entries_of(home, "cc-1")
    assert [(one.id, one.parent_id) for one in entries] == [("u1", "cc-1"), ("s1", "u1"), ("u2", "s1")]
    assert entries[1].body == CompactionEntry("We said hello.", tokens_before=155_000, source="model")


def test_side_conversations_are_left_out(home, source):
    write_file(
        source / "cc-1.jsonl",
        lines(
            cc_user("u1", None, "Send a scout."),
            cc_user("s1", None, "Look around.", isSidechain=True),
            cc_answer("s2", "s1", say("Nothing."), isSidechain=True),
            cc_answer("a1", "u1", say("Nothing there."), answer="msg-2"),
        ),
    )
    write_file(source / "subagents" / "agent-scout.jsonl", lines(cc_user("w1", None, "Dig.", isSidechain=True)))
    report = bring_in(home, "claude-code", source)
    assert ([one.id for one in report.sessions], report.ignored) == (["cc-1"], ())
    assert [one.text for one in messages_of(home, "cc-1")] == ["Send a scout.", "Nothing there."]


def test_titles_meta_records_and_other_kinds_are_handled_or_named(home, bring):
    bring(
        {"type": "summary", "summary": "Some other talk", "leafUuid": "elsewhere"},
        cc_user("m1", None, "Caveat: written by the program", isMeta=True),
        cc_user("u1", "m1", "Hello"),
        cc_user("u1", "m1", "Hello"),
        cc("system", "i1", "u1", subtype="informational", content="Disk is full."),
        cc("queue-operation", "q1", None, operation="enqueue", content="stop"),
        cc("tomorrows-kind", "z1", "u1", x=1),
        {"type": "summary", "summary": "Greetings", "leafUuid": "u1"},
    )
    entries = {one.id: one for one in entries_of(home, "cc-1")}
    assert (entries["m1"].body.role, entries["i1"].body.role) == ("system", "system")
    assert StateEntry("title", "Greetings") in [getattr(one, "body", None) for one in entries.values()]
    assert [*entries][:3] == ["m1", "u1", "i1"]
    assert len(entries) == 4, "neither the repeated message nor the title of another conversation"


def test_images_are_kept_by_where_they_are(home, source):
    data = {"type": "base64", "media_type": "image/png", "data": "QUJDRA=="}
    blocks = [
        say("See:"),
        {"type": "image", "source": data},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "title": "plan.pdf", "source": {**data, "media_type": "application/pdf"}},
    ]
    path = write_file(source / "cc-1.jsonl", lines(cc_user("u1", None, blocks)))
    bring_in(home, "claude-code", source)
    assert messages_of(home, "cc-1")[0].content[1:] == (
        Attachment("image/png", None, f"{path}#L1"),
        Attachment("image/*", None, "https://example.org/a.png"),
        Attachment("application/pdf", "plan.pdf", f"{path}#L1"),
    )
