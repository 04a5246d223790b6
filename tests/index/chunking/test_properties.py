"""Properties of a note: front matter, and the page properties of Logseq."""

import datetime as dt

import pytest

from kept.index.chunking.properties import read_properties


def read(text: str):
    return read_properties(text.split("\n"))


def test_front_matter_gives_title_aliases_tags_and_times():
    properties = read(
        "---\ntitle: Ada\naliases: [Countess, 'The Enchantress']\ntags:\n  - person\n  - '#vip/close'\n"
        "created: 2026-01-15\nupdated: 2026-02-01T10:30\nstatus: active\n---\ntext"
    )
    assert (properties.lines, properties.is_text, properties.warning) == (10, False, None)
    assert properties.title == "Ada"
    assert properties.aliases == ("Countess", "The Enchantress")
    assert properties.tags == ("person", "vip/close")
    assert properties.created == dt.datetime(2026, 1, 15)
    assert properties.updated == dt.datetime(2026, 2, 1, 10, 30)
    assert properties.words == "person vip/close status active"


@pytest.mark.parametrize(
    ("line", "tags"),
    [
        ("tags: work, home", ("work", "home")),
        ("tags: work home", ("work", "home")),
        ("tag: work", ("work",)),
        ("tags: [2024, yes]", ("2024", "yes")),
        ("tags:", ()),
        ("tags: null", ()),
        ("tags: [a, a]", ("a",)),
    ],
)
def test_tags_are_a_list_or_a_text(line, tags):
    assert read(f"---\n{line}\n---\n").tags == tags


@pytest.mark.parametrize(
    ("value", "created"),
    [
        ("2026-01-15", dt.datetime(2026, 1, 15)),
        ("2026/01/15", dt.datetime(2026, 1, 15)),
        ("2026-01-15 14:30", dt.datetime(2026, 1, 15, 14, 30)),
        ("'[[2026-01-15]]'", dt.datetime(2026, 1, 15)),
        ("2026-01-15T14:30:00Z", dt.datetime(2026, 1, 15, 14, 30, tzinfo=dt.UTC)),
        ("2026-02-30", None),
        ("last spring", None),
    ],
)
def test_created_is_read_as_people_write_it(value, created):
    assert read(f"---\ncreated: {value}\n---\n").created == created


def test_titles_stay_as_they_are_written():
    assert read("---\ntitle: 007\n---\n").title == "007"
    assert read("---\ntitle: 1.10\n---\n").title == "1.10"
    assert read("---\ntitle: no\n---\n").title == "no"


@pytest.mark.parametrize(
    ("front", "problem"),
    [
        ("a: b: c", "line 2: mapping values are not allowed"),
        ("a: &x [1]\nb: *x", "anchors (&x)"),
        ("a: " + "[" * 600 + "]" * 600, "nested too deeply"),
        ("a: " + "x" * 70_000, "more than 64,000 characters"),
        ("{{date}}: x", "line 2"),
    ],
    ids=["yaml", "anchor", "nesting", "length", "template"],
)
def test_front_matter_that_cannot_be_read_is_text_with_a_warning(front, problem):
    properties = read(f"---\n{front}\n---\n\ntext")
    assert properties.is_text
    assert problem in properties.warning
    assert properties.warning.endswith("indexed as text")


def test_text_between_two_rules_is_text_without_a_warning():
    properties = read("---\nA remark.\n---\n")
    assert (properties.is_text, properties.warning) == (True, None)


def test_the_properties_of_a_logseq_page():
    properties = read(
        "title:: Ada Lovelace\nalias:: Countess, Enchantress\ntags:: [[person]], #vip\ntype:: human\n\n- x"
    )
    assert properties.lines == 4
    assert properties.title == "Ada Lovelace"
    assert properties.aliases == ("Countess", "Enchantress")
    assert properties.tags == ("person", "vip")
    assert "human" in properties.words


@pytest.mark.parametrize("text", ["std::vector is fast", "a text: b", "", "x", "--- a"])
def test_other_text_has_no_properties(text):
    assert read(text).lines == 0
