"""Exports of ChatGPT."""

import json

from kept.sessions.entries import Attachment, Text, Thinking, ToolCall, ToolResult
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Transcripts
from tests.support.chat_exports import gpt_conversation, gpt_node, gpt_talk, gpt_zip, write_zip
from tests.support.files import write_file
from tests.support.foreign_transcripts import bring_in, messages_of, record_of


def loaded_texts(home, session_id):
    """Return what is said on the branch that continues."""
    with SessionStore.open(home=home) as store:
        return [message.text for message in store.load(session_id).messages]


def test_a_zip_file_is_imported_as_it_was_downloaded(home, tmp_path):
    path = gpt_zip(tmp_path / "export.zip", gpt_talk(), gpt_talk("gpt-2", "Bees"))
    report = bring_in(home, "chatgpt", path)
    assert (report.count("imported"), report.problems, report.ignored) == (2, (), ())
    assert [(message.role, message.text, message.model) for message in messages_of(home, "gpt-1")] == [
        ("user", "Where is the spare key?", None),
        ("assistant", "Under the blue pot.", "gpt-5"),
    ]
    record = record_of(home, "gpt-1")
    assert (record.channel, record.user_id, record.state["title"]) == ("chatgpt", "gpt-1", "Spare key")
    assert record.created.isoformat(timespec="seconds") == "2026-01-05T08:00:00+00:00"


def test_a_folder_and_a_json_file_are_read_too_and_numbered_parts(home, tmp_path):
    write_file(tmp_path / "unpacked" / "conversations-000.json", json.dumps([gpt_talk()]))
    write_file(tmp_path / "unpacked" / "conversations-001.json", json.dumps([gpt_talk("gpt-2")]))
    write_file(tmp_path / "unpacked" / "shared_conversations.json", json.dumps([{"id": "x", "title": "y"}]))
    assert bring_in(home, "chatgpt", tmp_path / "unpacked").count("imported") == 2
    single = write_file(tmp_path / "mine.json", json.dumps(gpt_talk("gpt-3")))
    assert bring_in(home, "chatgpt", single).count("imported") == 1


def test_a_second_run_imports_nothing_and_a_later_export_extends(home, tmp_path):
    first = gpt_zip(tmp_path / "january.zip", gpt_talk())
    assert bring_in(home, "chatgpt", first).count("imported") == 1
    assert bring_in(home, "chatgpt", first).count("unchanged") == 1
    grown = gpt_talk()
    grown["mapping"]["u2"] = gpt_node("u2", "a1", text="And the shed?", minute=5)
    grown["current_node"] = "u2"
    later = gpt_zip(tmp_path / "february.zip", grown)
    assert bring_in(home, "chatgpt", later).count("updated") == 1
    assert bring_in(home, "chatgpt", later).count("unchanged") == 1
    assert bring_in(home, "chatgpt", first).count("failed") == 0
    assert loaded_texts(home, "gpt-1")[-1] == "And the shed?"
    assert len(messages_of(home, "gpt-1")) == 3


def test_all_branches_are_kept_and_the_one_shown_continues(home, tmp_path):
    nodes = [
        gpt_node("u1", "sys", text="Name a flower."),
        gpt_node("a1", "u1", "assistant", "Rose.", minute=1),
        gpt_node("a2", "u1", "assistant", "Tulip.", minute=2),
        gpt_node("u2", "a1", text="Another one.", minute=3),
    ]
    path = gpt_zip(tmp_path / "export.zip", gpt_conversation(*nodes, current="u2"))
    bring_in(home, "chatgpt", path)
    assert [message.text for message in messages_of(home, "gpt-1")] == [
        "Name a flower.",
        "Tulip.",
        "Rose.",
        "Another one.",
    ]
    assert loaded_texts(home, "gpt-1") == ["Name a flower.", "Rose.", "Another one."]
    gpt_zip(tmp_path / "export.zip", gpt_conversation(*nodes, current="a2"))
    assert bring_in(home, "chatgpt", path).count("updated") == 1
    assert loaded_texts(home, "gpt-1") == ["Name a flower.", "Tulip."]


def test_a_new_name_is_taken_over(home, tmp_path):
    path = gpt_zip(tmp_path / "export.zip", gpt_talk())
    bring_in(home, "chatgpt", path)
    gpt_zip(path, gpt_talk(title="Keys and pots"))
    bring_in(home, "chatgpt", path)
    assert record_of(home, "gpt-1").state["title"] == "Keys and pots"


