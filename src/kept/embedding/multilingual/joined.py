"""The multilingual embedder: vectors of the built-in model and of the multilingual table, one after the other.

The built-in model is better at English and at names; the table knows what words of sixteen languages have in common.
Documents hold both halves at equal length. A query decides how much each half counts, so the choice costs no indexing:
the built-in model splits text of other languages into many more pieces than the table does, and the more it does, the
less its half counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property

from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.multilingual.piece_table import PieceTable
from kept.embedding.multilingual.unigram import UnigramEncoder
from kept.embedding.static import DIMS as STATIC_DIMS
from kept.embedding.static import StaticEmbedder
from kept.records import Matrix

MODEL = "multilingual"
LEAST_SHARE, MOST_SHARE = 0.3, 0.6
"""Share of the table for a query in English, and for one in another language."""
ENGLISH_RATIO, OTHER_RATIO = 1.05, 1.25
"""Pieces of the built-in model for one of the table. English has 0.86 to 1.04, German and Spanish 1.1 to 1.7."""

_MAX_CHARS = 20_000
_FEW_CHARS = 2_000
"""Up to here, pieces are looked up in the file. For more text, a dict of all pieces is worth its time."""
_UNKNOWN_SCORE = -28.833
"""Log probability of a character that the table does not have: ten below the rarest piece, as in SentencePiece."""


class JoinedEmbedder:
    """Embedder over the file of `kept models pull multilingual`. ``share`` fixes the share of the table in a query."""

    calibration = Calibration(floor=0.16, ceiling=0.63, weight=0.3)

    def __init__(self, path: str, *, share: float | None = None) -> None:
        self._path = path
        self._share = share
        self._static = StaticEmbedder()

    @cached_property
    def identity(self) -> Identity:
        recipe = f"{self._table.header.recipe}:{self._static.identity.fingerprint}"
        return Identity("local", MODEL, STATIC_DIMS + self._table.header.dims, f"joined-1:{recipe}")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        texts = [text[:_MAX_CHARS] for text in texts]
        encoded = self._encode(texts)
        left_rows = self._static.embed(texts, role=role)
        right_rows = pack_unit_rows(self._sum(encoded), self._table.header.dims)
        rows: list[list[float]] = []
        for text, ids, left, right in zip(texts, encoded, left_rows, right_rows, strict=True):
            share = self._query_share(text, len(ids)) if role == "query" else 0.5
            built_in = [(1 - share) * number for number in memoryview(left).cast("f")]
            rows.append(built_in + [share * number for number in memoryview(right).cast("f")])
        return pack_unit_rows(rows, STATIC_DIMS + self._table.header.dims)

    def _query_share(self, text: str, pieces: int) -> float:
        if self._share is not None:
            return self._share
        ratio = self._static.count_pieces(text) / max(1, pieces)
        foreign = min(1.0, max(0.0, (ratio - ENGLISH_RATIO) / (OTHER_RATIO - ENGLISH_RATIO)))
        return LEAST_SHARE + foreign * (MOST_SHARE - LEAST_SHARE)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoder = self._encoder if sum(map(len, texts)) <= _FEW_CHARS else self._bulk_encoder
        return [encoder.encode(text) for text in texts]

    def _sum(self, encoded: Sequence[Sequence[int]]) -> list[list[float]]:
        if sum(map(len, encoded)) <= _FEW_CHARS and "numpy" not in sys.modules:
            return [self._table.sum_rows(ids) for ids in encoded]
        import numpy as np

        vectors, factors = self._table.arrays()
        # In 64-bit floats these sums are exact to the last bit that counts, so both ways give the same vector.
        exact = factors.astype(np.float64)
        return [(exact[row_ids] @ vectors[row_ids]).tolist() for row_ids in (np.array(ids, int) for ids in encoded)]

    @cached_property
    def _table(self) -> PieceTable:
        return PieceTable(self._path)

    @cached_property
    def _encoder(self) -> UnigramEncoder:
        return UnigramEncoder(self._table.find, self._table.score, unknown_score=_UNKNOWN_SCORE)

    @cached_property
    def _bulk_encoder(self) -> UnigramEncoder:
        return UnigramEncoder(self._table.pieces().get, self._table.score, unknown_score=_UNKNOWN_SCORE)
