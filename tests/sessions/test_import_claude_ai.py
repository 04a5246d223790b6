"""Exports of Claude.ai."""

from kept.sessions.entries import Attachment, Text, Thinking, ToolCall, ToolResult
from kept.sessions.store import SessionStore
from tests.support.chat_exports import claude_conversation, claude_message, claude_talk, claude_zip
from tests.support.foreign_transcripts import bring_in, messages_of, record_of


def test_a_zip_file_is_imported_as_it_was_downloaded(home, tmp_path):
    path = claude_zip(tmp_path / "data-2026-03-05-batch-0000.zip", claude_talk(), claude_talk("cl-2", ""))
    report = bring_in(home, "claude-ai", path)
    assert (report.count("imported"), report.problems, report.ignored) == (2, (), ())
    assert [(message.role, message.text) for message in messages_of(home, "cl-1")] == [
        ("user", "How do bees find the hive?"),
        ("assistant", "By the sun, and by smell."),
    ]
    record = record_of(home, "cl-1")
    assert (record.channel, record.user_id, record.state["title"]) == ("claude-ai", "cl-1", "Bees")
    assert "title" not in record_of(home, "cl-2").state
    assert bring_in(home, "claude-ai", path).count("unchanged") == 2


def test_tools_thinking_files_and_pasted_text_are_kept(home, tmp_path):
    placeholder = "This block is not supported on your current device yet."
    talk = claude_conversation(
        claude_message(
            "m1",
            "human",
            "",
            attachments=[
                {"file_name": "", "file_type": "txt", "file_size": 9, "extracted_content": "A long paste."},
                {"file_name": "plan.pdf", "file_type": "pdf", "file_size": 9, "extracted_content": "Pages."},
            ],
            files=[{"file_name": "photo.png", "file_uuid": "f-1"}],
        ),
        claude_message(
            "m2",
            "assistant",
            placeholder,
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t-1", "name": "web_search", "input": {"query": "bees"}},
            {"type": "tool_result", "tool_use_id": "t-1", "name": "web_search", "content": [{"text": "Found."}]},
            {"type": "token_budget"},
            {"type": "text", "text": "By smell."},
        ),
        claude_message("m3", "human", "Thanks."),
    )
    bring_in(home, "claude-ai", claude_zip(tmp_path / "a.zip", talk))
    assert [(message.role, message.content) for message in messages_of(home, "cl-1")] == [
        ("user", (Text("A long paste."), Attachment("pdf", "plan.pdf"), _file("photo.png", "f-1"))),
        ("assistant", (Thinking("Hm."), Text("I look."), ToolCall("t-1", "web_search", {"query": "bees"}))),
        ("tool", (ToolResult("t-1", "Found.", "web_search"),)),
        ("assistant", (Text("By smell."),)),
        ("user", (Text("Thanks."),)),
    ]
    with SessionStore.open(home=home) as store:
        assert len(store.load("cl-1").messages) == 5


def _file(name: str, uuid: str) -> Attachment:
    return Attachment("application/octet-stream", name, uuid)


def test_branches_are_followed_by_their_parents(home, tmp_path):
    root = "00000000-0000-4000-8000-000000000000"
    talk = claude_conversation(
        claude_message("m1", "human", "Name a flower.", parent_message_uuid=root),
        claude_message("m2", "assistant", "Rose.", minute=1, parent_message_uuid="m1"),
        claude_message("m3", "assistant", "Tulip.", minute=2, parent_message_uuid="m1"),
    )
    bring_in(home, "claude-ai", claude_zip(tmp_path / "a.zip", talk))
    assert len(messages_of(home, "cl-1")) == 3
    with SessionStore.open(home=home) as store:
        assert [message.text for message in store.load("cl-1").messages] == ["Name a flower.", "Tulip."]
