"""Arithmetic on the codes of vectors, packed end to end.

A code is a vector's components as int8, scaled so that the largest fills the range. Cosine ignores the scale, so it is
not stored. Dot products of codes are integers, so distances are the same with every kernel and on every machine.
"""

from __future__ import annotations

import heapq
import math
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any, Literal

_SAMPLE_STEP = 16


def loaded_numpy() -> Any:
    """Return numpy if the process has imported it, else None: importing it takes longer than a small index needs."""
    if "numpy" not in sys.modules:
        return None
    import numpy as np  # waits if another thread is importing it

    return np


def quantise(row: bytes) -> bytes:
    """Convert float32 to int8."""
    values = struct.unpack(f"<{len(row) // 4}f", row)
    largest = max(map(abs, values), default=0.0)
    if largest == 0.0:
        return bytes(len(values))
    scale = 127.0 / largest
    return array("b", [round(value * scale) for value in values]).tobytes()


# distances


def cosine_distances(query: bytes, codes: bytes | bytearray, norms: array[float] | None = None) -> memoryview[float]:
    """Return one minus the cosine of a code with each of the codes packed end to end, as float64.

    ``norms`` are those of the codes, if they are known. Zeros have no direction: their cosine is 0.
    """
    if norms is None:
        norms = code_norms(codes, len(query))
    norm = math.sqrt(sum(value * value for value in array("b", query)))
    dots = _simd_distances(query, codes, "dot")
    np = loaded_numpy()
    if np is not None:
        lengths = norm * np.frombuffer(norms)
        lengths[lengths == 0] = np.inf
        return memoryview(1.0 - np.frombuffer(dots) / lengths)
    pairs = zip(dots, norms, strict=True)
    return memoryview(array("d", [1.0 - dot / (norm * other) if norm * other else 1.0 for dot, other in pairs]))


def code_norms(codes: bytes | bytearray, dims: int) -> array[float]:
    """Return the length of each of the codes packed end to end, as float64."""
    return array("d", map(math.sqrt, _simd_distances(bytes(dims), codes, "sqeuclidean")))


def _simd_distances(
    query: bytes, packed: bytes | bytearray, metric: Literal["dot", "sqeuclidean"]
) -> memoryview[float]:
    import simsimd

    if not packed:
        return memoryview(array("d"))
    shape = (len(packed) // len(query), len(query))
    single = memoryview(query).cast("b", (1, shape[1]))
    rows = memoryview(packed).cast("b", shape)
    distances: Any = simsimd.cdist(single, rows, metric, dtype="int8")
    return memoryview(distances).cast("B").cast("d")


def smallest(distances: memoryview[float], limit: int) -> list[tuple[float, int]]:
    """Return the smallest distances with their positions, unordered, and all that tie with the largest of them.

    Uses numpy only if the process has imported it already: importing it takes longer than a search.
    """
    np = loaded_numpy()
    if np is None or len(distances) <= limit:
        values: Sequence[float] = distances.tolist()
        bound = heapq.nsmallest(limit, values)[-1] if values else 0.0
        return [(value, at) for at, value in enumerate(values) if value <= bound]
    array_ = np.frombuffer(distances)
    sample = array_[::_SAMPLE_STEP]  # tells how small the smallest are: partitioning all takes ten times as long
    at = min(len(sample) - 1, 2 * limit // _SAMPLE_STEP + _SAMPLE_STEP)
    near = np.flatnonzero(array_ <= np.partition(sample, at)[at])
    near = near if len(near) >= limit else np.arange(len(array_))
    close = array_[near]
    closest = close <= np.partition(close, limit - 1)[limit - 1]
    return list(zip(close[closest].tolist(), near[closest].tolist(), strict=True))
