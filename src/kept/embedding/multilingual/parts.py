"""The two ways to a multilingual vector: a sum over the table of pieces, or the whole sentence encoder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

from kept.embedding.multilingual.piece_table import PieceTable
from kept.embedding.multilingual.unigram import UnigramEncoder

TABLE_FILE = "pieces.table"
_FEW_CHARS = 2_000
"""Up to here, pieces are looked up in the file. For more text, building a dict of all pieces pays off."""
_UNKNOWN_SCORE = -28.833
"""Log probability of a character that the table does not have: ten below the rarest piece, as in SentencePiece."""
_BATCH_PIECES = 1_000


class MultilingualPart(Protocol):
    """The part of a joined vector that knows many languages."""

    @property
    def dims(self) -> int: ...

    @property
    def recipe(self) -> str:
        """Identify the vectors."""
        ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the pieces of each text."""
        ...

    def compute(self, encoded: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return a vector of any length for each text."""
        ...


class TablePart:
    """Sum of the vectors of a text's pieces, from the file that `distil` writes."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, TABLE_FILE)

    @property
    def dims(self) -> int:
        return self._table.header.dims

    @property
    def recipe(self) -> str:
        return self._table.header.recipe

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoder = self._encoder if sum(map(len, texts)) <= _FEW_CHARS else self._bulk_encoder
        return [encoder.encode(text) for text in texts]

    def compute(self, encoded: Sequence[Sequence[int]]) -> list[list[float]]:
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


class EncoderPart(TablePart):
    """Vector of the sentence encoder. The table has the pieces and no vectors."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._folder = folder

    @property
    def dims(self) -> int:
        from kept.embedding.multilingual.sentence_encoder import DIMS

        return DIMS

    def compute(self, encoded: Sequence[Sequence[int]]) -> list[list[float]]:
        rows: list[list[float]] = [[]] * len(encoded)
        for batch in _iter_batches(encoded):
            for position, row in zip(batch, self._sentence_encoder.encode([encoded[at] for at in batch]), strict=True):
                rows[position] = row.tolist() if encoded[position] else [0.0] * self.dims
        return rows

    @cached_property
    def _sentence_encoder(self) -> Any:
        from kept.embedding.multilingual.sentence_encoder import SentenceEncoder

        return SentenceEncoder(self._folder)


def _iter_batches(encoded: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield positions of texts that go through the encoder together. It needs no padding, so order does not matter."""
    batch: list[int] = []
    pieces = 0
    for position, ids in enumerate(encoded):
        if batch and pieces + len(ids) > _BATCH_PIECES:
            yield batch
            batch, pieces = [], 0
        batch.append(position)
        pieces += len(ids)
    if batch:
        yield batch
