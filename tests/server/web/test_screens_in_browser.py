"""Every screen in Chromium: at two widths, light and dark, without faults, without overflow, and accessible."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page

from kept.server.web.web_app import SCREENS
from kept.testing import FrozenClock
from tests.support.agents import NOW
from tests.support.repository import ROOT
from tests.support.sample_memory import write_sample
from tests.support.web_site import open_site, served
from tests.support.workspaces import write_note

pytestmark = [pytest.mark.browser, pytest.mark.node]

AXE = ROOT / "tests/node/node_modules/axe-core/axe.min.js"
WIDTHS = {"desk": 1280, "phone": 390}
PAGES = {
    **{screen.name: screen.home for screen in SCREENS if screen.label},
    "hits": "/?q=why+did+nobody+notice+that+backups+were+broken&source=memory",
    "nothing found": "/?q=zyzzyva&tag=none",
    "one note": "/note/memory/suppliers/altenberg-mill.md?lines=9-9",
    "a wide note": "/note/memory/wide.md",
    "editor": "/edit/MEMORY.md",
    "one conversation": "/conversations/SESSION",
    "places to forget": "/forget?what=backup",
    "checks": "/health/checks",
    "one setting": "/settings/memory_search.provider",
    "missing": "/note/memory/none.md",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Link to a served sample, and the id of its conversation."""
    folder: Path = tmp_path_factory.mktemp("sample")
    session = write_sample(folder)
    row = "| " + " | ".join("x" * 40 for _ in range(12)) + " |\n"
    wide = f"# Wide\n\n{row}{'|---' * 12}|\n{row}\n```\n{'y' * 500}\n```\n\n{'z' * 500}\n"
    write_note(folder / "workspace", "memory/wide.md", wide)
    with served(open_site(folder, clock=FrozenClock(NOW), model__provider="extractive")) as link:
        yield link, session


@pytest.fixture(scope="module")
def signed_in(browser: Browser, site: tuple[str, str]) -> Iterator[Page]:
    """A tab that is signed in. Axe is in each of its pages."""
    page = browser.new_page()
    page.goto(site[0])
    page.wait_for_url("**/")
    page.add_init_script(path=AXE)
    yield page
    page.close()


@pytest.fixture
def faults(signed_in: Page) -> Iterator[list[str]]:
    """What the tab reports as errors."""
    faults: list[str] = []

    def note_message(message: ConsoleMessage) -> None:
        if message.type == "error":
            faults.append(message.text)

    def note_error(error: Error) -> None:
        faults.append(str(error))

    signed_in.on("console", note_message)
    signed_in.on("pageerror", note_error)
    yield faults
    signed_in.remove_listener("console", note_message)
    signed_in.remove_listener("pageerror", note_error)


@pytest.mark.parametrize("name", PAGES)
def test_a_screen_is_whole_and_accessible_at_every_width_and_in_every_theme(site, signed_in, faults, name):
    """Themes differ in their style sheet only, so a page is not loaded again for the other one."""
    home = site[0].partition("open?")[0].rstrip("/")
    address = home + PAGES[name].replace("SESSION", site[1])
    for width in WIDTHS.values():
        signed_in.set_viewport_size({"width": width, "height": 860})
        signed_in.goto(address)
        signed_in.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        for theme in ("light", "dark"):
            signed_in.emulate_media(color_scheme=theme)
            assert signed_in.evaluate("document.documentElement.scrollWidth") <= width, (theme, width)
            assert violations(signed_in) == [], (theme, width)
    allowed = ["404"] if name == "missing" else []
    assert [fault for fault in faults if not any(code in fault for code in allowed)] == []


def violations(page: Page) -> list[str]:
    """Return what axe finds that is serious."""
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{entry['id']}: {entry['nodes'][0]['html'][:200]} {entry['nodes'][0]['failureSummary'][:300]}"
        for entry in found
        if entry["impact"] in ("serious", "critical")
    ]


def test_the_menu_keeps_its_place_whichever_entry_is_active(site, signed_in):
    home = site[0].partition("open?")[0].rstrip("/")
    signed_in.set_viewport_size({"width": 1280, "height": 900})
    heights = set()
    for screen in SCREENS:
        if screen.label:
            signed_in.goto(home + screen.home)
            heights |= {round(link.bounding_box()["height"]) for link in signed_in.query_selector_all(".side li a")}
    assert len(heights) == 1
    assert signed_in.evaluate(
        "document.querySelector('.side').scrollWidth <= document.querySelector('.side').clientWidth"
    )
