"""Fixtures for the tests of the web pages: a client without scripts, and a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.program_setup import find_chromium
from tests.support.web_site import PageClient, visiting


@pytest.fixture
def pages(tmp_path: Path, workspace: Path) -> Iterator[PageClient]:
    """The pages of the workspace, for a browser that is signed in."""
    with visiting(tmp_path) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once for a file of tests: while it runs, this thread has a running event loop."""
    path = find_chromium()
    assert path, "there is no Chromium: run python -m tests.support.program_setup"
    options: dict[str, Any] = {"executable_path": path, "args": ["--no-sandbox"]}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**options)
        yield browser
        browser.close()
