"""How much each kind of evidence counts. Learned, by `benchmarks/ranking.py`; nothing here was set by hand.

What the words say adds up to 1, and so does what the meaning says; a query's settings, or what was measured for its
embedder, say how the two are mixed. What speaks against a candidate is taken off.
"""

from __future__ import annotations

from kept.values import frozen


@frozen
class Mix:
    words: float
    around: float
    coverage: float
    reach: float
    answers: float
    meaning: float
    beside: float
    asks: float
    other_speaker: float


NOTES = Mix(
    words=0.45, around=0.05, coverage=0.4, reach=0.1, answers=0.0, meaning=1.0, beside=0.0, asks=0.0, other_speaker=0.0
)
TURNS = Mix(
    words=0.2, around=0.1, coverage=0.2, reach=0.4, answers=0.1, meaning=0.7, beside=0.3, asks=0.05, other_speaker=0.08
)
