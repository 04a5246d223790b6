"""The built-in embedder: the mean of a text's token vectors, from a table. Nothing to load and little to compute.

The build puts the model, two files of the package `wordllama`, into the folder of that name (`hatch_build.py`). The
table is mapped, not loaded: a search touches only the few pages that hold its words.

The tokenizer is byte-pair encoding over a SentencePiece vocabulary. Written out here because importing the usual
library and loading its tables costs more than a whole search. In such a vocabulary two neighbouring pieces merge if
their concatenation is a piece, and the piece with the lower id merges first, so the table of pieces is all that is
needed. Words never merge across a space, so each word is encoded once and cached.
"""

from __future__ import annotations

import heapq
import json
import mmap
import os
import re
import struct
import sys
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.records import Matrix
from kept.remote_errors import EmbedderUnavailable

MODEL = "wordllama-l2-256"
DIMS = 256
MODEL_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wordllama")
WEIGHTS_FILE = "l2_supercat_256.safetensors"
TOKENIZER_FILE = "l2_supercat_tokenizer_config.json"
_ROW_BYTES = DIMS * 2
_MAX_CHARS = 20_000

# Below this many tokens, summing in pure Python ends before numpy would be imported.
_FEW_TOKENS = 6_000

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


class StaticEmbedder:
    """Embedder that sums 16-bit rows in 64-bit floats. Such sums are exact: any order gives the same vector."""

    calibration = Calibration(floor=0.15, ceiling=0.75, weight=0.3)
    languages = ("en",)

    is_cheap = True
    """Its vectors are computed faster than they are stored, so they are not cached."""

    def __init__(self, folder: str = MODEL_FOLDER) -> None:
        self._folder = folder

    @cached_property
    def identity(self) -> Identity:
        # The size replaces a hash of 16 MB: the build has checked the hash.
        return Identity("local", MODEL, DIMS, f"static-mean-1:{self._table[2]}")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        encode = self._encoder.encode
        try:
            encoded = [encode(text[:_MAX_CHARS]) for text in texts]
            # Importing numpy takes longer than a search, so a short text uses it only if it is imported already.
            if sum(map(len, encoded)) >= _FEW_TOKENS or "numpy" in sys.modules:
                sums = self._sum_numpy(encoded)
            else:
                view, start, _ = self._table
                unpack = struct.Struct(f"<{DIMS}e").unpack_from
                sums = []
                for ids in encoded:
                    rows = [unpack(view, start + token_id * _ROW_BYTES) for token_id in ids]
                    sums.append([sum(column) for column in zip(*rows, strict=True)] or [0.0] * DIMS)
        # The vocabulary has an id that is not a row of the table.
        except (IndexError, OverflowError, TypeError, struct.error) as exc:
            raise _unusable(self._folder, exc) from exc
        return pack_unit_rows(sums, DIMS)

    def count_pieces(self, text: str) -> int:
        """Return how many pieces a text has."""
        return len(self._encoder.encode(text[:_MAX_CHARS]))

    def _sum_numpy(self, encoded: list[list[int]]) -> list[list[float]]:
        import numpy as np

        table = self._matrix
        sums = []
        for ids in encoded:
            sums.append(table[np.asarray(ids, dtype=np.intp)].sum(axis=0, dtype=np.float64).tolist())
        return sums

    @cached_property
    def _matrix(self) -> Any:
        import numpy as np

        view, start, end = self._table
        return np.frombuffer(view, dtype="<f2", offset=start, count=(end - start) // 2).reshape(-1, DIMS)

    @cached_property
    def _encoder(self) -> PieceEncoder:
        path = os.path.join(self._folder, TOKENIZER_FILE)
        try:
            return PieceEncoder(read_pieces(path))
        except (OSError, ValueError, RecursionError) as exc:
            raise _unusable(path, exc) from exc

    @cached_property
    def _table(self) -> tuple[mmap.mmap, int, int]:
        """The mapped file, and the offsets at which the rows of the table start and end."""
        path = os.path.join(self._folder, WEIGHTS_FILE)
        try:
            with open(path, "rb") as file:
                header_bytes = struct.unpack("<Q", file.read(8))[0]
                header = json.loads(file.read(min(header_bytes, 1 << 20)))
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            start = 8 + header_bytes
            end = start + _table_size(header)
            if end > len(view):
                raise ValueError("the file is truncated")
        except (OSError, ValueError, RecursionError, struct.error) as exc:
            raise _unusable(path, exc) from exc
        return view, start, end


def _table_size(header: Any) -> int:
    """Return the size in bytes of the only tensor in a safetensors file."""
    match header:
        case {"embedding.weight": {"dtype": "F16", "shape": [int(rows), int(dims)], "data_offsets": [0, int(size)]}}:
            if dims == DIMS and size == rows * _ROW_BYTES > 0:
                return size
    raise ValueError("not the expected table")


def _unusable(path: str, exc: Exception) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The built-in embedding model cannot be read ({path}: {exc}).",
        hint="Reinstall Kept: pip install --force-reinstall kept; in a checkout: pip install -e .",
    )


# tokenizer


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
        """Merge neighbours, lowest id first, until no pair is left that merges, and return the ids of the parts.

        A part that is not a piece becomes the pieces of its UTF-8 bytes.
        """
        whole_id = self._pieces.get(unit, 0)
        if whole_id >= _FIRST_PLAIN_PIECE:  # every plain piece of the vocabulary is what its own letters merge to
            return (whole_id,)
        ids: list[int] = []
        for part in self._merge_word(unit) if len(unit) <= _LONGEST_WORD else self._merge_long(unit):
            piece_id = self._pieces.get(part)
            if piece_id is not None:
                ids.append(piece_id)
            else:
                ids.extend(_FIRST_BYTE_PIECE + byte for byte in part.encode("utf-8", "replace"))
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
