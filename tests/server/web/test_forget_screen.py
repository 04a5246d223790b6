"""The page to forget something."""

import pytest

from kept import Message
from tests.support.web_site import texts
from tests.support.workspaces import write_note


@pytest.fixture
def memories(pages, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The zanzibar code is 4711.\n- Ada likes tea.\n")
    session = pages.site.sessions.get_or_create("telegram", "5054")
    pages.site.sessions.append(session.id, Message.of("user", "Remember the zanzibar code."))
    pages.site.memory.sync()
    return pages


def fields_of(pages, kind="input[type=hidden]"):
    form = pages.page("/forget?what=zanzibar").select_one("form[action='/forget/now']")
    return {field["name"]: field["value"] for field in form.select(kind) if field["name"] != "form_token"}


def test_every_place_is_shown_and_nothing_happens_before_it_is_confirmed(memories, workspace):
    page = memories.page("/forget?what=zanzibar")
    assert texts(page, "h3")[:2] == ["Notes 1", "Conversations 1"]
    assert page.select(".places a[href^='/note/MEMORY.md']")
    assert page.select(".places a[href^='/conversations/']")
    assert "zanzibar" in (workspace / "MEMORY.md").read_text()


def test_confirming_removes_the_places_and_shows_the_receipt(memories, workspace):
    answer = memories.post("/forget/now", **fields_of(memories, "input[type=hidden], input[checked]"))
    page = memories.follow(answer)
    assert texts(page, "h1") == ["Forgotten"]
    assert "Nothing of it is left" in page.text
    assert "zanzibar" not in (workspace / "MEMORY.md").read_text()
    assert "Ada likes tea" in (workspace / "MEMORY.md").read_text()
    assert not memories.page("/?q=zanzibar").select(".hit mark")
    assert answer.headers["location"] in [link["href"] for link in memories.page("/forget").select(".list a")]


def test_places_that_changed_since_are_not_removed(memories, workspace):
    fields = fields_of(memories)
    write_note(workspace, "memory/ideas.md", "# Ideas\n\nVisit zanzibar.\n")
    answer = memories.post("/forget/now", **fields)
    assert answer.status_code == 409
    assert "have changed" in answer.text
    assert "zanzibar" in (workspace / "MEMORY.md").read_text()


def test_a_very_short_word_needs_a_second_look(memories):
    page = memories.page("/forget?what=a")
    assert page.select_one(".notice.warn a")["href"] == "/forget?kind=query&what=a&all=1"


def test_a_person_and_a_conversation_can_be_forgotten(memories):
    page = memories.page("/forget?kind=person&what=Ada")
    assert texts(page, "h2")[0].endswith("to forget")
    session = memories.site.sessions.recent(limit=1)[0]
    assert texts(memories.page(f"/forget?kind=session&what={session.id}"), "h3")[0].startswith("Whole conversations")


def test_something_that_is_nowhere_and_a_wrong_kind_are_explained(memories):
    assert "Nothing to forget" in memories.page("/forget?what=qwxyzzy+unheard").text
    assert "cannot be forgotten" in memories.page("/forget?kind=everything&what=x", status=400).text
    assert "no such receipt" in memories.page("/forget/receipts/none", status=400).text


def test_markup_in_a_place_is_text(pages, workspace):
    write_note(workspace, "memory/x.md", "# X\n\n<img src=x onerror=alert(1)> zanzibar\n")
    page = pages.page("/forget?what=zanzibar")
    assert "<img src=x" in page.select_one(".places .muted").text
    assert not page.select(".places img")


def test_only_the_places_that_are_ticked_go_and_what_is_near_is_not_ticked(memories, workspace):
    write_note(workspace, "memory/ideas.md", "# Ideas\n\nVisit zanzibar.\n")
    fields = fields_of(memories)
    assert "no place is chosen" in memories.post("/forget/now", **fields).text
    page = memories.follow(memories.post("/forget/now", **fields, **{"place-1": "1"}))
    assert "Not chosen" in page.text
    assert "zanzibar" not in (workspace / "MEMORY.md").read_text()
    assert "zanzibar" in (workspace / "memory/ideas.md").read_text()
    near = memories.page("/forget?what=what+ada+likes")
    assert near.select(".places input[type=checkbox]")
    assert not near.select(".places input[checked]")
