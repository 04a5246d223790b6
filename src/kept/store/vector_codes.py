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
from functools import cache
from typing import Any

_SAMPLE_STEP = 16
_WORTH_SAMPLING = 5_000


def loaded_numpy() -> Any:
    """Return numpy if the process has imported it, else None: importing it takes longer than a small index needs."""
    if "numpy" not in sys.modules:
        return None
    import numpy as np  # waits if another thread is importing it

    return np


def quantise(row: bytes) -> bytes:
    """Convert float32 to int8."""
    np = loaded_numpy()
    if np is not None:
        return _quantise_numpy(np, row)
    values = struct.unpack(f"<{len(row) // 4}f", row)
    largest = max(map(abs, values), default=0.0)
    if largest == 0.0:
        return bytes(len(values))
    scale = 127.0 / largest
    return array("b", [round(value * scale) for value in values]).tobytes()


def _quantise_numpy(np: Any, row: bytes) -> bytes:
    values = np.frombuffer(row, dtype="<f4").astype(np.float64)
    largest = np.abs(values).max(initial=0.0)
    scaled = values * (127.0 / largest if largest else 0.0)
    return bytes(np.rint(scaled).astype(np.int8).tobytes())


# distances


def cosine_distances(
    query: bytes, codes: bytes | memoryview, norms: memoryview[float] | None = None
) -> memoryview[float]:
    """Return one minus the cosine of a code with each of the codes packed end to end, as float64.

    ``norms`` are those of the codes, if they are known. Zeros have no direction: their cosine is 0.
    """
    simsimd = _simsimd()
    if simsimd is None:
        return numpy_cosine_distances(query, codes)
    if norms is None:
        norms = code_norms(codes, len(query))
    norm = math.sqrt(sum(value * value for value in array("b", query)))
    dots = _simd_distances(simsimd, query, codes, "dot")
    np = loaded_numpy()
    if np is not None:
        return memoryview(_numpy_distances(np, np.frombuffer(dots), norm * np.frombuffer(norms)))
    pairs = zip(dots, norms, strict=True)
    return memoryview(array("d", [1.0 - dot / (norm * other) if norm * other else 1.0 for dot, other in pairs]))


def code_norms(codes: bytes | memoryview, dims: int) -> memoryview[float]:
    """Return the length of each of the codes packed end to end, as float64."""
    simsimd = _simsimd()
    if simsimd is None:
        return memoryview(array("d"))  # numpy measures them with each query
    squares = _simd_distances(simsimd, bytes(dims), codes, "sqeuclidean")
    return memoryview(array("d", map(math.sqrt, squares)))


def numpy_cosine_distances(query: bytes, codes: bytes | memoryview) -> memoryview[float]:
    import numpy as np

    single = np.frombuffer(query, dtype=np.int8).astype(np.float64)
    rows = np.frombuffer(codes, dtype=np.int8).reshape(-1, len(query)).astype(np.float64)
    lengths = math.sqrt(single @ single) * np.sqrt((rows * rows).sum(axis=1))
    return memoryview(_numpy_distances(np, rows @ single, lengths))


def _numpy_distances(np: Any, dots: Any, lengths: Any) -> Any:
    lengths[lengths == 0] = np.inf
    return 1.0 - dots / lengths


@cache
def _simsimd() -> Any:
    """Return the module with the SIMD kernels, or None if it is not installed: then numpy does the work."""
    try:
        import simsimd
    except ImportError:
        return None
    return simsimd


def _simd_distances(simsimd: Any, query: bytes, packed: bytes | memoryview, metric: str) -> memoryview[float]:
    if not packed:
        return memoryview(array("d"))
    shape = (len(packed) // len(query), len(query))
    single = memoryview(query).cast("b", (1, shape[1]))
    rows = memoryview(packed).cast("b", shape)
    return memoryview(simsimd.cdist(single, rows, metric, dtype="int8")).cast("B").cast("d")


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
    positions = _positions_below(np, array_, limit)
    close = array_[positions]
    if len(positions) > limit:
        closest = close <= np.partition(close, limit - 1)[limit - 1]
        positions, close = positions[closest], close[closest]
    return list(zip(close.tolist(), positions.tolist(), strict=True))


def _positions_below(np: Any, distances: Any, limit: int) -> Any:
    """Return the positions of the ``limit`` smallest distances, and few others: a sample tells how small they are."""
    if len(distances) >= _WORTH_SAMPLING:
        sample = distances[::_SAMPLE_STEP]
        at = min(len(sample) - 1, 2 * limit // _SAMPLE_STEP + _SAMPLE_STEP)
        positions = np.flatnonzero(distances <= np.partition(sample, at)[at])
        if len(positions) >= limit:
            return positions
    return np.flatnonzero(distances <= np.partition(distances, limit - 1)[limit - 1])
