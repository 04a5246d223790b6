"""Arithmetic on packed codes: with SIMD if simsimd is installed, else with numpy.

A code is a vector's components as int8, scaled so that the largest fills the range. Cosine ignores the scale, so it is
not stored.
"""

from __future__ import annotations

import heapq
import math
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any


def quantise(row: bytes) -> bytes:
    """Convert float32 to int8."""
    values = struct.unpack(f"<{len(row) // 4}f", row)
    largest = max(map(abs, values), default=0.0)
    if largest == 0.0:
        return bytes(len(values))
    scale = 127.0 / largest
    return array("b", [round(value * scale) for value in values]).tobytes()


def dequantise(code: bytes) -> bytes:
    """Convert int8 to float32 of unit length, which `quantise` converts back to the same code."""
    values = array("b", code).tolist()
    norm = math.sqrt(sum(value * value for value in values))
    return struct.pack(f"<{len(values)}f", *(value / norm for value in values)) if norm else bytes(4 * len(values))


def sign_bits(code: bytes) -> bytes:
    """Return one bit per dimension, set if the component is positive."""
    signs = "".join("1" if 0 < byte < 128 else "0" for byte in code)
    return int(signs.ljust(-(-len(signs) // 8) * 8, "0"), 2).to_bytes(-(-len(signs) // 8), "big")


def cosine_distances(query: bytes, codes: bytes | memoryview) -> memoryview[float]:
    """Return one minus the cosine of a code with each of the codes packed end to end, as float64."""
    return _kernels()[0](query, codes)


def hamming_distances(query: bytes, bits: bytes | memoryview) -> memoryview[float]:
    """Return the number of bits in which a row of bits differs from each packed row, as float64."""
    return _kernels()[1](query, bits)


def smallest(distances: memoryview[float], limit: int) -> list[tuple[float, int]]:
    """Return the smallest distances with their positions, unordered, and all that tie with the largest of them.

    Uses numpy only if the process has imported it already: importing it takes longer than a search.
    """
    np: Any = sys.modules.get("numpy")
    if np is None or len(distances) <= limit:
        values: Sequence[float] = distances.tolist()
        bound = heapq.nsmallest(limit, values)[-1] if values else 0.0
        return [(value, at) for at, value in enumerate(values) if value <= bound]
    array_ = np.frombuffer(distances)
    bound = np.partition(array_, limit - 1)[limit - 1]
    positions = np.flatnonzero(array_ <= bound)
    return list(zip(array_[positions].tolist(), positions.tolist(), strict=True))


Kernel = Callable[[bytes, "bytes | memoryview"], "memoryview[float]"]


@cache
def _kernels() -> tuple[Kernel, Kernel]:
    try:
        import simsimd
    except ImportError:
        return numpy_cosine_distances, numpy_hamming_distances
    return _simd_kernels(simsimd)


def _simd_kernels(simsimd: Any) -> tuple[Kernel, Kernel]:
    def scan(query: bytes, packed: bytes | memoryview, *, form: str, metric: str, dtype: str) -> memoryview[float]:
        if not packed:
            return memoryview(array("d"))
        shape = (len(packed) // len(query), len(query))
        single = memoryview(query).cast(form, (1, shape[1]))  # type: ignore[call-overload]
        rows = memoryview(packed).cast(form, shape)  # type: ignore[call-overload]
        return memoryview(simsimd.cdist(single, rows, metric, dtype=dtype)).cast("B").cast("d")

    def cosine(query: bytes, codes: bytes | memoryview) -> memoryview[float]:
        if not any(query):  # zeros have no direction, but the kernel would call two codes of zeros equal
            return memoryview(array("d", [1.0]) * (len(codes) // len(query)))
        return scan(query, codes, form="b", metric="cosine", dtype="int8")

    def hamming(query: bytes, bits: bytes | memoryview) -> memoryview[float]:
        return scan(query, bits, form="B", metric="hamming", dtype="bin8")

    return cosine, hamming


def numpy_cosine_distances(query: bytes, codes: bytes | memoryview) -> memoryview[float]:
    import numpy as np

    single = np.frombuffer(query, dtype=np.int8).astype(np.float64)
    rows = np.frombuffer(codes, dtype=np.int8).reshape(-1, len(query)).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(single)
    return memoryview(1.0 - np.divide(rows @ single, norms, out=np.zeros(len(rows)), where=norms > 0))


def numpy_hamming_distances(query: bytes, bits: bytes | memoryview) -> memoryview[float]:
    import numpy as np

    single = np.frombuffer(query, dtype=np.uint8)
    rows = np.frombuffer(bits, dtype=np.uint8).reshape(-1, len(query))
    return memoryview(np.unpackbits(rows ^ single, axis=1).sum(axis=1).astype(np.float64))
