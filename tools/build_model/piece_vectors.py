"""Vectors of all word pieces: a part that knows English, and a part that knows what fifteen languages have in common.

The vocabulary is that of the sentence encoder, and the words of the English vectors that it would split.

English part: the sum of the English vectors (WordLlama) of a piece. A piece with a character that they do not know,
such as a Thai one, has none, and neither has a space.

Shared part: the piece goes through the sentence encoder as a text of its own. The vectors are centred and weighted by
a / (a + p) with the probability p of the piece, so that a sum over a text is not about its frequent words (Arora et
al. 2017, "A simple but tough-to-beat baseline").

Pieces without a letter, which are numbers and punctuation, count a third in both parts: the date and the time above a
note are not what it is about.

Each part is reduced to the directions in which texts differ most (PCA).
"""

from __future__ import annotations

import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from build_model.sentence_encoder import SentenceEncoder
from build_model.sources import Sources

PART_DIMS = 192
RARITY = 3e-5
"""The a of the weights: pieces that are much more frequent than this count little in the shared part."""
NO_LETTER_WEIGHT = 0.3
_FIRST_PLAIN_PIECE = 6
"""The pieces of the encoder before it are marks, not text."""
_SPACE = "▁"
_LONGEST_PIECE = 16
_WHOLE_WORD_BONUS = 0.5
"""Logarithm by which an added word is more probable than the pieces that it is split into otherwise."""
_ENGLISH_WORD = re.compile(rf"▁?[A-Za-zÀ-ɏ]{{2,{_LONGEST_PIECE}}}")
_FIRST_ENGLISH_PIECE = 259
"""The pieces of the English vocabulary before it are marks and bytes."""
_BLOCK = 4096


@dataclass(frozen=True)
class Pieces:
    texts: list[str]
    """Empty for a mark: a text that spells a mark is not one."""
    scores: list[float]
    english: Any
    shared: Any


def compute_pieces(sources: Sources) -> Pieces:
    texts = [*[""] * _FIRST_PLAIN_PIECE, *sources.pieces[_FIRST_PLAIN_PIECE:]]
    splitter = _Splitter(texts, sources.scores)
    splits = {text: splitter.split(text) for text in _find_missing_words(sources, texts)}
    added = {text: parts for text, parts in splits.items() if parts}
    scores = [*sources.scores]
    scores += [sum(sources.scores[part] for part in parts) + _WHOLE_WORD_BONUS for parts in added.values()]
    texts += added
    frequency = np.sqrt(np.exp(np.array(scores)))
    weights = np.array([1.0 if any(map(str.isalpha, text)) else NO_LETTER_WEIGHT for text in texts])[:, None]
    english = _reduce(_compute_english(sources, texts) * weights, frequency)
    shared = _compute_shared(sources, [*added.values()])
    shared *= weights
    return Pieces(texts, scores, english, _reduce(shared, frequency))


# vocabulary


def _find_missing_words(sources: Sources, texts: list[str]) -> list[str]:
    known = {*texts}
    return [
        text
        for text, row in sources.english_pieces.items()
        if row >= _FIRST_ENGLISH_PIECE
        and text not in known
        and len(text) <= _LONGEST_PIECE
        and _ENGLISH_WORD.fullmatch(text)
    ]


class _Splitter:
    """Splits a word into the pieces with the highest sum of scores."""

    def __init__(self, texts: list[str], scores: list[float]) -> None:
        self._rows = {text: row for row, text in enumerate(texts) if text}
        self._scores = scores

    def split(self, word: str) -> list[int]:
        """Return the pieces, or none if the vocabulary lacks a character."""
        best: list[tuple[float, list[int]] | None] = [(0.0, [])]
        for end in range(1, len(word) + 1):
            found: tuple[float, list[int]] | None = None
            for start in range(end):
                row, before = self._rows.get(word[start:end]), best[start]
                if row is not None and before is not None:
                    score = before[0] + self._scores[row]
                    if found is None or score > found[0]:
                        found = (score, [*before[1], row])
            best.append(found)
        return best[-1][1] if best[-1] else []


# parts


def _compute_english(sources: Sources, texts: list[str]) -> Any:
    vectors = np.zeros((len(texts), sources.english_vectors.shape[1]))
    for row, text in enumerate(texts):
        parts = [sources.english_pieces.get(part) for part in merge_pieces(text, sources.english_pieces)]
        if text.strip(_SPACE) and None not in parts:
            vectors[row] = sources.english_vectors[parts].sum(axis=0)
    return vectors


def merge_pieces(text: str, pieces: dict[str, int]) -> list[str]:
    """Return the parts of a text by byte-pair encoding: of all neighbours that form a piece, the one with the lowest
    number merges first."""
    parts = list(text)
    while len(parts) > 1:
        numbers = [pieces.get(left + right, 1 << 30) for left, right in pairwise(parts)]
        lowest = min(numbers)
        if lowest == 1 << 30:
            break
        at = numbers.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _compute_shared(sources: Sources, added: list[list[int]]) -> Any:
    """Return the weighted vectors of all pieces. An added word has the mean of its parts."""
    encoder = SentenceEncoder(sources.encoder_weights)
    count = len(sources.pieces)
    vectors = np.zeros((count + len(added), encoder.dims))

    def encode(start: int) -> None:
        end = min(start + _BLOCK, count)
        vectors[start:end] = encoder.encode_tokens(start, end)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(encode, range(_FIRST_PLAIN_PIECE, count, _BLOCK)))
    plain = vectors[_FIRST_PLAIN_PIECE:count]
    plain -= plain.mean(axis=0)
    plain *= np.array([RARITY / (RARITY + math.exp(score)) for score in sources.scores[_FIRST_PLAIN_PIECE:]])[:, None]
    for row, parts in enumerate(added, count):
        vectors[row] = vectors[parts].mean(axis=0)
    return vectors


def _reduce(vectors: Any, frequency: Any) -> Any:
    """Return the vectors in the directions with the largest variance, weighted by frequency.

    The directions have to be the same on every machine. So they are computed from small integers, whose products add up
    without rounding, and are rounded themselves.
    """
    factors = np.sqrt(frequency)[:, None]
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(vectors), _BLOCK)]
    scale = 127 / max(np.abs(vectors[block] * factors[block]).max() for block in blocks)
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))
    for block in blocks:
        integers = np.rint(vectors[block] * factors[block] * scale)
        covariance += integers.T @ integers
    _, directions = np.linalg.eigh(covariance)  # in order of rising variance
    directions = directions[:, ::-1][:, :PART_DIMS]
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[largest, range(PART_DIMS)])
    return vectors @ (np.rint(directions * 1024) / 1024)
