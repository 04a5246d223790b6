"""Markdown of a note as HTML that may be put into a page."""

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from kept.server.web.note_html import NoteSetting, render_note

SETTING = NoteSetting("memory/n.md", {"Other": "memory/other.md", "sub/x": "memory/sub/x.md"})


def rendered(text: str, setting: NoteSetting = SETTING) -> BeautifulSoup:
    return BeautifulSoup(render_note(text, setting), "html.parser")


def addresses(text: str) -> list[str]:
    return [link["href"] for link in rendered(text).select("a[href]")]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("[[Other]]", "/note/memory/other.md"),
        ("[[Other|label]]", "/note/memory/other.md"),
        ("[[Other#Heading]]", "/note/memory/other.md"),
        ("[x](sub/x.md)", "/note/memory/sub/x.md"),
        ("[x](new.md)", "/note/memory/new.md"),
        ("[x](../USER.md#L3)", "/note/USER.md"),
        ("[x](a%20b.pdf)", "/file/memory/a%20b.pdf"),
        ("[[Missing]]", "/?q=Missing"),
        ("#home/garden", "/notes?tag=home/garden"),
        ("<https://example.com/?a=1&b=2>", "https://example.com/?a=1&b=2"),
        ("[x](#heading)", "#heading"),
    ],
)
def test_links_lead_to_our_own_pages(text, address):
    assert addresses(text) == [address]


@pytest.mark.parametrize("text", ["`[[Other]] #tag`", "    [[Other]]", "C#", "issue#5", "#1", "a [[ b ]", "&#39;"])
def test_code_and_other_signs_are_no_links(text):
    assert addresses(text) == []


def test_a_link_out_of_the_workspace_is_not_one_of_ours():
    assert not any(address.startswith("/file") for address in addresses("[x](../../etc/passwd.txt) ![[../../x.png]]"))


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt&colon;alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:msgbox(1))",
    "![x](javascript:alert(1))",
    "<svg onload=alert(1)>",
    "<style>*{display:none}</style>",
    "<iframe src=https://evil.example></iframe>",
    '[x](https://e.example "onmouseover=alert(1)")',
    "[[javascript:alert(1)]]",
    "[[Other|<img src=x onerror=alert(1)>]]",
    '```x" onclick="alert(1)\ncode\n```',
    "<a href='javascript:alert(1)'>x</a>",
    "[x]: javascript:alert(1)\n\n[x]",
]


def is_inert(page: BeautifulSoup) -> bool:
    for element in page.find_all(True):
        if element.name in ("script", "style", "iframe", "svg", "object", "form", "meta", "base", "link"):
            return False
        for name, value in element.attrs.items():
            if name.startswith("on") or name == "style":
                return False
            if name in ("href", "src") and str(value).strip().lower().startswith(("javascript:", "data:", "vbscript:")):
                return False
    return True


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_note_runs(text):
    assert is_inert(rendered(text))


@given(st.lists(st.sampled_from([*HOSTILE, "[[", "]]", "![", "](", "|", "\n", "\n\n", "- ", "> ", "`", "*", "#", " "])))
def test_no_mixture_of_them_runs(pieces):
    assert is_inert(rendered("".join(pieces)))


def test_an_image_of_another_server_is_a_link():
    page = rendered("![a cat](https://pictures.example/cat.png) ![](//evil.example/x.gif)")
    assert not page.select("img")
    assert "a cat (image on pictures.example, not loaded)" in page.text


def test_an_image_of_the_workspace_is_shown():
    page = rendered("![plan](img/plan.png) ![[photo.jpg]]")
    assert [image["src"] for image in page.select("img")] == ["/file/memory/img/plan.png", "/file/memory/photo.jpg"]
    assert page.select("img")[0]["alt"] == "plan"


def test_every_block_has_the_number_of_its_line():
    page = rendered("# One\n\ntext\nmore\n\n- a\n- b\n\n```\ncode\n```\n")
    assert [element["id"] for element in page.select("[id]")] == ["L1", "L3", "L6", "L7", "L9"]


def test_cited_lines_are_marked_and_can_be_jumped_to():
    setting = NoteSetting("n.md", {}, first_line=10, cited=(13, 13))
    page = rendered("# One\n\nfirst\nsecond\n\nthird\n", setting)
    assert [element.text for element in page.select(".cited")] == ["first\nsecond"]
    assert page.select_one("#L13").text == "first\nsecond"


def test_tasks_tables_and_struck_text_are_shown():
    page = rendered("- [ ] open\n- [x] done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n~~old~~\n")
    assert [box.has_attr("checked") for box in page.select("input[type=checkbox][disabled]")] == [False, True]
    assert [cell.text for cell in page.select("td")] == ["1", "2"]
    assert page.select_one("s").text == "old"


@given(st.text(max_size=300))
def test_any_text_can_be_rendered(text):
    assert is_inert(rendered(text))
