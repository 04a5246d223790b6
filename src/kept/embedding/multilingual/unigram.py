"""Splits text into the pieces of a unigram vocabulary, as SentencePiece does: the most probable split of each word.

Written out because the usual library would be one more package to install. A word never joins the next one, so each
word is split once and cached; only words of scripts without spaces are long.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

SPACE = "▁"
UNKNOWN = 0
"""Id of the piece for characters that the vocabulary does not have."""
LONGEST_PIECE = 16
_CACHED_WORDS = 200_000
_IMPOSSIBLE = -1e30

Lookup = Callable[[str], int | None]
"""Returns the id of a piece, or None."""


class UnigramEncoder:
    """Encoder over a vocabulary. ``unknown_score`` is the log probability of a character that it does not have."""

    def __init__(self, find: Lookup, score: Callable[[int], float], *, unknown_score: float) -> None:
        self._find = find
        self._score = score
        self._unknown_score = unknown_score
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text's pieces."""
        cache = self._cache
        ids: list[int] = []
        for word in normalise(text).split():
            word_ids = cache.get(word)
            if word_ids is None:
                if len(cache) >= _CACHED_WORDS:
                    cache.clear()
                word_ids = cache[word] = self._split(SPACE + word)
            ids += word_ids
        return ids

    def _split(self, word: str) -> tuple[int, ...]:
        """Return the pieces with the highest sum of scores (Viterbi): ``best[n]`` is that of the first n characters."""
        find, score = self._find, self._score
        length = len(word)
        best = [0.0, *[_IMPOSSIBLE] * length]
        starts = [0] * (length + 1)
        pieces = [UNKNOWN] * (length + 1)
        for start in range(length):
            base = best[start]
            if base + self._unknown_score > best[start + 1]:
                best[start + 1], starts[start + 1] = base + self._unknown_score, start
                pieces[start + 1] = UNKNOWN
            for end in range(start + 1, min(start + LONGEST_PIECE, length) + 1):
                piece = find(word[start:end])
                if piece is not None and base + score(piece) > best[end]:
                    best[end], starts[end], pieces[end] = base + score(piece), start, piece
        ids: list[int] = []
        at = length
        while at:
            ids.append(pieces[at])
            at = starts[at]
        return tuple(reversed(ids))


def normalise(text: str) -> str:
    """Return a text in the form that the vocabulary was made from: compatibility forms composed (NFKC)."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)
