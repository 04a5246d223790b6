"""Codex's rollouts."""

from functools import partial

import pytest

from kept.sessions.entries import Attachment, CompactionEntry, Thinking, ToolCall, ToolResult
from tests.support.files import write_file
from tests.support.foreign_transcripts import (
    bring_in,
    bring_records,
    cx,
    cx_event,
    cx_item,
    cx_meta,
    entries_of,
    lines,
    messages_of,
    record_of,
)


@pytest.fixture
def bring(home, source):
    return partial(bring_records, home, "codex", source / "rollout.jsonl")


@pytest.fixture
def source(tmp_path):
    return tmp_path / "sessions" / "2026" / "03" / "04"


def spoken(role, text, **more):
    return cx_item("message", role=role, content=[{"type": "input_text", "text": text}], **more)


def test_messages_are_taken_from_items_which_events_repeat(home, source, bring):
    bring(
        cx_meta(),
        spoken("developer", "Be kind."),
        spoken("user", "<environment_context>x</environment_context>"),
        spoken("user", "go on"),
        cx_event("user_message", message="go on"),
        cx_event("agent_message", message="Going."),
        spoken("assistant", "Going."),
        spoken("user", "go on"),
    )
    assert [(one.role, one.text) for one in messages_of(home, "cx-1")] == [
        ("system", "Be kind."),
        ("system", "<environment_context>x</environment_context>"),
        ("user", "go on"),
        ("assistant", "Going."),
        ("user", "go on"),
    ]
    assert bring_in(home, "codex", source).count("unchanged") == 1


def test_tools_thinking_and_images_are_kept(home, source):
    patch = {"output": "Success.", "metadata": {"exit_code": 1}}
    path = write_file(
        source / "rollout.jsonl",
        lines(
            cx_meta(),
            cx("turn_context", model="m-5"),
            cx_item("reasoning", summary=[{"type": "summary_text", "text": "Hm."}], encrypted_content="abcd"),
            cx_item("function_call", name="run", arguments='{"cmd": "ls"}', call_id="c1"),
            cx_item("function_call_output", call_id="c1", output="shed"),
            cx_item("custom_tool_call", name="patch", input="*** Begin", call_id="c2"),
            cx_item("custom_tool_call_output", call_id="c2", output=patch),
            cx_item(
                "message", role="user", content=[{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]
            ),
            cx_item("ghost_snapshot", ghost_commit={"id": "x"}),
        ),
    )
    bring_in(home, "codex", source)
    said = messages_of(home, "cx-1")
    assert [one.content for one in said] == [
        (Thinking("Hm."),),
        (ToolCall("c1", "run", {"cmd": "ls"}),),
        (ToolResult("c1", "shed"),),
        (ToolCall("c2", "patch", {"input": "*** Begin"}),),
        (ToolResult("c2", "Success.", None, True),),
        (Attachment("image/png", None, f"{path}#L8"),),
    ]
    assert said[0].model == "m-5"
    assert record_of(home, "cx-1").folder == "/garden"


def test_compactions_are_kept(home, source, bring):
    talk = (spoken("user", "Hello"), cx("compacted", message="We greeted."), spoken("user", "Again"))
    bring(cx_meta(), *talk)
    assert entries_of(home, "cx-1")[1].body == CompactionEntry("We greeted.", source="model")
