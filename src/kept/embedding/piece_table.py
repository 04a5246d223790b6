"""The file of the built-in model: word pieces with their vectors. It is mapped, not loaded: a search touches the pages
of its own words.

    header    64 bytes: magic; as uint32 the number of pieces, of slots, and of dimensions of each of the two parts;
              SHA-256 of these numbers and of everything after the header
    slots     uint32   hash table: number of a piece plus 1, or 0; a piece is at crc32 of its UTF-8 or after that
    offsets   uint32   start of each piece in the texts, and the end of the last
    scores    float32  logarithm of the probability of each piece
    factors   float32  two a piece: the numbers that the bytes of each part are multiplied by
    vectors   int8     both parts of each piece, one after the other
    texts     bytes    the pieces in UTF-8

All little-endian, and each array at a multiple of 64. `tools/build_model` writes it. Python objects for all pieces
would take longer to load than a search takes.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from kept.base.remote_errors import EmbedderUnavailable

_MAGIC = b"KEPTPT02"
_HEADER = struct.Struct("<8sIIII32s")
_ALIGNMENT = 64

Parts = tuple[list[float], list[float]]
"""Vector of a text as its English and its shared part, of any length."""


class PieceTable:
    """An open file. Raises EmbedderUnavailable if it cannot be used."""

    def __init__(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            magic, self.rows, slots, self.english_dims, self.shared_dims, digest = _HEADER.unpack_from(view)
            self._open_sections(memoryview(view), slots, is_table=magic == _MAGIC)
        except (OSError, ValueError, struct.error) as exc:
            raise EmbedderUnavailable(
                f"The built-in embedding model cannot be read ({path}: {exc}).",
                hint="Reinstall Kept: pip install --force-reinstall kept; in a checkout: pip install -e .",
            ) from exc
        self.digest = digest.hex()
        """Identifies the vectors. It is not compared with the content, which the build has done."""
        self.dims = self.english_dims + self.shared_dims
        self._mask = slots - 1

    def _open_sections(self, whole: memoryview, slots: int, *, is_table: bool) -> None:
        if not is_table or not self.rows or slots & (slots - 1) or slots <= self.rows:
            raise ValueError("it is not a table of pieces")
        dims = self.english_dims + self.shared_dims
        sections = []
        start = _ALIGNMENT
        for size in (slots * 4, (self.rows + 1) * 4, self.rows * 4, self.rows * 8, self.rows * dims):
            sections.append(whole[start : start + size])
            start += size + -size % _ALIGNMENT
        if start >= len(whole):
            raise ValueError("it is cut short")
        self._slots, self._offsets = (section.cast("I") for section in sections[:2])
        self._scores, self._factors = (section.cast("f") for section in sections[2:4])
        self._vectors = sections[4].cast("b")
        self._texts = whole[start:]

    def find(self, piece: str) -> int | None:
        """Return the number of a piece, or None."""
        data = piece.encode("utf-8", "replace")
        slot = zlib.crc32(data) & self._mask
        while entry := self._slots[slot]:
            row: int = entry - 1
            if self._texts[self._offsets[row] : self._offsets[row + 1]] == data:
                return row
            slot = (slot + 1) & self._mask
        return None

    def text(self, row: int) -> str:
        return self._texts[self._offsets[row] : self._offsets[row + 1]].tobytes().decode()

    def score(self, row: int) -> float:
        return self._scores[row]

    def pieces(self) -> dict[str, int]:
        """Return all pieces with their numbers, for work that looks up many."""
        texts, offsets = self._texts.tobytes(), self._offsets
        pieces = {texts[offsets[row] : offsets[row + 1]].decode(): row for row in range(self.rows)}
        pieces.pop("", None)
        return pieces

    def sum_rows(self, rows: Sequence[int]) -> Parts:
        """Return the sum of the vectors of some pieces, without numpy."""
        dims, middle = self.dims, self.english_dims
        total = [0.0] * dims
        for row in rows:
            english, shared = self._factors[2 * row], self._factors[2 * row + 1]
            numbers = self._vectors[row * dims : (row + 1) * dims].tolist()
            scaled = [english * number for number in numbers[:middle]] + [
                shared * number for number in numbers[middle:]
            ]
            total = [so_far + number for so_far, number in zip(total, scaled, strict=True)]
        return total[:middle], total[middle:]

    def sum_many(self, texts: Sequence[Sequence[int]]) -> list[Parts]:
        """Return the same for many texts, with numpy. The sums are exact, so both ways give the same vector."""
        import numpy as np

        vectors = np.frombuffer(self._vectors, dtype=np.int8).reshape(self.rows, self.dims)
        factors = np.asarray(self._factors).reshape(self.rows, 2)
        sums: list[Parts] = []
        for text in texts:
            rows = np.array(text, dtype=np.intp)
            english, shared = np.hsplit(vectors[rows], [self.english_dims])
            weights: Any = factors[rows].astype(np.float64)
            sums.append(((weights[:, 0] @ english).tolist(), (weights[:, 1] @ shared).tolist()))
        return sums
