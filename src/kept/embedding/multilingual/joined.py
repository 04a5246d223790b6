"""The multilingual embedders: a vector of the built-in model and one of a multilingual part, one after the other.

The built-in model is better at English and at names; the other part knows what words of sixteen languages have in
common. Documents hold both halves at equal length. A query decides how much each half counts, so the choice costs no
indexing: the built-in model splits text of other languages into many more pieces than the other part does, and the
more it does, the less its half counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.multilingual.parts import EncoderPart, MultilingualPart, TablePart
from kept.embedding.static import DIMS as STATIC_DIMS
from kept.embedding.static import StaticEmbedder
from kept.records import Matrix
from kept.values import frozen

ENGLISH_RATIO, OTHER_RATIO = 1.15, 1.3
"""Pieces of the built-in model for one of the other part. Half of all English questions have less than 1.0 to 1.15, by
the number of names in them; half of the German and Spanish ones more than 1.27, of the Chinese 1.8, of the Thai 4."""
_MAX_CHARS = 20_000


@frozen
class QueryShare:
    """Share of the multilingual part in a query: in English, and in another language."""

    english: float
    other: float

    def at(self, ratio: float) -> float:
        foreign = min(1.0, max(0.0, (ratio - ENGLISH_RATIO) / (OTHER_RATIO - ENGLISH_RATIO)))
        return self.english + foreign * (self.other - self.english)


TABLE_SHARE = QueryShare(0.3, 0.6)
ENCODER_SHARE = QueryShare(0.5, 0.7)


class JoinedEmbedder:
    def __init__(
        self, name: str, part: MultilingualPart, *, share: QueryShare, calibration: Calibration, is_slow: bool = False
    ) -> None:
        self.calibration = calibration
        self.is_slow = is_slow
        self._name = name
        self._part = part
        self._share = share
        self._static = StaticEmbedder()

    @cached_property
    def identity(self) -> Identity:
        recipe = f"{self._part.recipe}:{self._static.identity.fingerprint}"
        return Identity("local", self._name, STATIC_DIMS + self._part.dims, f"joined-1:{recipe}")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        texts = [text[:_MAX_CHARS] for text in texts]
        encoded = self._part.encode(texts)
        left_rows = self._static.embed(texts, role=role)
        right_rows = pack_unit_rows(self._part.compute(encoded), self._part.dims)
        rows: list[list[float]] = []
        for text, ids, left, right in zip(texts, encoded, left_rows, right_rows, strict=True):
            share = self._query_share(text, len(ids)) if role == "query" else 0.5
            built_in = [(1 - share) * number for number in memoryview(left).cast("f")]
            rows.append(built_in + [share * number for number in memoryview(right).cast("f")])
        return pack_unit_rows(rows, STATIC_DIMS + self._part.dims)

    def _query_share(self, text: str, pieces: int) -> float:
        # One more of each: the pieces of a single name say little about a language.
        return self._share.at((self._static.count_pieces(text) + 1) / (pieces + 1))


def open_table(folder: str, *, share: QueryShare = TABLE_SHARE) -> JoinedEmbedder:
    """Return the embedder of the model `multilingual`."""
    calibration = Calibration(floor=0.15, ceiling=0.63, weight=0.3)
    return JoinedEmbedder("multilingual", TablePart(folder), share=share, calibration=calibration)


def open_encoder(folder: str, *, share: QueryShare = ENCODER_SHARE) -> JoinedEmbedder:
    """Return the embedder of the model `multilingual-full`."""
    calibration = Calibration(floor=0.11, ceiling=0.6, weight=0.4)
    return JoinedEmbedder("multilingual-full", EncoderPart(folder), share=share, calibration=calibration, is_slow=True)
