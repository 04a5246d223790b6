"""Measures the scale of a model's cosines, on the model itself.

Models differ: unrelated sentences have a cosine of 0.00 in the built-in model and of 0.39 in bge-small, so no constant
serves all of them. Eight questions and the passages that answer them, each on another subject, give 8 cosines of
related texts and 56 of unrelated ones.
"""

from __future__ import annotations

import struct
from statistics import fmean, pstdev
from typing import Protocol

from kept.embedding.base import Calibration, Role
from kept.records import Matrix

_PAIRS = (
    ("which port does the staging database use?", "Staging moved its database to port 5433 in March."),
    ("who is allergic to nuts?", "Anna cannot eat peanuts or almonds; she carries an adrenaline pen."),
    ("when is the rent due?", "The landlord wants the money on the third working day of each month."),
    ("how do I restart the printer queue?", "If print jobs are stuck, run cupsenable as root and try once more."),
    ("what did we decide about the logo?", "The board chose the green emblem over the older blue design."),
    ("where did the family go on holiday?", "In July they hired a cottage by the sea in Brittany."),
    ("why was the flight late?", "Fog over the airport held the plane back for two hours."),
    ("what does the cat weigh?", "At the vet's this morning Miso came to four and a half kilos."),
)
WEIGHT = 0.5

# Distance of floor and ceiling from the mean of their kind, in standard deviations. Both were chosen to give the
# built-in model the 0.15 and 0.75 that the retrieval sets gave it by hand, so that one `min_score` serves every model.
_FLOOR_DEVIATIONS = 2.3
_CEILING_DEVIATIONS = 2.85
_LEAST_SPREAD = 0.05


class TextEmbedder(Protocol):
    """The part of an embedder that is measured. It has no calibration yet."""

    def embed(self, texts: list[str], *, role: Role) -> Matrix: ...


def measure_calibration(embedder: TextEmbedder) -> Calibration:
    """Return a floor above the cosines of unrelated texts and a ceiling above those of questions and answers."""
    questions = _rows(embedder.embed([question for question, _ in _PAIRS], role="query"))
    passages = _rows(embedder.embed([passage for _, passage in _PAIRS], role="document"))
    related: list[float] = []
    unrelated: list[float] = []
    for question_number, question in enumerate(questions):
        for passage_number, passage in enumerate(passages):
            cosine = sum(a * b for a, b in zip(question, passage, strict=True))
            (related if question_number == passage_number else unrelated).append(cosine)
    floor = fmean(unrelated) + _FLOOR_DEVIATIONS * pstdev(unrelated)
    ceiling = min(1.0, fmean(related) + _CEILING_DEVIATIONS * pstdev(related))
    if ceiling - floor < _LEAST_SPREAD:
        return Calibration(weight=WEIGHT)  # a model that cannot separate these has no scale
    return Calibration(floor=floor, ceiling=ceiling, weight=WEIGHT)


def _rows(matrix: Matrix) -> list[tuple[float, ...]]:
    return [struct.unpack(f"<{matrix.dims}f", row) for row in matrix]
