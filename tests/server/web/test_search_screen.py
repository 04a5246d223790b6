"""The search page."""

import pytest

from kept import Message
from tests.support.web_site import texts, visiting
from tests.support.workspaces import write_note


@pytest.fixture
def notes(workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The gate code is 4711. #home\n- Ada likes tea.\n")
    write_note(workspace, "memory/2026-03-02.md", "# 2026-03-02\n\n## 09:00\n\nThe nightly backup failed.\n")
    write_note(workspace, "memory/ideas.md", "# Ideas\n\nA gate for the garden. #garden\n")


def test_hits_come_with_grade_citation_marked_words_and_the_parts_of_their_score(pages, notes):
    page = pages.page("/?q=gate+code")
    first = page.select(".hit")[0]
    assert texts(first, ".where") == ["MEMORY.md#L1-L3"]
    assert texts(first, ".grade") == ["strong"]
    assert {mark.lower() for mark in texts(first, "mark")} == {"gate", "code"}
    assert first.select_one("a.title")["href"] == "/note/MEMORY.md?lines=1-3#L1"
    assert page.select_one("input[name=q]")["value"] == "gate code"
    assert texts(page, ".tally-line")[0].startswith("Close match")
    values = [float(cell) for cell in texts(first, ".why tbody .figure")]
    assert abs(sum(values) - float(texts(first, ".why tfoot .figure")[0])) < 0.01


def test_what_was_left_out_is_listed_with_its_reason(pages, workspace):
    for number in range(30):
        write_note(workspace, f"memory/n{number}.md", f"# Note {number}\n\nThe backup number {number} failed.\n")
    page = pages.page("/?q=backup")
    assert len(page.select(".hit")) == 20
    assert "Beyond max_results" in " ".join(texts(page, ".dropped h3"))
    assert page.select(".dropped a[href^='/note/memory/n']")
    more = page.select_one(".more a")["href"]
    assert len(pages.page(more).select(".hit")) == 30


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("source=memory", {"MEMORY.md#L1-L3", "memory/ideas.md#L1-L3"}),
        ("tag=garden", {"memory/ideas.md#L1-L3"}),
        ("source=sessions", set()),
        ("since=2031-01-01", set()),
    ],
)
def test_filters_narrow_the_search(pages, notes, filters, found):
    page = pages.page(f"/?q=gate&{filters}")
    assert set(texts(page, ".hit .where")) == found
    if not found:
        assert "Nothing passes the filters" in page.text


def test_a_conversation_is_found_and_can_be_filtered_by_channel(pages, notes):
    session = pages.site.sessions.get_or_create("telegram", "5054")
    pages.site.sessions.append(session.id, Message.of("user", "The gate squeaks again."))
    page = pages.page("/?q=gate+squeaks&source=sessions")
    assert page.select_one(".hit a.title")["href"].startswith("/conversations/")
    assert [option.text for option in page.select("select[name=channel] option")] == ["Any", "telegram"]


def test_a_time_is_listed_in_order(pages, notes):
    page = pages.page("/?q=2026-03-02")
    assert "1 entry" in texts(page, ".tally-line")[0]
    assert not page.select(".hit .grade")


def test_a_filter_that_makes_no_sense_is_explained_beside_the_form(pages, notes):
    page = pages.page("/?q=gate&since=not+a+time")
    assert "not a time" in texts(page, ".notice.warn")[0]
    assert page.select_one("input[name=q]")["value"] == "gate"


def test_markup_in_a_note_or_a_query_is_text(pages, workspace):
    write_note(workspace, "memory/x.md", "# <b>Title</b>\n\n<script>alert(1)</script> zebra\n")
    page = pages.page("/?q=zebra+%3Cscript%3Ealert(2)%3C/script%3E")
    assert [script.get("src") for script in page.select("script")] == ["/static/kept.js"]
    assert "<script>alert(1)</script>" in page.select_one(".snippet").text


def test_a_missing_embedder_is_reported_above_the_hits(tmp_path, notes):
    settings = {"memory_search__provider": "openai", "memory_search__fallback": "none"}
    with visiting(tmp_path, **settings) as pages:
        page = pages.page("/?q=gate+code")
        assert "Searching by word only" in texts(page, ".notice.warn")[0]
        assert texts(page, ".hit .where")[0] == "MEMORY.md#L1-L3"


def test_links_and_tasks_of_a_hit_are_shown_as_the_note_shows_them(pages, workspace):
    write_note(
        workspace,
        "memory/tea.md",
        "# Tea\n\n- [x] Ask [[Yuki Tanaka|Yuki]] about **sencha**\n- See [a shop](https://x.example)\n",
    )
    assert texts(pages.page("/?q=sencha"), ".snippet p") == ["☑ Ask Yuki about sencha", "- See a shop"]


def test_a_memory_with_only_its_first_notes_says_how_to_begin(pages, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n")
    page = pages.page("/")
    assert texts(page, "main h2") == ["Begin here", "Recent"]
    for command in ("kept init", "kept connect claude-code", "kept import"):
        assert command in page.text
