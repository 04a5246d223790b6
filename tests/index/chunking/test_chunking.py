"""From text to chunks: nothing is lost, every line is cited exactly, and an edit stays in its section."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kept.base.limits import CHARS_PER_TOKEN, weigh
from kept.base.records import ENTRY_RULE, Chunk
from kept.index.chunking import markdown
from kept.index.chunking.markdown import ChunkingBudget, ChunkSize, chunk_markdown, cut_note
from kept.index.chunking.properties import read_properties

SMALL = ChunkSize(tokens=16, overlap=4)

# Lines that mean something in Markdown, so that they meet in every order.
PIECES = [
    "", "", "text", "more words on a line", "# One", "## Two", "### Three", "#", "# ", "#hash", "===", "---",
    "* * *", "***", "- item", "  - nested", "    code", "\tcode", "1. first", "> quote", "> # quoted heading",
    "```", "~~~", "```python", "````", "| a | b |", "|---|---|", "<div>", "</div>", "<!--", "-->",
    "[ref]: http://x", "[ref]:", "...", "漢字かな交じり文", "ภาษาไทย", "😀", " ", "\t", "\u2028", "\x0c", "\x85",
    "\xa0", "\\", "- ", "-", "*", "&amp;", "word " * 40, "x" * 200, "漢" * 50,
]  # fmt: skip
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=30).map("\n".join)
ANY_TEXT = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=300)
NAMES = st.sampled_from(["memory/x.md", "MEMORY.md", "USER.md"])
SIZES = st.builds(ChunkSize, tokens=st.integers(16, 60), overlap=st.integers(0, 60))


def check(text: str, chunks: list[Chunk], size: ChunkSize) -> None:
    """What holds for every note."""
    lines = text.split("\n")
    covered: set[int] = set()
    pieces: dict[int, list[str]] = {}
    for chunk in chunks:
        assert 1 <= chunk.start_line <= chunk.end_line <= len(lines)
        assert weigh(chunk.text) <= size.tokens * CHARS_PER_TOKEN
        assert chunk.text.strip()
        cited = "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
        if chunk.text == cited:
            covered.update(range(chunk.start_line, chunk.end_line + 1))
        else:
            assert chunk.start_line == chunk.end_line, "only one over-long line is cut"
            assert chunk.text in cited
            pieces.setdefault(chunk.start_line, []).append(chunk.text)
    for number, parts in pieces.items():
        assert weigh(lines[number - 1]) + 1 > size.tokens * CHARS_PER_TOKEN
        rest = lines[number - 1]
        for part in sorted(parts, key=len, reverse=True):
            rest = rest.replace(part, "")
        assert not rest.strip() or number in covered
        covered.add(number)
    properties = read_properties(lines)
    first = 0 if properties.is_text else properties.lines
    required = (number for number, line in enumerate(lines, 1) if line.strip() not in ("", ENTRY_RULE))
    assert covered >= {number for number in required if number > first}
    assert chunks or not text.strip()
    assert [chunk.start_line for chunk in chunks] == sorted(chunk.start_line for chunk in chunks)


@given(text=MARKDOWN | ANY_TEXT, name=NAMES, size=SIZES)
@example(text="", name="x.md", size=SMALL)
@example(text="\n\n \n", name="x.md", size=SMALL)
@example(text="---\n---\n# a", name="x.md", size=SMALL)
@example(text="---\na: b\n", name="x.md", size=SMALL)
def test_every_line_that_is_not_blank_is_in_a_chunk_that_cites_exactly_its_lines(text, name, size):
    check(text, chunk_markdown(text, name=name, size=size), size)


@given(text=MARKDOWN, name=NAMES, size=SIZES)
def test_every_word_of_the_note_is_in_what_is_embedded(text, name, size):
    embedded = " ".join(chunk.embed_text for chunk in chunk_markdown(text, name=name, size=size))
    for word in ("text", "words", "item", "nested", "quote", "first", "code", "Three"):
        if word in text:
            assert word in embedded


# sections


def texts(text: str, **options) -> list[str]:
    return [chunk.text for chunk in chunk_markdown(text, **options)]


def headings(text: str, **options) -> list[str]:
    return [chunk.heading for chunk in chunk_markdown(text, **options)]


def test_a_note_is_cut_at_its_headings_and_one_without_a_text_goes_with_the_section_below_it():
    assert texts("intro\n\n# A\n\na\n\n## B\n\nb\n\n# C\nc\n") == ["intro", "# A\n\na", "## B\n\nb", "# C\nc"]
    assert texts("# Top\n\n## Mid\n\ntext\n\n## Alone\n") == ["# Top\n\n## Mid\n\ntext", "## Alone"]


def test_the_heading_path_names_every_level_above():
    note = "# Top\n\nx\n\n## Mid\n\nx\n\n#### Deep\n\nx\n\n## Other\n\nx\n\n# Next\n\nx\n"
    assert headings(note) == ["Top", "Top > Mid", "Top > Mid > Deep", "Top > Other", "Next"]


def test_entries_between_rules_are_passages_under_the_same_heading():
    note = "# Day\n\n## 09:05\n\none\n\n* * *\n\ntwo\n\n* * *\n\n## 10:00\n\n* * *\n\nthree\n"
    assert texts(note) == ["# Day\n\n## 09:05\n\none", "two", "## 10:00\n\n* * *\n\nthree"]
    assert headings(note) == ["Day > 09:05", "Day > 09:05", "Day > 10:00"]


def test_another_rule_or_one_in_code_does_not_split():
    for note in ("one\n\n---\n\ntwo", "```\none\n\n* * *\n\ntwo\n```", "> one\n>\n> * * *\n>\n> two"):
        assert texts(note) == [note]


def test_a_paragraph_above_a_rule_is_a_paragraph_and_is_embedded_whole():
    """Markdown takes it for a heading of many lines; whoever wrote it meant a rule below a paragraph."""
    note = "# Top\n\nWe met Ada.\nShe likes tea.\nAnd lighthouses.\n---\n\nafter\n"
    (chunk,) = chunk_markdown(note)
    assert chunk.heading == "Top"
    for word in ("Ada", "tea", "lighthouses", "after"):
        assert word in chunk.embed_text


@pytest.mark.parametrize(
    "fenced",
    [
        "```\n# not a heading\n```", "~~~~\n# no\n~~~\n## no\n~~~~", "    # indented code",
        "```\n# unterminated\n\n## still\n", "> # quoted", "- # in a list", "<!--\n# commented\n-->",
        "<pre>\n# raw\n</pre>", "\\# escaped", "#hashtag", "####### seven",
    ],
)  # fmt: skip
def test_what_looks_like_a_heading_and_is_none_does_not_split(fenced):
    assert headings(f"# Real\n\nbefore\n\n{fenced}") == ["Real"]


def test_front_matter_is_neither_a_chunk_nor_a_heading():
    (chunk,) = chunk_markdown("---\ntitle: x\ntags: [a]\n---\n\n# Top\n\ntext\n")
    assert (chunk.text, chunk.heading, chunk.start_line) == ("# Top\n\ntext", "Top", 6)
    assert chunk.embed_text == "Top\n\ntext"


def test_a_note_of_properties_alone_is_found_by_them():
    (chunk,) = chunk_markdown("---\ntitle: Ada\nphone: 5054\n---\n")
    assert (chunk.text, chunk.start_line, chunk.end_line) == ("---\ntitle: Ada\nphone: 5054\n---", 1, 4)


@pytest.mark.parametrize("front", ["a: [", "just words", "a: *b", "- a\n- b", "{{date}}: x"])
def test_front_matter_that_cannot_be_read_is_a_passage(front):
    first, second = chunk_markdown(f"---\n{front}\n---\n\n# Top\n\ntext\n")
    assert (first.text, first.heading) == (f"---\n{front}\n---", "")
    assert second.heading == "Top"


@pytest.mark.parametrize("name", ["MEMORY.md", "memory.md", "USER.md", "notes/MEMORY.md"])
def test_long_term_memory_is_cut_by_the_item(name):
    note = "# Memory\n\n- Ada likes tea.\n- Bob:\n  - coffee\n  - no sugar\n\n1. first\n2. second\n\nA paragraph.\n"
    assert texts(note, name=name) == [
        "# Memory\n\n- Ada likes tea.",
        "- Bob:\n  - coffee\n  - no sugar",
        "1. first",
        "2. second",
        "A paragraph.",
    ]
    assert set(headings(note, name=name)) == {"Memory"}
    assert len(texts(note, name="memory/x.md")) == 1


# long sections


def test_a_long_section_is_cut_at_paragraphs_and_overlaps_only_inside_it():
    paragraphs = [f"Paragraph {n} " + "word " * 20 for n in range(12)]
    note = "# A\n\n" + "\n\n".join(paragraphs) + "\n\n# B\n\nnext"
    size = ChunkSize(tokens=100, overlap=40)
    chunks = chunk_markdown(note, size=size)
    check(note, chunks, size)
    inside = [chunk for chunk in chunks if chunk.heading == "A"]
    assert len(inside) > 2
    for before, after in pairwise(inside):
        assert before.start_line < after.start_line <= before.end_line, "each begins with the end of the one before"
    assert chunks[-1].text == "# B\n\nnext"
    assert all(chunk.embed_text.startswith("A\n") for chunk in inside)


def test_without_overlap_no_line_is_in_two_chunks():
    note = "\n".join(f"line {n} " + "word " * 10 for n in range(100))
    chunks = chunk_markdown(note, size=ChunkSize(tokens=50, overlap=0))
    for before, after in pairwise(chunks):
        assert after.start_line == before.end_line + 1


@pytest.mark.parametrize(
    "line", ["x" * 100_000, "word " * 20_000, "漢" * 100_000, "😀" * 50_000, "a" + " " * 99_999 + "b"]
)
def test_a_line_of_a_hundred_thousand_characters_is_cut_and_covered(line):
    note = f"# Top\n\nbefore\n{line}\nafter"
    check(note, chunk_markdown(note), ChunkSize())


# edits


BODIES = st.lists(
    st.sampled_from(["text", "- item", "> quote", "", "word " * 30, "| a |", "漢字"]), min_size=1, max_size=6
)


@given(bodies=st.lists(BODIES, min_size=2, max_size=5), edited=BODIES, at=st.integers(0, 4), name=NAMES)
def test_editing_one_section_changes_what_is_embedded_of_that_section_only(bodies, edited, at, name):
    at %= len(bodies)

    def note(sections: list[list[str]]) -> str:
        return "\n\n".join(f"# S{n}\n\n" + "\n".join(body) for n, body in enumerate(sections))

    def of_others(sections: list[list[str]]) -> list[tuple[str, str]]:
        chunks = chunk_markdown(note(sections), name=name, size=ChunkSize(tokens=40, overlap=8))
        return [(chunk.heading, chunk.embed_text) for chunk in chunks if chunk.heading != f"S{at}"]

    # A section without a text is taken into the next one, so each is given one.
    bodies = [["begin", "", *body] for body in bodies]
    assert of_others([*bodies[:at], ["begin", "", *edited], *bodies[at + 1 :]]) == of_others(bodies)


# hostile notes


@pytest.mark.parametrize("name", ["memory/x.md", "MEMORY.md"])
@pytest.mark.parametrize(
    "note",
    [
        "> " * 5000 + "x",
        ">" * 5000 + "x",
        "- " * 5000 + "x",
        "1. " * 5000 + "x",
        "> - " * 2500 + "x",
        "\n".join("> " * depth + "x" for depth in range(300)),
        "\n".join("  " * depth + "- x" for depth in range(300)),
        "```\n" + "# h\ntext\n" * 5000,
        "```\n" * 5000,
        "# h\n" * 5000,
        "---\n" * 5000,
        "a\n" * 5000 + "===\n",
        "[" * 50_000,
        "[a]: b\n" * 3000,
        "[a\n" * 5000,
        "<!--\n" * 5000,
        "|a" * 2000 + "|\n" + "|-" * 2000 + "|\n|x|",
        "\t" * 20_000 + "x",
        "\\" * 50_000,
        "*_" * 25_000,
        "<" * 50_000,
    ],
    ids=lambda note: repr(note[:12]),
)
def test_hostile_notes_are_cut_correctly_and_at_once(note, name):
    check(note, chunk_markdown(note, name=name), ChunkSize())


@pytest.mark.parametrize(
    "note", ["# " + "x" * 200_000, "# " + "x " * 100_000 + "\n\nbody\n", "y" * 200_000 + "\n===\n\nbody"]
)
def test_a_heading_without_end_does_not_go_into_every_chunk(note):
    chunks = chunk_markdown(note)
    check(note, chunks, ChunkSize())
    assert sum(len(chunk.embed_text) + len(chunk.heading) for chunk in chunks) < 3 * len(note)


def test_headings_of_every_level_as_long_as_they_may_be_keep_what_is_embedded_bounded():
    note = "\n".join(f"{'#' * level} {'h' * 150}{level}\n\ntext {level}\n" for level in range(1, 7))
    assert max(len(chunk.embed_text) for chunk in chunk_markdown(note)) < 1200


# budgets

TINY = ChunkingBudget(lines=12, steps=40, tokens=20, chunks=6)
QUOTES = "> " * 19 + "a\n"


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("\n".join), st.sampled_from(["a.md", "MEMORY.md"]))
def test_a_note_beyond_its_budget_is_cut_as_correctly_as_any(note, name):
    check(note, cut_note(note, name=name, size=SMALL, budget=TINY).chunks, SMALL)


@pytest.mark.parametrize(
    "budget", [ChunkingBudget(lines=3), ChunkingBudget(steps=3), ChunkingBudget(tokens=3), ChunkingBudget(chunks=1)]
)
def test_each_part_of_the_budget_makes_a_note_be_cut_by_lines_alone(budget):
    note = "# One\n\n- first\n\n# Two\n\nsecond\n"
    assert [chunk.heading for chunk in cut_note(note).chunks] == ["One", "Two"]
    cut = cut_note(note, budget=budget)
    assert cut.plain
    assert [(chunk.start_line, chunk.end_line, chunk.heading) for chunk in cut.chunks] == [(1, 7, "")]


@pytest.mark.parametrize(
    "note",
    [
        "#\n" * 500_000,
        QUOTES + "b\n" * 20_000,
        "[a]: b 'x\n" + "y\n" * 500_000,
        "|" + "a|" * 900_000 + "\n|" + "-|" * 900_000 + "\n",
        "a" + "\\|" * 900_000 + "\n-|-\n",
        "a|b\n-|-\n" + "\\|" * 900_000 + "\n",
        "<a " + "b=c " * 900_000 + ">\n",
    ],
    ids=lambda note: repr(note[:12]),
)
def test_no_note_below_the_limit_of_size_costs_more_than_its_budget(note):
    cut = cut_note(note)
    assert len(cut.chunks) < 5_000
    assert cut.chunks[-1].end_line == len(note.rstrip("\n").split("\n"))


def test_a_link_definition_of_a_few_lines_is_no_block_and_one_without_end_is():
    short = "first\n\n[a]: b\n'a\ntitle'\n\nlast\n"
    assert texts(short, name="MEMORY.md") == ["first\n\n[a]: b\n'a\ntitle'", "last"]
    long = "first\n\n[a]: b '\n" + "y\n" * 40 + "'\n\nlast\n"
    assert len(texts(long, name="MEMORY.md")) == 3


_PLAIN = ["", "", "# Today", "## 09:05", "### Tea ##", "Anna drinks tea", "ä", "²", "漢字", "* * *"]
_ODD = ["- item", "> quote", "1. first", "```", "    code", "  more", "---", "===", "| a |", "_a_", "#", "* * * *"]


@given(st.lists(st.sampled_from(_PLAIN), max_size=14), st.lists(st.sampled_from(_ODD), max_size=1), SIZES, NAMES)
def test_a_plain_note_is_cut_as_the_parser_would_cut_it(lines, odd, size, name):
    text = "\n".join([*lines[:6], *odd, *lines[6:]])
    plain = cut_note(text, name=name, size=size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown, "_PLAIN_LINES", 0)
        assert cut_note(text, name=name, size=size) == plain
