"""Every screen in Chromium: at two widths, light and dark, without faults, without overflow, and accessible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from kept.testing import FrozenClock
from kept.web.screens import SCREENS
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
    "around": "/graph/MEMORY.md",
    "one conversation": "/conversations/SESSION",
    "context of a question": "/context?text=what+about+the+backups",
    "places to forget": "/forget?what=backup",
    "checks": "/health/checks",
    "providers": "/health/providers",
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
    page = browser.new_page()
    page.goto(site[0])
    page.wait_for_url("**/")
    yield page
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_screen_is_whole_and_accessible_at_every_width_and_in_every_theme(browser, site, signed_in, name):
    home = site[0].partition("open?")[0].rstrip("/")
    address = home + PAGES[name].replace("SESSION", site[1])
    state = signed_in.context.storage_state()
    faults: list[str] = []
    for theme in ("light", "dark"):
        context = browser.new_context(storage_state=state, color_scheme=theme)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        for kind, width in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": 860})
            page.goto(address)
            page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (theme, kind)
            assert violations(page) == [], (theme, kind)
        context.close()
    allowed = ["404"] if name == "missing" else []
    assert [fault for fault in faults if not any(code in fault for code in allowed)] == []


def violations(page: Page) -> list[str]:
    """Return what axe finds that is serious."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{entry['id']}: {entry['nodes'][0]['html'][:200]} {entry['nodes'][0]['failureSummary'][:300]}"
        for entry in found
        if entry["impact"] in ("serious", "critical")
    ]
