"""Notes that try to run something, or to break the pages, in Chromium."""

from urllib.parse import quote

import pytest

from kept import Message
from tests.support.web_site import open_site, served
from tests.support.workspaces import write_note

pytestmark = pytest.mark.browser

ATTACK = "window.attacked = true"
NOTES = {
    "script": f"<script>{ATTACK}</script>\n\n<SCRIPT SRC=//evil.example/x.js></SCRIPT>\n",
    "handlers": f'<img src=x onerror="{ATTACK}"> <body onload="{ATTACK}"> <details open ontoggle="{ATTACK}">\n',
    "links": f'[go](javascript:{ATTACK}) <a href="javascript:{ATTACK}">go</a> [go](data:text/html,<script>)\n',
    "svg": f'<svg onload="{ATTACK}"><script>{ATTACK}</script><foreignObject></foreignObject></svg>\n',
    "css": "<style>* { display: none !important }</style>\n\n<div style='position:fixed;inset:0'>x</div>\n",
    "frames": "<iframe src=https://evil.example></iframe><form action=https://evil.example><button>x</button>\n",
    "images": "![beacon](https://evil.example/beacon.png) ![[../../etc/passwd]] ![x](file:///etc/passwd)\n",
    "table": "|" + " cell |" * 300 + "\n|" + "---|" * 300 + "\n" + ("|" + " x |" * 300 + "\n") * 40,
    "word": "A" * 200_000 + "\n",
    "wikilinks": " ".join(f"[[note {number}]]" for number in range(5_000)) + "\n",
    "nesting": "> " * 500 + "deep\n\n" + "- " * 500 + "deep\n\n" + "[" * 3_000 + "\n",
    "right to left": "\u202egnp.exe \u202d \u2066 \u200f hidden \u0000 \u0007 \u001b[31m \ufeff text\n",
    "front matter": f"---\ntitle: <img src=x onerror={ATTACK}>\ntags: ['<script>{ATTACK}</script>']\n---\nText.\n",
}


@pytest.fixture(scope="module")
def tab(browser, tmp_path_factory):
    """A tab on a memory of hostile notes. It records what was run, asked for or reported."""
    folder = tmp_path_factory.mktemp("hostile")
    workspace = folder / "workspace"
    workspace.mkdir()
    for name, text in NOTES.items():
        write_note(workspace, f"memory/{name}.md", f"# {name} <img src=x onerror='{ATTACK}'>\n\nplover\n\n{text}")
    write_note(workspace, "memory/huge.md", "plover " + "x" * 10_000_000)
    site = open_site(folder)
    session = site.sessions.get_or_create("telegram", f"<img src=x onerror={ATTACK}>")
    for text in NOTES.values():
        site.sessions.append(session.id, Message.of("user", f"plover {text[:5_000]}"))
    with served(site) as link:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.outside, page.dialogs = [], []
        page.on("dialog", lambda dialog: (page.dialogs.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: page.outside.append(request.url) if page.base not in request.url else None)
        page.base = link.partition("/open")[0]
        page.session = session.id
        page.goto(link)
        page.wait_for_url("**/")
        yield page
        page.close()


def is_harmless(tab) -> None:
    assert tab.evaluate("window.attacked") is None
    assert tab.dialogs == []
    assert [url for url in tab.outside if not url.startswith("data:")] == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390, "wider than the window"
    assert tab.locator("main h1, main .searchbox").first.is_visible()
    assert not tab.locator("main iframe[src^='http'], main form[action^='http']").count()


@pytest.mark.parametrize("name", NOTES)
def test_a_hostile_note_runs_nothing_and_breaks_no_layout(tab, name):
    path = quote(f"memory/{name}.md")
    for page in (f"/note/{path}", f"/edit/{path}", f"/changes/{path}"):
        tab.goto(tab.base + page)
        is_harmless(tab)


LISTS = ["/?q=plover", "/timeline", "/notes", "/conversations", "/changes", "/forget?what=plover", "/health"]


@pytest.mark.parametrize("page", [*LISTS, "/conversations/SESSION"])
def test_lists_and_conversations_with_hostile_texts_run_nothing_and_break_no_layout(tab, page):
    tab.goto(tab.base + page.replace("SESSION", tab.session))
    is_harmless(tab)


def test_a_note_of_ten_megabytes_is_left_out_and_named(tab):
    tab.goto(f"{tab.base}/note/memory/huge.md")
    is_harmless(tab)
    assert "huge.md" in tab.locator("main").inner_text()
