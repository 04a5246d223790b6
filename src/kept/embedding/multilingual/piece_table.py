"""The file of word pieces with their vectors. It is mapped, not loaded: a search touches the pages of its own words.

    magic, length of the header, header (JSON), then these arrays, little-endian, each at a multiple of 64:
    slots     uint32   hash table: id of a piece plus 1, or 0; a piece is at crc32 of its UTF-8, or in the next slots
    offsets   uint32   start of each piece in the texts, and the end of the last
    texts     bytes    the pieces in UTF-8
    scores    float32  log probability of each piece
    factors   float32  number that the bytes of each vector are multiplied by
    vectors   int8     the vectors

A table of Python objects with 128,000 pieces would take longer to load than a search takes.
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from kept.remote_errors import EmbedderUnavailable
from kept.values import frozen

_MAGIC = b"KEPTPT01"
_ALIGNMENT = 64
_MAX_HEADER = 1 << 16
_SECTIONS = ("slots", "offsets", "texts", "scores", "factors", "vectors")


@frozen
class TableHeader:
    rows: int
    dims: int
    slots: int
    recipe: str
    """Identifies the vectors: the source and how they were made."""
    sections: dict[str, tuple[int, int]]
    """Start and size of each array."""


class PieceTable:
    """An open file. Raises EmbedderUnavailable if it cannot be used."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self._view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.header = _read_header(self._view)
        except (OSError, ValueError, KeyError, TypeError, struct.error) as exc:
            raise EmbedderUnavailable(
                f"The multilingual model cannot be read ({path}: {exc}).",
                hint="Download it again: kept models remove multilingual && kept models pull multilingual",
            ) from exc
        whole = memoryview(self._view)
        sections = {name: whole[start : start + size] for name, (start, size) in self.header.sections.items()}
        self._slots = sections["slots"].cast("I")
        self._offsets = sections["offsets"].cast("I")
        self._texts = sections["texts"]
        self._scores = sections["scores"].cast("f")
        self._factors = sections["factors"].cast("f")
        self._vectors = sections["vectors"].cast("b")
        self._mask = self.header.slots - 1

    def find(self, piece: str) -> int | None:
        """Return the id of a piece, or None."""
        data = piece.encode("utf-8", "replace")
        slot = zlib.crc32(data) & self._mask
        while entry := self._slots[slot]:
            row = entry - 1
            if self._texts[self._offsets[row] : self._offsets[row + 1]] == data:
                return row
            slot = (slot + 1) & self._mask
        return None

    def score(self, row: int) -> float:
        return self._scores[row]

    def pieces(self) -> dict[str, int]:
        """Return all pieces with their ids, for work that looks up many."""
        texts, offsets = self._texts.tobytes(), self._offsets
        pieces = {texts[offsets[row] : offsets[row + 1]].decode(): row for row in range(self.header.rows)}
        pieces.pop("", None)
        return pieces

    def sum_rows(self, ids: Sequence[int]) -> list[float]:
        """Return the sum of the vectors of some pieces, without numpy."""
        dims = self.header.dims
        total = [0.0] * dims
        for row in ids:
            factor = self._factors[row]
            numbers = self._vectors[row * dims : (row + 1) * dims].tolist()
            total = [sum_so_far + factor * number for sum_so_far, number in zip(total, numbers, strict=True)]
        return total

    def arrays(self) -> tuple[Any, Any]:
        """Return vectors and factors as arrays over the file."""
        import numpy as np

        vectors = np.frombuffer(self._vectors, dtype=np.int8).reshape(self.header.rows, self.header.dims)
        return vectors, np.asarray(self._factors)


def _read_header(view: mmap.mmap) -> TableHeader:
    if view[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it is not a table of pieces")
    (length,) = struct.unpack_from("<I", view, len(_MAGIC))
    if length > _MAX_HEADER:
        raise ValueError("it is damaged")
    tree = json.loads(view[len(_MAGIC) + 4 : len(_MAGIC) + 4 + length])
    header = TableHeader(
        int(tree["rows"]),
        int(tree["dims"]),
        int(tree["slots"]),
        str(tree["recipe"]),
        {name: (int(start), int(size)) for name, (start, size) in tree["sections"].items()},
    )
    sizes = _section_sizes(header.rows, header.dims, header.slots, header.sections["texts"][1])
    if any(header.sections[name][1] != sizes[name] for name in _SECTIONS):
        raise ValueError("it is damaged")
    if any(start + size > len(view) for start, size in header.sections.values()):
        raise ValueError("it is cut short")
    return header


def _section_sizes(rows: int, dims: int, slots: int, text_bytes: int) -> dict[str, int]:
    return {
        "slots": slots * 4,
        "offsets": (rows + 1) * 4,
        "texts": text_bytes,
        "scores": rows * 4,
        "factors": rows * 4,
        "vectors": rows * dims,
    }


# writing


def pack_table(pieces: Sequence[str], scores: Sequence[float], vectors: Any, *, recipe: str) -> bytes:
    """Return the content of the file. ``vectors`` is a matrix of floats, one row a piece. An empty piece is never
    found."""
    import numpy as np

    rows, dims = vectors.shape
    factors = (np.abs(vectors).max(axis=1) / 127).astype("<f4")
    quantised = np.rint(vectors / np.maximum(factors, 1e-12)[:, None]).astype(np.int8)
    encoded = [piece.encode() for piece in pieces]
    slots = _fill_slots(encoded)
    offsets = np.concatenate([[0], np.cumsum([len(data) for data in encoded])]).astype("<u4")
    arrays = {
        "slots": slots.astype("<u4").tobytes(),
        "offsets": offsets.tobytes(),
        "texts": b"".join(encoded),
        "scores": np.asarray(scores, dtype="<f4").tobytes(),
        "factors": factors.tobytes(),
        "vectors": quantised.tobytes(),
    }
    return _join_sections(arrays, {"rows": rows, "dims": dims, "slots": len(slots), "recipe": recipe})


def _fill_slots(encoded: Sequence[bytes]) -> Any:
    import numpy as np

    slots = np.zeros(1 << (2 * len(encoded)).bit_length(), dtype=np.uint32)
    mask = len(slots) - 1
    for row, data in enumerate(encoded):
        if not data:
            continue
        slot = zlib.crc32(data) & mask
        while slots[slot]:
            slot = (slot + 1) & mask
        slots[slot] = row + 1
    return slots


def _join_sections(arrays: dict[str, bytes], header: dict[str, Any]) -> bytes:
    """Return the file. The header has a fixed length, because it contains the positions that follow from its length."""
    start = len(_MAGIC) + 4 + 1024
    sections: dict[str, tuple[int, int]] = {}
    content = bytearray()
    for name in _SECTIONS:
        content += bytes(-(start + len(content)) % _ALIGNMENT)
        sections[name] = (start + len(content), len(arrays[name]))
        content += arrays[name]
    text = json.dumps(header | {"sections": sections}).encode().ljust(1024)
    return _MAGIC + struct.pack("<I", len(text)) + text + bytes(content)
