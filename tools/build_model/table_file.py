"""Writes the file of the built-in model. `kept.embedding.static` describes its format and reads it."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from typing import Any

import numpy as np

from build_model.piece_vectors import Pieces

MAGIC = b"KEPTPT02"
HEADER_BYTES = 64
LARGEST = 63
"""Largest number of a vector. Twice as much would need one more bit, and no search could tell the difference."""


def write_table(path: str, pieces: Pieces) -> None:
    encoded = [text.encode() for text in pieces.texts]
    slots = _fill_slots(encoded)
    parts = [_quantise(part) for part in (pieces.english, pieces.shared)]
    sections = (
        slots.astype("<u4").tobytes(),
        np.concatenate([[0], np.cumsum([len(data) for data in encoded])]).astype("<u4").tobytes(),
        np.asarray(pieces.scores, dtype="<f4").tobytes(),
        np.stack([factors for _, factors in parts], axis=1).astype("<f4").tobytes(),
        np.concatenate([numbers for numbers, _ in parts], axis=1).astype(np.int8).tobytes(),
        b"".join(encoded),
    )
    content = b"".join(section + bytes(-len(section) % HEADER_BYTES) for section in sections)
    sizes = struct.pack("<IIII", len(encoded), len(slots), parts[0][0].shape[1], parts[1][0].shape[1])
    header = MAGIC + sizes + hashlib.sha256(sizes + content).digest()
    partial = f"{path}.{os.getpid()}"
    with open(partial, "wb") as file:
        file.write(header.ljust(HEADER_BYTES, b"\0") + content)
    os.replace(partial, path)  # another build may be reading it


def _quantise(vectors: Any) -> tuple[Any, Any]:
    """Return the numbers of each vector, and the factor that they are multiplied by. The factor has few digits, so
    sums are exact in any order."""
    factors = np.float64(np.float16(np.abs(vectors).max(axis=1) / LARGEST))
    numbers = np.rint(vectors / np.where(factors > 0, factors, 1)[:, None])
    return np.clip(numbers, -127, 127), factors


def _fill_slots(encoded: list[bytes]) -> Any:
    slots = np.zeros(1 << (2 * len(encoded) - 1).bit_length(), dtype=np.uint32)
    mask = len(slots) - 1
    for row, data in enumerate(encoded):
        if not data:
            continue
        slot = zlib.crc32(data) & mask
        while slots[slot]:
            slot = (slot + 1) & mask
        slots[slot] = row + 1
    return slots
