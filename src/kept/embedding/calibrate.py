"""What the cosines of a model mean, measured on the model itself.

Models differ: two sentences that have nothing to do with each other are at 0.00 in the built-in model and at 0.39 in
bge-small, so no constant serves all of them. Eight questions and the passage that answers each, on as many subjects,
give 8 cosines of texts that agree and 56 of texts that do not.
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

# So many deviations above the mean of its kind. Both were chosen to give the built-in model the 0.15 and 0.75 that
# the retrieval sets gave it by hand, so that one `min_score` can serve every model.
_FLOOR_DEVIATIONS = 2.3
_CEILING_DEVIATIONS = 2.85
_LEAST_SPREAD = 0.05


class Embeds(Protocol):
    def embed(self, texts: list[str], *, role: Role) -> Matrix: ...


def measure_calibration(embedder: Embeds) -> Calibration:
    """The floor is above where unrelated texts are, the ceiling above where a question meets its answer."""
    questions = _rows(embedder.embed([question for question, _ in _PAIRS], role="query"))
    passages = _rows(embedder.embed([passage for _, passage in _PAIRS], role="document"))
    related: list[float] = []
    unrelated: list[float] = []
    for at, question in enumerate(questions):
        for against, passage in enumerate(passages):
            cosine = sum(a * b for a, b in zip(question, passage, strict=True))
            (related if at == against else unrelated).append(cosine)
    floor = fmean(unrelated) + _FLOOR_DEVIATIONS * pstdev(unrelated)
    ceiling = min(1.0, fmean(related) + _CEILING_DEVIATIONS * pstdev(related))
    if ceiling - floor < _LEAST_SPREAD:
        return Calibration(weight=WEIGHT)  # a model that cannot tell these apart has no scale of its own
    return Calibration(floor=floor, ceiling=ceiling, weight=WEIGHT)


def _rows(matrix: Matrix) -> list[tuple[float, ...]]:
    return [struct.unpack(f"<{matrix.dims}f", row) for row in matrix]
