"""`kept.base.limits`: UTF-8, one line, a limited length, the estimated number of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.base.limits import clip, estimate_tokens, is_utf8, one_line, printable_line, utf8_safe, utf8_safe_tree


@given(st.text(alphabet=st.characters(codec=None)), st.integers(1, 40))
def test_a_clipped_text_is_never_longer_than_its_limit(text, limit):
    assert len(clip(text, limit)) <= limit
    assert clip(text, len(text)) == text


def test_a_text_is_cut_and_brought_into_one_line():
    assert clip("the bike is blue", 9) == "the bike…"
    assert one_line("  the bike\n\tis  blue\u2028") == "the bike is blue"
    assert printable_line("\x1b[31mred\x07\nbike") == "[31mred bike"


@pytest.mark.parametrize(
    ("text", "safe"),
    [("plain", "plain"), ("é\N{BICYCLE}", "é\N{BICYCLE}"), ("a\ud83db", "a\ufffdb"), ("\ud83d\udeb2", "\N{BICYCLE}")],
)
def test_lone_surrogates_are_replaced_and_pairs_are_joined(text, safe):
    assert utf8_safe(text) == safe
    assert is_utf8(text) == (text == safe)
    assert utf8_safe_tree({text: [text, 1, None]}) == {safe: [safe, 1, None]}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("abcd", 1), ("abcde", 2), ("漢字", 2), ("ไทย", 3), ("한국", 2), ("かな", 2), ("漢abcd", 2), ("𠀀", 1)],
)
def test_dense_scripts_weigh_a_token_for_each_character(text, tokens):
    assert estimate_tokens(text) == tokens
