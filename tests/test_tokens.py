"""The estimated length of a text in tokens."""

from __future__ import annotations

import pytest

from kept.tokens import estimate_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcd", 1),
        ("abcde", 2),
        ("漢字", 2),
        ("ไทย", 3),
        ("한국", 2),
        ("かな", 2),
        ("漢abcd", 2),
        ("é" * 4, 1),
        ("𠀀", 1),
    ],
)
def test_dense_scripts_weigh_a_token_for_each_character(text, tokens):
    assert estimate_tokens(text) == tokens
