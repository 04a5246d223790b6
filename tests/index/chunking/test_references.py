"""Tags and links in the text of a note."""

import pytest

from kept.base.listings import FoundLink
from kept.index.chunking.markdown import cut_note
from kept.index.chunking.properties import MAX_LINKS


def tags(text: str) -> list[str]:
    return [tag.tag for tag in cut_note(text).references.tags]


def links(text: str) -> list[FoundLink]:
    return list(cut_note(text).references.links)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#work at the start", ["work"]),
        ("in the #middle, and (#brackets)", ["middle", "brackets"]),
        ("#area/home and #Area//Home/", ["area/home", "Area/Home"]),
        ("#käse #日本 #a_b-c #y1984 #2024-01", ["käse", "日本", "a_b-c", "y1984", "2024-01"]),
        ("#[[two words]]", ["two words"]),
        ("#facade #cafe", ["facade", "cafe"]),
        ("# Heading\n## 15:09", []),
        ("issue #123, colours #1e90ff #fff #FFFFFF #abc123", []),
        ("https://x.com/a#frag C# a#b \\#escaped", []),
        ("[[note#heading]] [[#here]] [x](#there) [x](note.md#part)", []),
        ("`#code` and ``a ` #code``", []),
        ("```\n#fenced\n```\n\n    #indented\n\n- item\n\n  ~~~\n  #nested\n  ~~~", []),
        ("a `b #yes", ["yes"]),
    ],
)
def test_a_tag_is_what_obsidian_takes_for_one(text, expected):
    assert tags(text) == expected


def test_links_have_their_line_target_heading_and_label():
    assert links("---\nup: '[[Index]]'\n---\n\n[[a/Note#Part|shown]]\n\n![[Other]] and [x](sub/the%20plan.md#top)") == [
        FoundLink(2, "Index"),
        FoundLink(5, "a/Note", "Part", "shown"),
        FoundLink(7, "Other", is_embed=True),
        FoundLink(7, "sub/the plan", "top", is_path=True),
    ]


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("[x](<my note.md>) [y](a(b).md 'title')", ["my note", "a(b)"]),
        ("[x]\n\n[x]: ../other.md", ["../other"]),
        ("[![i](pic.png)](note.md)", ["note"]),
        ("| [[a\\|b]] |\n|---|", ["a"]),
        ("[[note^block]] [[v1.2 plan]] [[note.md]]", ["note", "v1.2 plan", "note"]),
        ("![[pic.png]] [[paper.pdf]] [[#here]] [x](http://x.com/a.md) [x](mailto:a@b.md) [x](a.txt)", []),
        ("`[[code]]`\n\n```\n[[code]]\n```", []),
    ],
)
def test_only_links_to_notes_count(text, targets):
    assert [link.target for link in links(text)] == targets


@pytest.mark.parametrize("piece", ["[[", "](", "#", "`", "[[a", "](a", "](<", "` `` ", "#a", "[x]: ", "![[a|", "[[a]]"])
def test_hostile_notes_are_read_at_once(piece):
    text = piece * (1_000_000 // len(piece))
    references = cut_note(text).references
    assert len(references.links) <= MAX_LINKS
    assert references.is_cut == (piece == "[[a]]")
