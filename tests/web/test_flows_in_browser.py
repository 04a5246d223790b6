"""What people do on the pages, in Chromium."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.commands import start_kept
from tests.support.web_site import open_site, served
from tests.support.workspaces import write_note

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser, tmp_path, workspace):
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The gate code is 4711.\n- Ada likes tea.\n")
    with served(open_site(tmp_path)) as link:
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        page.wait_for_url("**/")
        yield page
        context.close()


def test_a_note_is_searched_opened_edited_and_found_again(page, workspace):
    page.fill("input[name=q]", "gate code")
    page.wait_for_selector(".hit mark")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.locator(".prose .cited").first.is_visible()
    with page.expect_navigation():
        page.keyboard.press("e")
    text = page.input_value("textarea")
    page.fill("textarea", text.replace("4711", "9922"))
    page.wait_for_selector("#preview .prose")
    assert "9922" in page.locator("#preview").inner_text()
    with page.expect_navigation():
        page.keyboard.press("Control+s")
    assert page.locator(".notice.good").inner_text() == "Saved."
    assert "9922" in (workspace / "MEMORY.md").read_text()
    page.keyboard.press("g")
    with page.expect_navigation():
        page.keyboard.press("s")
    page.fill("input[name=q]", "9922")
    page.wait_for_selector(".hit mark")
    assert "9922" in page.locator(".hit").first.inner_text()


def test_a_changed_text_is_not_left_without_a_question(page):
    page.goto(page.url + "edit/MEMORY.md")
    page.fill("textarea", "changed")
    page.once("dialog", lambda dialog: dialog.dismiss())
    with page.expect_event("dialog") as question:
        page.click("text=Cancel")
    assert question.value.type == "beforeunload"
    assert page.input_value("textarea") == "changed"


def test_a_tab_goes_on_after_the_server_was_killed_and_came_back(browser, tmp_path, workspace):
    write_note(workspace, "MEMORY.md", "The gate code is 4711.\n")

    def start(port: str) -> tuple[subprocess.Popen[str], str]:
        process = start_kept(tmp_path, "--set", "memory_search.provider=none", "web", "--no-open", "--port", port)
        link = re.fullmatch(r"Open (\S+)\n", process.stdout.readline())
        assert link
        return process, link[1]

    first, link = start("0")
    page = browser.new_page()
    second = None
    try:
        page.goto(link)
        page.wait_for_url("**/")
        first.kill()
        first.wait()
        page.fill("input[name=q]", "gate")
        page.wait_for_selector("#unreachable:visible")
        second, _ = start(link.split(":")[2].partition("/")[0])
        page.fill("input[name=q]", "gate code")
        page.wait_for_selector(".hit mark")
        assert not page.locator("#unreachable").is_visible()
    finally:
        page.close()
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
