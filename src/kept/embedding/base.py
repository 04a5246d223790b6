"""The embedder protocol, and the arithmetic that all embedders share."""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Literal, Protocol, runtime_checkable

from kept.base.records import Matrix
from kept.base.reports import Usage
from kept.base.values import frozen

Role = Literal["query", "document"]


@frozen
class Identity:
    """Origin of a vector. Vectors of two identities are never compared.

    ``fingerprint`` separates vectors that the names do not: another endpoint, other weights. It never holds a secret.
    ``dims`` is 0 if only the answer to a first call would tell: reading an identity costs no call.
    """

    provider: str
    model: str
    dims: int
    fingerprint: str

    @property
    def key(self) -> str:
        parts = f"{self.provider}\n{self.model}\n{self.dims}\n{self.fingerprint}"
        return hashlib.sha256(parts.encode()).hexdigest()


@frozen
class Calibration:
    """Scale of an embedder's cosines: at ``floor`` two texts are unrelated, at ``ceiling`` they agree.

    ``weight`` is the share of a score that the vectors have earned against the words, by measurement.
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
        """Return a unit vector for each text, in order. Raise EmbeddingError; never return fewer rows.

        If only some texts could be embedded, the rows of the others are zeros, and ``gaps`` names them.
        """
        ...


def pack_unit_rows(rows: Iterable[Sequence[float]], dims: int) -> Matrix:
    """Return the rows as unit vectors. Values that are not finite count as 0; a row of zeros stays one."""
    packed = array("f")
    for row in rows:
        finite = row if all(map(math.isfinite, row)) else [value if math.isfinite(value) else 0.0 for value in row]
        norm = math.sqrt(math.fsum(map(mul, finite, finite)))
        packed.extend([value / norm for value in finite] if norm > 1e-10 else [0.0] * dims)
    if sys.byteorder == "big":  # vectors are stored little-endian
        packed.byteswap()
    return Matrix(dims, packed.tobytes())


def usage_of(embedder: Embedder | None) -> Usage:
    """Return what a provider on the network has used so far. Local embedders do not count: they cost nothing."""
    usage = getattr(embedder, "usage", None)
    return usage if isinstance(usage, Usage) else Usage()