def test_every_kind_of_content_becomes_what_people_see(home, tmp_path):
    cite = "\ue200cite\ue202turn0search1\ue201"
    shown = {"matched_text": cite, "alt": "([Almanac](https://almanac.example))"}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1", "metadata": None}
    named = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-7"}
    code = {"content_type": "code", "language": "python", "text": "print(1)"}
    nodes = [
        gpt_node("1", "sys", content={"content_type": "multimodal_text", "parts": [image, "What is it?"]}),
        gpt_node("2", "1", "assistant", content={"content_type": "thoughts", "thoughts": [{"content": "Hm."}]}),
        gpt_node("3", "2", "assistant", content={"content_type": "reasoning_recap", "content": "Thought for 8s"}),
        gpt_node("4", "3", "assistant", content=code, recipient="python"),
        gpt_node(
            "5",
            "4",
            "tool",
            content={"content_type": "execution_output", "text": "1"},
            author={"role": "tool", "name": "python"},
        ),
        gpt_node("6", "5", "assistant", f"A robin {cite}.", metadata={"content_references": [shown]}),
        gpt_node("7", "6", "assistant", content=code),
        gpt_node("8", "7", "tool", content={"content_type": "tether_quote", "title": "T", "url": "U", "text": "X"}),
        gpt_node(
            "9",
            "8",
            content={"content_type": "multimodal_text", "parts": [named]},
            metadata={"attachments": [{"id": "file-7", "name": "bird.png", "mime_type": "image/png"}]},
        ),
        gpt_node("10", "9", content={"content_type": "user_editable_context", "user_profile": "Call me Ada."}),
        gpt_node("11", "10", "assistant", ""),
        gpt_node("12", "11", "assistant", content={"content_type": "hologram", "beams": 3}),
        gpt_node("13", "12", "tool", content={"content_type": "system_error", "name": "E", "text": "It broke."}),
        gpt_node("14", "13", content={"content_type": "audio_transcription", "text": "Spoken."}),
    ]
    bring_in(home, "chatgpt", gpt_zip(tmp_path / "export.zip", gpt_conversation(*nodes)))
    assert [message.content for message in messages_of(home, "gpt-1")] == [
        (Attachment("image/*", None, "sediment://file_1"), Text("What is it?")),
        (Thinking("Hm."),),
        (ToolCall("4", "python", {"input": "print(1)"}),),
        (ToolResult("4", "1", "python"),),
        (Text("A robin ([Almanac](https://almanac.example))."),),
        (Text("print(1)"),),
        (ToolResult("7", "X"),),
        (Attachment("image/png", "bird.png", "file-7"),),
        (ToolResult("12", "It broke.", None, True),),
        (Text("Spoken."),),
    ]


def test_conversations_before_a_broken_one_are_imported(home, tmp_path):
    talk = json.dumps(gpt_talk())
    path = write_zip(tmp_path / "export.zip", {"conversations.json": f'[{talk}, 7, {talk[:-1]},"x":}}]'.encode()})
    report = bring_in(home, "chatgpt", path)
    assert report.count("imported") == 1
    assert [problem.reason for problem in report.problems] == [
        "conversations.json: conversation 2 cannot be read: it is not a JSON object, or nested too deeply",
        "conversations.json: ends in the middle of a conversation, or is damaged",
    ]


def test_a_loop_and_a_missing_parent_lose_no_message(home, tmp_path):
    talk = gpt_conversation(
        gpt_node("a", "b", text="first of a loop"),
        gpt_node("b", "a", text="second of a loop"),
        gpt_node("c", "gone", text="an orphan"),
        current="nowhere",
    )
    bring_in(home, "chatgpt", gpt_zip(tmp_path / "export.zip", talk))
    assert {message.text for message in messages_of(home, "gpt-1")} == {
        "first of a loop",
        "second of a loop",
        "an orphan",
    }


def test_many_conversations_do_not_compare_every_transcript_each_time(home, tmp_path, monkeypatch):
    scans = []
    scan = Transcripts.list
    monkeypatch.setattr(Transcripts, "list", lambda self: scans.append(self) or scan(self))
    path = gpt_zip(tmp_path / "export.zip", *[gpt_talk(f"gpt-{number}") for number in range(40)])
    assert bring_in(home, "chatgpt", path).count("imported") == 40
    assert len(scans) < 5
