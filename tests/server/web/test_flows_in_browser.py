"""What people do on the pages, in Chromium."""

import re
import subprocess

import pytest

from kept.base.remote_errors import ModelUnavailable
from kept.testing import ScriptedChat
from tests.support.commands import start_kept
from tests.support.web_site import open_site, served
from tests.support.workspaces import write_note

pytestmark = pytest.mark.browser


@pytest.fixture
def model():
    return ScriptedChat(["The gate code is **4711**, as you said on Monday."], piece_chars=3)


@pytest.fixture
def page(browser, tmp_path, workspace, model):
    """A tab that has followed the link. Nothing may violate the policy or fail in a script."""
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The gate code is 4711.\n- Ada likes tea.\n")
    write_note(workspace, "memory/ideas.md", "# Ideas\n\nA gate for the garden.\n")
    faults: list[str] = []
    site = open_site(tmp_path, model=model, review__agent_writes="proposed")
    with served(site) as link:
        page = browser.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(link)
        page.wait_for_url("**/")
        page.site = site
        page.base = page.url.rstrip("/")
        yield page
        page.close()
    assert faults == []


def test_a_note_is_searched_opened_edited_and_found_again(page, workspace):
    page.fill("input[name=q]", "gate code")
    page.wait_for_selector(".hit mark")
    page.wait_for_url(lambda url: url.endswith("/?q=gate+code"))
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


def test_keys_go_through_the_hits_and_show_why(page):
    page.goto(page.url + "?q=gate")
    page.locator("body").press("j")
    assert page.locator(".hit.at").count() == 1
    page.locator("body").press("j")
    assert "ideas" in page.locator(".hit.at .where").inner_text()
    page.locator("body").press("k")
    assert "MEMORY" in page.locator(".hit.at .where").inner_text()
    page.locator("body").press("w")
    assert page.locator(".hit.at .why table").is_visible()
    page.locator("body").press("?")
    assert page.locator("#help").is_visible()
    page.locator("body").press("Escape")
    assert not page.locator("#help").is_visible()


def test_a_chat_is_answered_shown_and_found_again(page):
    page.goto(f"{page.base}/chat")
    page.fill("#text", "What is the gate code?")
    page.press("#text", "Enter")
    page.wait_for_selector("#talk .line.assistant strong")
    assert page.locator("#talk .line.assistant strong").inner_text() == "4711"
    assert page.locator("#talk .line.user .said").inner_text() == "What is the gate code?"
    assert page.input_value("#text") == ""
    assert page.locator("#answer").inner_text() == ""
    page.goto(f"{page.base}/?q=what+is+the+gate+code&source=sessions")
    assert page.locator(".hit").count() == 1


def test_a_message_that_failed_is_still_in_its_box(page, model):
    model.follow([ModelUnavailable("The model is down.", hint="Try later.")] * 5)
    page.goto(f"{page.base}/chat")
    page.fill("#text", "What is the gate code?")
    page.press("#text", "Enter")
    page.wait_for_selector("#answer .notice.bad")
    page.wait_for_function("document.querySelector('#text').value === 'What is the gate code?'")


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
