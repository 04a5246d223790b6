"""Grades of hits: strong, likely or weak, by relevance."""

from __future__ import annotations

from typing import Literal

Grade = Literal["strong", "likely", "weak"]
"""How sure a search is of a hit. Most strong hits are right, and most weak ones are not."""
GRADES: tuple[Grade, ...] = ("strong", "likely", "weak")
STRONG_FROM, LIKELY_FROM = 0.6, 0.25
"""Lowest relevance of a strong and of a likely hit. `benchmarks/calibration.py` and `kept bench` print how often hits
of each grade are right."""


def grade_of(relevance: float) -> Grade:
    """Return the grade of a relevance. Rounding tolerance: a relevance equal to a bound reaches it."""
    relevance += 1e-9
    return "strong" if relevance >= STRONG_FROM else "likely" if relevance >= LIKELY_FROM else "weak"
