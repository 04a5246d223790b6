"""The shortcuts of the built-in tokenizer give what the long way gives."""

from __future__ import annotations

import random

import pytest

from kept.embedding.static import PieceEncoder, StaticEmbedder

FIRST_PLAIN_PIECE = 259


@pytest.fixture(scope="module")
def encoder() -> PieceEncoder:
    return StaticEmbedder()._encoder


def test_every_plain_piece_is_what_its_own_letters_merge_to(encoder):
    plain = [piece for piece, number in encoder._pieces.items() if number >= FIRST_PLAIN_PIECE]
    assert len(plain) > 30_000
    assert [piece for piece in plain if encoder._merge_long(piece) != [piece]] == []


def test_words_merge_the_same_with_and_without_a_heap(encoder):
    draw = random.Random(1)
    letters = "▁▁aeiorstnlmb'-./éあ漢😀"
    for _ in range(2_000):
        unit = "".join(draw.choice(letters) for _ in range(draw.randint(1, 48)))
        assert encoder._merge_word(unit) == encoder._merge_long(unit)
