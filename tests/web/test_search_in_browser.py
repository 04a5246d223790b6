"""The search page in Chromium."""

from __future__ import annotations

import pytest

from tests.support.web_site import open_site, served
from tests.support.workspaces import write_note

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser, tmp_path, workspace):
    """A tab that has followed the link. Nothing may violate the policy or fail in a script."""
    write_note(workspace, "MEMORY.md", "# Memory\n\n- The gate code is 4711.\n- Ada likes tea.\n")
    write_note(workspace, "memory/ideas.md", "# Ideas\n\nA gate for the garden.\n")
    faults: list[str] = []
    with served(open_site(tmp_path)) as link:
        page = browser.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(link)
        page.wait_for_url("**/")
        yield page
        page.close()
    assert faults == []


def test_hits_appear_while_typing_and_the_address_follows(page):
    page.keyboard.press("Escape")  # the field has the focus already
    page.keyboard.press("/")
    page.keyboard.type("gate code")
    page.wait_for_selector(".hit mark")
    assert page.locator(".hit .where").first.inner_text() == "MEMORY.md#L1-L3"
    page.wait_for_url(lambda url: url.endswith("/?q=gate+code"))
    page.reload()
    assert page.locator(".hit").count() == 2


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
