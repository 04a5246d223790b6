"""Replies are cut into parts that a channel takes, and read as before."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kept.gateway.channel import Channel, split_reply, utf16_length

LINES = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="`~\r\n"), max_size=60),
        st.sampled_from(["", "", "```", "```python", "~~~", "    indented", "word " * 30, "x" * 100, "🙂" * 40]),
    ),
    max_size=25,
)


def bare(text: str) -> str:
    """Return a text without the space and fences that a cut may add or remove."""
    return re.sub(r"\s", "", re.sub(r"(?m)^\s*(`{3,}|~{3,})[^`\n]*$", "", text))


def split(text: str, limit: int, measure=len) -> list[str]:
    channel = Channel()
    channel.limit, channel.measure = limit, measure
    return split_reply(text, channel)


@given(LINES, st.integers(40, 120))
def test_every_part_fits_and_nothing_that_is_said_is_lost(lines, limit):
    text = "\n".join(lines)
    parts = split(text, limit, utf16_length)
    assert all(part.strip() and utf16_length(part) <= limit for part in parts)
    if not re.search(r"(?m)^\s*(`{3,}|~{3,})", text):
        assert "".join(map(bare, parts)) == bare(text)
    else:
        assert "".join(map(bare, parts)).replace("`", "").replace("~", "") == bare(text).replace("`", "").replace(
            "~", ""
        )


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="`\r\n"), max_size=50), max_size=60))
def test_a_fence_that_is_cut_is_closed_and_opened_again(code):
    text = "Look:\n\n```python\n" + "\n".join(code) + "\n```\n\nThat is all."
    for part in split(text, 120):
        fences = [line for line in part.split("\n") if line.startswith("```")]
        assert len(fences) % 2 == 0
        assert all(line == "```python" for line in fences[::2])
        assert all(line == "```" for line in fences[1::2])


def test_paragraphs_stay_together_where_they_fit():
    text = "First paragraph,\nof two lines.\n\nSecond one.\n\nThe third is here."
    assert split(text, 45) == ["First paragraph,\nof two lines.\n\nSecond one.", "The third is here."]


def test_a_long_paragraph_is_cut_between_lines_then_words_then_letters():
    assert split("a line\nanother line", 15) == ["a line", "another line"]
    assert split("some words in a row", 10) == ["some words", "in a row"]
    assert split("abcdefghij", 4) == ["abcd", "efgh", "ij"]


def test_emoji_count_as_telegram_counts_them():
    assert utf16_length("a🙂") == 3
    assert split("🙂" * 5, 4, utf16_length) == ["🙂🙂", "🙂🙂", "🙂"]
