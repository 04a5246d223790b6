"""Changes of notes, and taking them back."""

from kept.notes.history.note_history import Author
from tests.support.web_site import texts


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


def test_markup_in_a_diff_is_text(pages):
    pages.site.memory.add("<script>alert(1)</script>", to="memory")
    assert not pages.page("/changes").select(".diff script")
