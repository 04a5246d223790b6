"""Conversations: the list, and each to read."""

import json

import pytest

from kept import Message
from kept.sessions.entries import Attachment, StateEntry, Text, Thinking, ToolCall, ToolResult
from tests.support.sample_memory import write_sample
from tests.support.session_strategies import path_of
from tests.support.web_site import texts, visiting


@pytest.fixture
def talk(pages):
    """Append messages to a conversation, and return its id."""
    sessions = pages.site.sessions
    record = sessions.get_or_create("telegram", "5054")

    def append(*bodies):
        for body in bodies:
            sessions.append(record.id, body)
        return record.id

    return append


def test_conversations_are_listed_with_their_titles(pages, talk):
    talk(Message.of("user", "Where is the spare key?"), Message.of("assistant", "Under the mat."))
    page = pages.page("/conversations")
    assert texts(page, ".list .title") == ["Where is the spare key?"]
    assert "telegram · 5054 · 2 messages" in page.select_one(".list .excerpt").text
    assert "Where is the spare key?" in pages.page(page.select_one(".list a")["href"]).select_one(".said").text


def test_long_lists_have_pages_and_channels(pages):
    for number in range(55):
        record = pages.site.sessions.get_or_create("http" if number % 5 else "telegram", f"user{number}")
        pages.site.sessions.append(record.id, Message.of("user", f"Question {number}"))
    first = pages.page("/conversations")
    assert len(first.select(".list li")) == 50
    assert len(pages.page(first.select_one("a[rel=next]")["href"]).select(".list li")) == 5
    assert len(pages.page("/conversations?channel=telegram").select(".list li")) == 11


def test_calls_of_tools_are_folded_with_their_results(pages, talk):
    session = talk(
        Message.of("user", "Which port?"),
        Message("assistant", (Thinking("I should search."), ToolCall("1", "memory_search", {"query": "port"}))),
        Message("tool", (ToolResult("1", "> port 5433", name="memory_search"),)),
        Message("assistant", (ToolCall("2", "shell", {"command": "rm"}),)),
        Message("tool", (ToolResult("2", "refused", is_error=True),)),
        Message.of("assistant", "Port **5433**."),
    )
    page = pages.page(f"/conversations/{session}")
    assert texts(page, ".fold summary") == ["Thinking: I should search.", "memory_search(port)", "shell(rm) failed"]
    assert "> port 5433" in page.select(".fold")[1].text
    assert not page.select("details.fold[open]")
    assert page.select_one(".line.assistant .prose strong").text == "5433"
    assert not page.select(".line.tool"), "results are with their calls"


def test_what_was_recalled_and_sent_is_shown_with_the_answer(tmp_path, workspace):
    session = write_sample(tmp_path)
    with visiting(tmp_path) as pages:
        page = pages.page(f"/conversations/{session}")
        context = page.select(".context")[0]
        assert "recalled" in context.summary.text
        assert "tokens sent" in context.summary.text
        assert context.select(".bar rect[class^=part-]")
        assert any(link["href"].startswith("/note/memory/suppliers") for link in context.select("li a"))


def test_flushes_and_compactions_are_shown_with_their_receipts(tmp_path, workspace):
    session = write_sample(tmp_path)
    with visiting(tmp_path) as pages:
        page = pages.page(f"/conversations/{session}")
        assert "1 fact written to memory/" in " ".join(texts(page, "p.event"))
        compaction = page.select_one("details.event")
        assert "left the context" in compaction.summary.text
        assert "all found by a search" in compaction.text
        changes = pages.page(f"/changes?session={session}")
        assert len(changes.select(".change")) >= 2


def test_a_long_conversation_is_read_in_parts_from_its_end(pages, talk):
    session = talk(*(Message.of("user", f"Message {number}.") for number in range(700)))
    page = pages.page(f"/conversations/{session}")
    assert len(page.select(".line")) == 300
    assert "Message 699." in page.text
    earlier = pages.page(page.select_one(".pager a")["href"])
    assert "Message 350." in earlier.text
    around = pages.page(f"/conversations/{session}?line=50")
    assert around.select_one(".at-line")["id"] == "L50"
    assert "Later" in around.text


def test_secrets_are_redacted(pages, talk):
    key = "sk-ant-api03-" + "a1B2" * 20
    session = talk(
        Message.of("user", f"My key is {key}"),
        Message.of("assistant", f"I got {key}"),
        Message("assistant", (ToolCall("1", "shell", {"command": f"export KEY={key}"}),)),
        Message("tool", (ToolResult("1", key),)),
    )
    text = pages.get(f"/conversations/{session}").text
    assert key not in text
    assert text.count("[redacted]") >= 4


def test_markup_of_a_speaker_is_text(pages, talk):
    evil = "<script>alert(1)</script>"
    session = talk(
        Message.of("user", evil, sender=evil),
        Message("assistant", (Text(evil), ToolCall("1", evil, {evil: evil})), model=evil),
        Message("user", (Attachment("image/png", evil),)),
        StateEntry(evil, evil),
        StateEntry("flush", {"outcome": evil, "note": evil, "facts": "many"}),
    )
    page = pages.page(f"/conversations/{session}")
    assert [script.get("src") for script in page.select("script")] == ["/static/kept.js"]
    assert not any(element.has_attr("onerror") for element in page.find_all(True))


def test_damaged_and_unknown_lines_are_named(pages, talk):
    session = talk(Message.of("user", "Hello"))
    path = path_of(pages.site.sessions, pages.site.sessions.get(session))
    stamp = "2026-03-14T15:09:26+00:00"
    unknown = {"type": "dream", "id": "u1", "parentId": None, "timestamp": stamp}
    receipt = {"path": "x", "lines": "all", "sha256": 5, "searchable": 1}
    odd = {"type": "compaction", "id": "c1", "parentId": None, "timestamp": stamp, "summary": "s", "receipt": receipt}
    with open(path, "a", encoding="utf-8") as file:
        file.write("not JSON\n")
        file.writelines(json.dumps(line) + "\n" for line in (unknown, odd))
    page = pages.page(f"/conversations/{session}")
    events = " ".join(texts(page, ".event"))
    assert "cannot be read: it is not JSON" in events
    assert "does not know: dream" in events
    assert "Compacted" in events
