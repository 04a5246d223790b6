"""Two versions of a note become one, and no line that somebody wrote is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.working_copy.note_merge import merge_text
from kept.working_copy.passage_merge import MergeHosts, Sides

HOSTS = MergeHosts("skerry", "harbour")
LINES = st.lists(st.sampled_from([b"a", b"b", b"- c", b"- d", b"", b"* * *", b"```", b"e  "]), max_size=7)
TEXTS = LINES.map(b"\n".join)
DAYS = st.lists(st.tuples(st.sampled_from([b"09:30", b"09:31", b"10:00"]), LINES), max_size=4).map(
    lambda entries: b"# Day\n\n" + b"\n".join(b"## " + time + b"\n\n" + b"\n".join(lines) for time, lines in entries)
)


def words(text: bytes) -> set[bytes]:
    return {line.strip() for line in text.split(b"\n") if line.strip() and not line.startswith(b"## ")}


@settings(max_examples=400)
@given(base=st.one_of(TEXTS, DAYS), ours=st.one_of(TEXTS, DAYS), theirs=st.one_of(TEXTS, DAYS), is_daily=st.booleans())
def test_every_line_that_a_side_wrote_is_in_the_result(base, ours, theirs, is_daily):
    merged = merge_text(Sides(base, ours, theirs), HOSTS, is_daily=is_daily)
    assert merged is not None
    assert (words(ours) | words(theirs)) - words(base) - words(merged.data) == set()


@settings(max_examples=200)
@given(base=st.one_of(TEXTS, DAYS), side=st.one_of(TEXTS, DAYS))
def test_a_side_that_changed_nothing_changes_nothing(base, side):
    for sides in (Sides(base, side, base), Sides(base, base, side), Sides(base, side, side)):
        assert merge_text(sides, HOSTS, is_daily=True).data == side


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        (b"a", b"a\nb", b"a\nc\n", b"a\nc\nb\n"),
        (b"a\nb", b"a\nc", b"x\nb", b"x\nc"),
        (b"a\r\nb\r\n", b"a\nb\n", b"a\r\nb\r\nc\r\n", b"a\nb\nc\n"),
        (b"a\nb\nc\n", b"a\nc\n", b"a\nB\nc\n", b"a\nB\nc\n"),
        (b"", b"# T\n\n- a\n- b\n", b"# T\n\n- a\n- c\n", b"# T\n\n- a\n- c\n- b\n"),
        (b"---\nk: 1\n---\n", b"---\nk: 2\n---\n", b"---\nk: 3\n---\n", b"---\n# version of harbour\nk: 3\n"
         b"# version of skerry\nk: 2\n# end of versions\n---\n"),
    ],
)  # fmt: skip
def test_ends_of_lines_and_files_and_front_matter(base, ours, theirs, merged):
    assert merge_text(Sides(base, ours, theirs), HOSTS).data == merged


def test_a_third_version_joins_the_two_that_are_there():
    two = b"<!-- version of harbour -->\nb\n<!-- version of lantern -->\nc\n<!-- end of versions -->\n"
    merged = merge_text(Sides(b"a\n", b"d\n", two), HOSTS)
    assert merged.data == two.replace(b"<!-- end", b"<!-- version of skerry -->\nd\n<!-- end")
    assert merge_text(Sides(b"a\n", b"c\n", two), HOSTS).data == two


def test_entries_of_one_minute_stay_apart_and_a_heading_in_code_is_none():
    day = b"# Day\n\n## 09:30\n\nX\n"
    merged = merge_text(Sides(day, day + b"\n* * *\n\nY\n", day + b"\n* * *\n\nZ\n"), HOSTS, is_daily=True)
    assert merged.data == day + b"\n* * *\n\nZ\n\n* * *\n\nY\n"
    code = b"# Day\n\n## 09:30\n\n```\n## 08:00\n```\n"
    merged = merge_text(Sides(code, code + b"\n## 10:00\n\nB\n", code + b"\n## 09:45\n\nA\n"), HOSTS, is_daily=True)
    assert merged.data == code + b"\n## 09:45\n\nA\n\n## 10:00\n\nB\n"


def test_what_is_no_text_is_not_merged():
    assert merge_text(Sides(b"", b"\0a", b"\0b"), HOSTS) is None
    assert merge_text(Sides(b"a\n", b"b\n", "c\n".encode("utf-16")), HOSTS) is None
