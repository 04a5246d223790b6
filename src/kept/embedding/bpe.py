"""The tokenizer of the built-in model: byte-pair encoding over a SentencePiece vocabulary.

Written out here because loading the usual library and its tables costs more than a whole search. In a vocabulary of
this kind two neighbouring pieces merge if their sum is a piece, and the piece with the lower number merges first, so
the table of pieces alone says everything. Words never merge across a space, so each is encoded once and remembered.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable
from itertools import pairwise

_SPACE = "▁"
_UNIT = re.compile(f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+")
_RUNS_OF_SPACES_MERGE_LAST = 1 << 20
_FIRST_BYTE_PIECE = 3
_FIRST_PLAIN_PIECE = _FIRST_BYTE_PIECE + 256
_REMEMBERED_WORDS = 200_000
_LONGEST_WORD = 48
_NEVER = (1 << 30, 0, 0)


def read_pieces(path: str) -> dict[str, int]:
    """The pieces of a tokenizer file, by name. The rest of the file, two thirds of it, is not parsed."""
    with open(path, "rb") as file:
        raw = file.read()
    start = raw.index(b"{", raw.index(b'"vocab"'))
    end = raw.rindex(b"}", start, raw.index(b'"merges"', start))
    pieces: dict[str, int] = json.loads(raw[start : end + 1])
    return pieces


class PieceEncoder:
    def __init__(self, pieces: dict[str, int]) -> None:
        self._pieces = pieces
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        known = self._known
        ids: list[int] = []
        if not text:
            return ids
        for unit in _UNIT.findall(_SPACE + text.replace(" ", _SPACE)):
            found = known.get(unit)
            if found is None:
                if len(known) >= _REMEMBERED_WORDS:
                    known.clear()
                found = known[unit] = tuple(self._numbers(self._merge(unit)))
            ids += found
        return ids

    def _merge(self, unit: str) -> list[str]:
        """Merges neighbours, lowest piece first, until none is left that may.

        Every plain piece of the vocabulary is what its own letters merge to, so a unit that is one is done.
        """
        if self._pieces.get(unit, 0) >= _FIRST_PLAIN_PIECE:
            return [unit]
        return self._merge_word(unit) if len(unit) <= _LONGEST_WORD else self._merge_long(unit)

    def _merge_word(self, unit: str) -> list[str]:
        """In a word the next pair is found sooner by looking at all of them than by keeping a heap."""
        parts = list(unit)
        ranks = [self._rank(left, right) or _NEVER for left, right in pairwise(parts)]
        while ranks:
            lowest = min(ranks)
            if lowest is _NEVER:
                break
            at = ranks.index(lowest)
            parts[at] += parts.pop(at + 1)
            del ranks[at]
            if at > 0:
                ranks[at - 1] = self._rank(parts[at - 1], parts[at]) or _NEVER
            if at < len(ranks):
                ranks[at] = self._rank(parts[at], parts[at + 1]) or _NEVER
        return parts

    def _merge_long(self, unit: str) -> list[str]:
        parts: list[str | None] = list(unit)
        after = list(range(1, len(parts) + 1))
        before = list(range(-1, len(parts) - 1))
        heap: list[tuple[int, int, int, int, str, str]] = []

        def offer(at: int) -> None:
            right_at = after[at]
            if right_at >= len(parts):
                return
            left, right = parts[at], parts[right_at]
            if left is None or right is None:
                return
            rank = self._rank(left, right)
            if rank is not None:
                heapq.heappush(heap, (*rank, at, left, right))

        for at in range(len(parts) - 1):
            offer(at)
        while heap:
            *_, at, left, right = heapq.heappop(heap)
            right_at = after[at]
            if right_at >= len(parts) or parts[at] != left or parts[right_at] != right:
                continue  # one of the two has merged with another since
            parts[at], parts[right_at] = left + right, None
            after[at] = after[right_at]
            if after[at] < len(parts):
                before[after[at]] = at
            if before[at] >= 0:
                offer(before[at])
            offer(at)
        return [part for part in parts if part is not None]

    def _rank(self, left: str, right: str) -> tuple[int, int, int] | None:
        pieces = self._pieces
        merged = pieces.get(left + right)
        if merged is None or left not in pieces or right not in pieces:
            return None
        if left[0] == _SPACE and right[0] == _SPACE and not (left + right).strip(_SPACE):
            merged += _RUNS_OF_SPACES_MERGE_LAST
        return merged, pieces[left], pieces[right]

    def _numbers(self, parts: Iterable[str]) -> Iterable[int]:
        for part in parts:
            number = self._pieces.get(part)
            if number is not None:
                yield number
            else:
                yield from (_FIRST_BYTE_PIECE + byte for byte in part.encode("utf-8", "replace"))
