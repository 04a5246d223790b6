"""Arithmetic on packed codes: SIMD where there is a wheel for it, numpy where there is none.

A code is a vector's components as int8, scaled so that the largest fills the range. Cosine does not see the scale, so
none has to be stored.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from functools import cache
from typing import Any


def quantise(row: bytes) -> bytes:
    """float32 to int8."""
    values = struct.unpack(f"<{len(row) // 4}f", row)
    largest = max(map(abs, values), default=0.0)
    if largest == 0.0:
        return bytes(len(values))
    scale = 127.0 / largest
    return array("b", [round(value * scale) for value in values]).tobytes()


def sign_bits(code: bytes) -> bytes:
    """One bit a dimension: whether the component is positive."""
    signs = "".join("1" if 0 < byte < 128 else "0" for byte in code)
    return int(signs.ljust(-(-len(signs) // 8) * 8, "0"), 2).to_bytes(-(-len(signs) // 8), "big")


def cosine_distances(query: bytes, codes: bytes | memoryview) -> list[float]:
    """One minus the cosine of a code with each of the codes packed end to end."""
    return _kernels()[0](query, codes)


def hamming_distances(query: bytes, bits: bytes | memoryview) -> list[float]:
    """The number of bits in which a row of bits differs from each packed one."""
    return _kernels()[1](query, bits)


Kernel = Callable[[bytes, "bytes | memoryview"], list[float]]


@cache
def _kernels() -> tuple[Kernel, Kernel]:
    try:
        import simsimd
    except ImportError:
        return numpy_cosine_distances, numpy_hamming_distances
    return _simd_kernels(simsimd)


def _simd_kernels(simsimd: Any) -> tuple[Kernel, Kernel]:
    def scan(query: bytes, packed: bytes | memoryview, *, form: str, metric: str, dtype: str) -> list[float]:
        if not packed:
            return []
        shape = (len(packed) // len(query), len(query))
        one = memoryview(query).cast(form, (1, shape[1]))  # type: ignore[call-overload]
        rows = memoryview(packed).cast(form, shape)  # type: ignore[call-overload]
        found: Any = memoryview(simsimd.cdist(one, rows, metric, dtype=dtype)).tolist()
        distances: list[float] = found[0]
        return distances

    def cosine(query: bytes, codes: bytes | memoryview) -> list[float]:
        if not any(query):  # a code of zeros points nowhere; to the kernel it would equal another of zeros
            return [1.0] * (len(codes) // len(query))
        return scan(query, codes, form="b", metric="cosine", dtype="int8")

    def hamming(query: bytes, bits: bytes | memoryview) -> list[float]:
        return scan(query, bits, form="B", metric="hamming", dtype="bin8")

    return cosine, hamming


def numpy_cosine_distances(query: bytes, codes: bytes | memoryview) -> list[float]:
    import numpy as np

    one = np.frombuffer(query, dtype=np.int8).astype(np.float32)
    rows = np.frombuffer(codes, dtype=np.int8).reshape(-1, len(query)).astype(np.float32)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(one)
    found = 1.0 - np.divide(rows @ one, norms, out=np.zeros(len(rows), np.float32), where=norms > 0)
    distances: list[float] = found.tolist()
    return distances


def numpy_hamming_distances(query: bytes, bits: bytes | memoryview) -> list[float]:
    import numpy as np

    one = np.frombuffer(query, dtype=np.uint8)
    rows = np.frombuffer(bits, dtype=np.uint8).reshape(-1, len(query))
    distances: list[float] = np.unpackbits(rows ^ one, axis=1).sum(axis=1).tolist()
    return distances
