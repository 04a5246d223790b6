"""The multilingual embedders: a vector of the built-in model and one of a multilingual part, one after the other.

The built-in model is better at English and at names; the other part knows what words of sixteen languages have in
common. Documents and queries hold both halves at equal length. The search decides for each query how much each half
counts (`blend_query`), so the choice costs no indexing. The built-in half counts less the further question and notes
differ in language, which shows in two ways: the index does not know the words of the question, not even the small ones;
and the built-in model splits them into many more pieces than the other part does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.multilingual.parts import EncoderPart, MultilingualPart, TablePart
from kept.embedding.static import DIMS as STATIC_DIMS
from kept.embedding.static import StaticEmbedder
from kept.records import Matrix
from kept.values import frozen

FEW_UNKNOWN, MANY_UNKNOWN = 0.35, 0.7
"""Share of a question's words, small ones included, that no chunk has. Of questions in the language of the notes, 19 of
20 have less than 0.25 (Chinese 0.44); of questions in another language, 19 of 20 have more than 0.44, and half 0.92."""
LATIN_RATIO, OTHER_RATIO = 1.35, 1.6
"""Pieces of the built-in model for one of the other part. Of English questions, 19 of 20 have less than 1.34; half of
the Chinese ones more than 1.8, and of the Thai 4: the built-in model does not know their scripts."""
_MAX_CHARS = 20_000


@frozen
class QueryShare:
    """Share of the multilingual part in a query: in the language of the notes, and in another one."""

    same: float
    other: float

    def at(self, unknown: float, ratio: float) -> float:
        """Return the share for a share of unknown words, and a number of pieces relative to the other part's."""
        by_words = (unknown - FEW_UNKNOWN) / (MANY_UNKNOWN - FEW_UNKNOWN)
        by_pieces = (ratio - LATIN_RATIO) / (OTHER_RATIO - LATIN_RATIO)
        foreign = min(1.0, max(0.0, by_words, by_pieces))
        return self.same + foreign * (self.other - self.same)


TABLE_SHARE = QueryShare(0.3, 0.8)
ENCODER_SHARE = QueryShare(0.5, 0.8)


class JoinedEmbedder:
    """``calibration`` is for the cosines of the two halves, weighted by their shares."""

    def __init__(
        self, name: str, part: MultilingualPart, *, share: QueryShare, calibration: Calibration, is_slow: bool = False
    ) -> None:
        self.is_slow = is_slow
        self._name = name
        self._part = part
        self._share = share
        self._halves = calibration
        self._static = StaticEmbedder()

    @cached_property
    def identity(self) -> Identity:
        recipe = f"{self._part.recipe}:{self._static.identity.fingerprint}"
        return Identity("local", self._name, STATIC_DIMS + self._part.dims, f"joined-1:{recipe}")

    @property
    def calibration(self) -> Calibration:
        """Return the scale for vectors as `embed` returns them, with both halves at equal length."""
        return self._calibration_at(0.5)

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        texts = [text[:_MAX_CHARS] for text in texts]
        left_rows = self._static.embed(texts, role=role)
        right_rows = pack_unit_rows(self._part.compute(self._part.encode(texts)), self._part.dims)
        halves = zip(left_rows, right_rows, strict=True)
        return pack_unit_rows((_floats(left) + _floats(right) for left, right in halves), self.identity.dims)

    def blend_query(self, row: bytes, text: str, *, unknown: float) -> tuple[bytes, Calibration]:
        """Return the vector of a query with its halves in the right proportion, and the scale of its cosines.

        ``row`` is its vector from `embed`. ``unknown`` is the share of its words that no chunk has.
        """
        share = self._share.at(unknown, self._piece_ratio(text[:_MAX_CHARS]))
        numbers = _floats(row)
        left = [(1 - share) * number for number in numbers[:STATIC_DIMS]]
        right = [share * number for number in numbers[STATIC_DIMS:]]
        return pack_unit_rows([left + right], len(numbers)).data, self._calibration_at(share)

    def _piece_ratio(self, text: str) -> float:
        # One more of each: the pieces of a single name say little about a language.
        return (self._static.count_pieces(text) + 1) / (len(self._part.encode([text])[0]) + 1)

    def _calibration_at(self, share: float) -> Calibration:
        # A document's halves have the length 1/√2 each, and those of a query are shortened to their shares.
        length = math.sqrt(2 * ((1 - share) ** 2 + share**2))
        return Calibration(self._halves.floor / length, self._halves.ceiling / length, self._halves.weight)


def _floats(row: bytes) -> list[float]:
    return [*memoryview(row).cast("f")]


def open_table(folder: str, *, share: QueryShare = TABLE_SHARE) -> JoinedEmbedder:
    """Return the embedder of the model `multilingual`."""
    calibration = Calibration(floor=0.15, ceiling=0.75, weight=0.3)
    return JoinedEmbedder("multilingual", TablePart(folder), share=share, calibration=calibration)


def open_encoder(folder: str, *, share: QueryShare = ENCODER_SHARE) -> JoinedEmbedder:
    """Return the embedder of the model `multilingual-full`."""
    calibration = Calibration(floor=0.15, ceiling=0.75, weight=0.4)
    return JoinedEmbedder("multilingual-full", EncoderPart(folder), share=share, calibration=calibration, is_slow=True)
