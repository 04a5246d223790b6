"""The tokenizer of the built-in model: byte-pair encoding over a SentencePiece vocabulary.

Written out here because importing the usual library and loading its tables costs more than a whole search. In such a
vocabulary two neighbouring pieces merge if their concatenation is a piece, and the piece with the lower id merges
first, so the table of pieces is all that is needed. Words never merge across a space, so each word is encoded once and
cached.
"""

from __future__ import annotations

import heapq
import json
import re
from itertools import pairwise

_SPACE = "▁"
_UNIT = re.compile(f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+")
_RUNS_OF_SPACES_MERGE_LAST = 1 << 20
_FIRST_BYTE_PIECE = 3
_FIRST_PLAIN_PIECE = _FIRST_BYTE_PIECE + 256
_CACHED_UNITS = 200_000
_LONGEST_WORD = 48
_NEVER = (1 << 30, 0, 0)

MergeRank = tuple[int, int, int]
"""Order of a merge: the id of the merged piece, then those of its two parts."""


def read_pieces(path: str) -> dict[str, int]:
    """Return the pieces of a tokenizer file with their ids. The rest of the file, two thirds of it, is not parsed."""
    with open(path, "rb") as file:
        raw = file.read()
    start = raw.index(b"{", raw.index(b'"vocab"'))
    end = raw.rindex(b"}", start, raw.index(b'"merges"', start))
    pieces: dict[str, int] = json.loads(raw[start : end + 1])
    return pieces


class PieceEncoder:
    def __init__(self, pieces: dict[str, int]) -> None:
        self._pieces = pieces
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text's pieces."""
        cache = self._cache
        ids: list[int] = []
        if not text:
            return ids
        for unit in _UNIT.findall(_SPACE + text.replace(" ", _SPACE)):
            unit_ids = cache.get(unit)
            if unit_ids is None:
                if len(cache) >= _CACHED_UNITS:
                    cache.clear()
                unit_ids = cache[unit] = self._encode_unit(unit)
            ids += unit_ids
        return ids

    def _encode_unit(self, unit: str) -> tuple[int, ...]:
        """Merge neighbours, lowest id first, until no pair is left that merges. Return the ids of the parts."""
        # Every plain piece of the vocabulary is the result of merging its own letters, so a unit that is one is done.
        unit_id = self._pieces.get(unit, 0)
        if unit_id >= _FIRST_PLAIN_PIECE:
            return (unit_id,)
        ids: list[int] = []
        for part in self._merge_word(unit) if len(unit) <= _LONGEST_WORD else self._merge_long(unit):
            piece_id = self._pieces.get(part)
            if piece_id is not None:
                ids.append(piece_id)
            else:  # not a piece: the pieces of its UTF-8 bytes
                ids += [_FIRST_BYTE_PIECE + byte for byte in part.encode("utf-8", "replace")]
        return tuple(ids)

    def _merge_word(self, unit: str) -> list[str]:
        """Merge a short unit. Scanning all pairs for the next merge is faster here than keeping a heap."""
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
        """Merge a unit of any length in O(n log n), with the same result as `_merge_word`.

        The parts form a doubly linked list: ``after`` and ``before`` hold the index of each part's neighbour, and a
        merge writes the joined text into the left part, marks the right one as None and unlinks it. So an index keeps
        its meaning, and the list need not be shifted.

        The heap holds the possible merges, lowest rank first and leftmost among equals. A merge makes older entries
        about its two parts stale. They are not removed but carry the text they were made for, and are skipped when it
        no longer matches: a part only ever grows, so a text that was merged away cannot come back at that index.

        Example: "abc" with the pieces ab=10 and bc=11. The heap starts with (10, at 0) and (11, at 1). Merging at 0
        leaves ["ab", None, "c"]; the entry for "b"+"c" at 1 is stale, and "ab"+"c" is offered if it is a piece.
        """
        parts: list[str | None] = list(unit)
        after = list(range(1, len(parts) + 1))
        before = list(range(-1, len(parts) - 1))
        heap: list[tuple[int, int, int, int, str, str]] = []

        def offer(at: int) -> None:
            """Push the merge of a part with the next one, if the two merge."""
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
                continue  # stale: one of the two has merged with another part since
            parts[at], parts[right_at] = left + right, None
            after[at] = after[right_at]
            if after[at] < len(parts):
                before[after[at]] = at
            if before[at] >= 0:
                offer(before[at])
            offer(at)
        return [part for part in parts if part is not None]

    def _rank(self, left: str, right: str) -> MergeRank | None:
        """Return the order of a merge, or None if the two parts do not merge."""
        pieces = self._pieces
        merged = pieces.get(left + right)
        if merged is None or left not in pieces or right not in pieces:
            return None
        if left[0] == _SPACE and right[0] == _SPACE and not (left + right).strip(_SPACE):
            merged += _RUNS_OF_SPACES_MERGE_LAST
        return merged, pieces[left], pieces[right]
