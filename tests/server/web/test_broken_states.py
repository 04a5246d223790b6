"""What the pages say while the index is built, if the disk is full, and if there is very much."""

import pytest

from kept.server.live import LiveState
from tests.support.files import largest_file
from tests.support.web_site import texts, visiting
from tests.support.workspaces import write_note


class SyncingIndex:
    """A live index in the middle of a long sync."""

    def state(self) -> LiveState:
        return LiveState(syncing=True, completed=20, total=200)

    def stop(self) -> None:
        pass


def test_the_progress_of_a_long_sync_is_shown(pages):
    pages.site.live = SyncingIndex()
    page = pages.page("/conversations")
    assert "20 of 200 files" in texts(page, "#indexing .notice")[0]
    assert page.select_one("#indexing progress")["max"] == "200"
    assert page.select_one("#indexing")["data-refresh"]


def test_a_full_disk_is_reported_and_changes_nothing(pages, workspace):
    note = write_note(workspace, "MEMORY.md", "The gate code is 4711.\n")
    digest = pages.page("/edit/MEMORY.md").select_one("input[name=digest]")["value"]
    with largest_file(0):
        answer = pages.post("/edit/MEMORY.md", text="The gate code is 9922.\n", digest=digest, do="save")
    assert answer.status_code == 503
    assert "could not be written" in answer.text
    assert note.read_text() == "The gate code is 4711.\n"
    assert pages.post("/edit/MEMORY.md", text="x\n", digest=digest, do="save").status_code == 303


def test_an_unexpected_error_is_a_page_without_details(pages, workspace, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(pages.site.memory, "list", fail)
    page = pages.page("/notes", status=500)
    assert texts(page, "h1") == ["Unexpected error: RuntimeError."]
    assert "secret detail" not in page.text
    assert "secret detail" in caplog.text


def test_no_error_shows_a_key_of_the_settings(tmp_path, workspace):
    key = "sesame-open-sesame"
    with visiting(tmp_path, gateway__telegram__token=key) as pages:
        assert key not in pages.page(f"/note/{key}.md", status=404).select_one("main").text


def test_a_missing_workspace_is_an_error_page(pages, workspace):
    workspace.rmdir()
    assert "There is no workspace" in pages.page("/?q=x", status=500).text


@pytest.mark.parametrize("query", ["q=" + "x" * 5_000, "q=%00", "q=%ff", "show=9999999999999", "q=a&show=-1", "page=x"])
def test_odd_queries_break_nothing(pages, workspace, query):
    write_note(workspace, "MEMORY.md", "The gate code is 4711.\n")
    assert pages.get(f"/?{query}").status_code == 200


def test_something_can_be_added_on_the_first_page(pages, workspace):
    page = pages.follow(pages.post("/add", text="The ramp is closed."))
    assert texts(page, ".notice.good")[0].endswith("Undo it under Changes.")
    assert texts(pages.page("/?q=ramp"), ".hit .where")
    again = pages.follow(pages.post("/add", text="The ramp is closed."))
    assert "says so already" in texts(again, ".notice.good")[0]
    assert pages.post("/add", text="  ").status_code == 400
