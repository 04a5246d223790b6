"""Changes of notes, and taking them back."""

from __future__ import annotations

from kept.notes.history.note_change import Author
from tests.support.web_site import texts
from tests.support.workspaces import write_note


def test_changes_of_all_notes_are_listed_newest_first(pages, workspace):
    pages.site.memory.add("First fact.", to="memory")
    pages.site.memory.add("Second fact.", to="memory/ideas.md", author=Author("main", tool="memory_write"), why="asked")
    page = pages.page("/changes")
    assert texts(page, ".change .title") == ["memory/ideas.md", "MEMORY.md"]
    assert "memory_write" in page.select_one(".change").text
    assert "asked" in page.select_one(".change").text
    assert texts(pages.page("/changes?by=memory_write"), ".change .title") == ["memory/ideas.md"]


def test_a_change_is_taken_back(pages, workspace):
    pages.site.memory.add("First fact.", to="memory")
    pages.site.memory.add("Wrong fact.", to="memory")
    page = pages.page("/changes/MEMORY.md")
    change = page.select_one("button[name=change]")["value"]
    page = pages.follow(pages.post("/undo", change=change, back="/changes/MEMORY.md"))
    assert texts(page, ".notice.good") == ["Taken back: MEMORY.md"]
    assert "Wrong" not in (workspace / "MEMORY.md").read_text()
    assert "First" in (workspace / "MEMORY.md").read_text()
    assert texts(page, ".change .flag") == ["taken back"]
    assert "taken back already" in pages.post("/undo", change=change).text


def test_a_change_that_later_ones_touched_is_not_taken_back(pages, workspace):
    pages.site.memory.add("First fact.", to="memory")
    change = pages.page("/changes").select_one("button[name=change]")["value"]
    write_note(workspace, "MEMORY.md", "Rewritten.\n")
    answer = pages.post("/undo", change=change)
    assert answer.status_code == 409
    assert (workspace / "MEMORY.md").read_text() == "Rewritten.\n"


def test_an_edit_in_another_program_is_listed_after_the_next_search(pages, workspace):
    write_note(workspace, "MEMORY.md", "one\n")
    pages.page("/?q=one")
    write_note(workspace, "MEMORY.md", "two\n")
    pages.page("/?q=two")
    assert "another program" in pages.page("/changes").select_one(".change").text


def test_markup_in_a_diff_is_text(pages):
    pages.site.memory.add("<script>alert(1)</script>", to="memory")
    assert not pages.page("/changes").select(".diff script")
