"""What every embedder is, and the arithmetic that all of them share."""

from __future__ import annotations

import hashlib
import math
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, runtime_checkable

from kept.records import Matrix
from kept.values import frozen

Role = Literal["query", "document"]


@frozen
class Identity:
    """What a vector came from. Vectors of two identities are never compared.

    ``fingerprint`` tells apart what the names do not: another endpoint, other weights. It never holds a secret.
    ``dims`` is 0 where only the answer to a first call would tell: an identity costs no call.
    """

    provider: str
    model: str
    dims: int
    fingerprint: str

    @property
    def key(self) -> str:
        whole = f"{self.provider}\n{self.model}\n{self.dims}\n{self.fingerprint}"
        return hashlib.sha256(whole.encode()).hexdigest()


@frozen
class Calibration:
    """What a cosine of this embedder means: at ``floor`` two texts are unrelated, at ``ceiling`` they agree.

    ``weight`` is how much of a score it has earned against the words, by measurement.
    """

    floor: float = 0.0
    ceiling: float = 1.0
    weight: float = 0.5

    def score(self, cosine: float) -> float:
        return min(1.0, max(0.0, (cosine - self.floor) / (self.ceiling - self.floor)))


@runtime_checkable
class Embedder(Protocol):
    @property
    def identity(self) -> Identity: ...

    @property
    def calibration(self) -> Calibration: ...

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        """A unit vector for each text, in order. Raises EmbeddingError; never returns fewer rows.

        Where some texts could be embedded and others not, the others are rows of zeros, named in ``gaps``.
        """
        ...


def pack_unit_rows(rows: Iterable[Sequence[float]], dims: int) -> Matrix:
    """Rows of any numbers as unit vectors. What is not finite counts as 0; a row of zeros stays one."""
    packed = array("f")
    for row in rows:
        clean = [value if math.isfinite(value) else 0.0 for value in row]
        norm = math.sqrt(math.fsum(value * value for value in clean))
        packed.extend([value / norm for value in clean] if norm > 1e-10 else [0.0] * dims)
    return Matrix(dims, _little_endian(packed))


def _little_endian(values: array[float]) -> bytes:
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        values = values[:]
        values.byteswap()
    return values.tobytes()
