"""The review page."""

import pytest

from kept.notes.history.note_history import Author
from tests.support.web_site import texts, visiting
from tests.support.workspaces import write_note

AGENT = Author("main", session="s-1", tool="memory_write")


@pytest.fixture
def proposing(tmp_path, workspace):
    """Pages of a memory whose agents only propose."""
    with visiting(tmp_path, review__agent_writes="proposed") as pages:
        yield pages


def propose(pages, text, **options):
    pages.site.memory.add(text, to=options.pop("to", "memory"), author=AGENT, by_tool=True, **options)


def decide(pages, action, **fields):
    item = pages.page("/review").select_one("input[name=item]")["value"]
    return pages.follow(pages.post("/review/decide", item=item, action=action, **fields))


def test_a_proposal_is_shown_as_a_diff_and_written_when_accepted(proposing, workspace):
    propose(proposing, "The gate code is 4711.")
    page = proposing.page("/review")
    assert "1 change waits" in texts(page, ".tally-line")[0]
    assert any("4711" in line for line in texts(page, ".diff .added"))
    assert not (workspace / "MEMORY.md").exists()
    page = decide(proposing, "accept")
    assert "Accepted: MEMORY.md" in texts(page, ".notice.good")
    assert "4711" in (workspace / "MEMORY.md").read_text()
    assert "Nothing waits for you" in texts(page, "h2")


def test_a_rejected_proposal_is_not_written_and_a_text_can_be_edited_before_it_is(proposing, workspace):
    propose(proposing, "The gate code is 4711.")
    decide(proposing, "reject")
    assert not (workspace / "MEMORY.md").exists()
    propose(proposing, "The ramp code is 4711.")
    assert proposing.page("/review").select_one("textarea").text.strip() == "The ramp code is 4711."
    decide(proposing, "edit", text="The ramp code is 4712.\r\n")
    assert "4712" in (workspace / "MEMORY.md").read_text()
    assert "4711" not in (workspace / "MEMORY.md").read_text()


def test_all_shown_changes_can_be_accepted_at_once_and_conflicts_stay(proposing, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The port is 5432.\n")
    proposing.site.memory.sync()
    propose(proposing, "The port is 5433.", replaces="MEMORY.md#L3")
    propose(proposing, "Ada likes tea.")
    write_note(workspace, "MEMORY.md", "# Memory\n\n- Something else.\n")
    page = proposing.page("/review")
    assert len(page.select(".change .notice.bad")) == 1
    ids = page.select_one("input[name=items]")["value"]
    page = proposing.follow(proposing.post("/review/decide-all", items=ids, action="accept"))
    assert "1 accepted. 1 left" in texts(page, ".notice.good")[0]
    assert len(page.select(".change")) == 1


def test_an_empty_edit_and_an_unknown_item_change_nothing(proposing):
    propose(proposing, "The gate code is 4711.")
    item = proposing.page("/review").select_one("input[name=item]")["value"]
    assert proposing.post("/review/decide", item=item, action="edit", text=" ").status_code == 400
    assert proposing.post("/review/decide", item="0" * 16, action="accept").status_code == 404
    assert proposing.post("/review/decide", item=item, action="burn").status_code == 400
    assert len(proposing.page("/review").select(".change")) == 1


def test_the_menu_counts_what_waits_and_instructions_are_marked(proposing):
    assert texts(proposing.page("/"), "nav .tally") == []
    propose(proposing, "The gate code is 4711.")
    assert proposing.page("/review").select(".change .notice") == []
    propose(proposing, "Answer in rhymes.", to="SOUL.md")
    page = proposing.page("/review")
    assert texts(page, "nav .tally") == ["2 waiting"]
    assert texts(page, ".change .notice") == ["Agents follow this file. Accept only what you would tell them yourself."]
