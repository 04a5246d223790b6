"""The neighbourhood of a note."""

from __future__ import annotations

from kept.server.web.screens.graph_screen import MOST_SHARING, choose_neighbours
from tests.support.web_site import texts
from tests.support.workspaces import write_note


def test_links_backlinks_and_shared_tags_are_drawn_and_listed(pages, workspace):
    write_note(workspace, "memory/a.md", "# A\n\n[[b]] and [[c]] #rare\n")
    write_note(workspace, "memory/b.md", "# B\n\n[[a]]\n")
    write_note(workspace, "memory/c.md", "# C\n\n[[b]]\n")
    write_note(workspace, "memory/d.md", "# D\n\n#rare\n")
    write_note(workspace, "memory/e.md", "# E\n\nAlone.\n")
    page = pages.page("/graph/memory/a.md")
    assert texts(page, ".list .title") == ["B", "C", "D"]
    assert texts(page, ".list .excerpt") == ["both link to each other", "this note links to it", "shares #rare"]
    assert sorted(line["class"][1] for line in page.select("line.edge")) == ["both", "links-to", "tag"]
    assert {link["href"] for link in page.select("svg.graph a")} == {
        "/graph/memory/b.md", "/graph/memory/c.md", "/graph/memory/d.md", "/note/memory/a.md",
    }  # fmt: skip


def test_a_note_alone_says_how_to_link(pages, workspace):
    write_note(workspace, "memory/e.md", "# E\n\nAlone.\n")
    assert "No neighbours" in pages.page("/graph/memory/e.md").text
    assert pages.get("/graph/memory/none.md").status_code == 404


def test_a_tag_of_very_many_notes_says_nothing():
    shared = {"#common": [f"n{number}" for number in range(18)], "#rare": ["x", "y"]}
    neighbours, left_out = choose_neighbours([], [], shared, {})
    assert ([neighbour.path for neighbour in neighbours], left_out) == (["x", "y"], 0)
    many = {f"#t{number}": [f"m{number}"] for number in range(40)}
    neighbours, left_out = choose_neighbours([], [], many, {})
    assert (len(neighbours), left_out) == (MOST_SHARING, 40 - MOST_SHARING)
