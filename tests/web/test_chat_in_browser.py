"""Chat, review, forgetting and live events in Chromium."""

from __future__ import annotations

import pytest

from kept.remote_errors import ModelUnavailable
from kept.testing import ScriptedChat
from kept.workspace.change_recorder import Author
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
    faults: list[str] = []
    site = open_site(tmp_path, model=model, review__agent_writes="listed")
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


def test_the_health_page_follows_what_is_going_on(page):
    page.goto(f"{page.base}/health")
    assert not page.locator("#now >> text=to review").count()
    page.site.memory.add("Ada moved to Bern.", to="memory", by_tool=True, author=Author("main", tool="memory_write"))
    page.wait_for_selector("#now >> text=1 change to review")


def test_a_message_that_failed_is_still_in_its_box(page, model):
    model.follow([ModelUnavailable("The model is down.", hint="Try later.")] * 5)
    page.goto(f"{page.base}/chat")
    page.fill("#text", "What is the gate code?")
    page.press("#text", "Enter")
    page.wait_for_selector("#answer .notice.bad")
    page.wait_for_function("document.querySelector('#text').value === 'What is the gate code?'")
