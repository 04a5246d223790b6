"""How much each kind of evidence counts.

`TURNS` was learned by `benchmarks/ranking.py` and rounded, but for `machine`, which is half of what was learned: the
questions it was learned from are nearly all about what a person said. `NOTES` was picked from a grid over all sets of
notes, not learned; docs/retrieval.md says why, and what learning gave.

What the words say adds up to 1, and so does what the meaning says; a query's settings, or what was measured for its
embedder, say how the two are mixed. What speaks against a candidate is taken off.
"""

from __future__ import annotations

from kept.values import frozen


@frozen
class EvidenceWeights:
    words: float
    around: float
    coverage: float
    reach: float
    answers: float
    meaning: float
    beside: float
    asks: float
    other_speaker: float
    machine: float


NOTES = EvidenceWeights(
    words=0.85,
    around=0.0,
    coverage=0.15,
    reach=0.0,
    answers=0.0,
    meaning=1.0,
    beside=0.0,
    asks=0.0,
    other_speaker=0.0,
    machine=0.0,
)
TURNS = EvidenceWeights(
    words=0.25,
    around=0.02,
    coverage=0.08,
    reach=0.5,
    answers=0.15,
    meaning=0.8,
    beside=0.2,
    asks=0.05,
    other_speaker=0.17,
    machine=0.12,
)
TURN_TRUST = 0.75
"""What an embedder's share is multiplied by for turns: short and colloquial, they say less to it than notes do."""
LEAST_TRUST, UNCOVERED_TRUST = 0.5, 4 / 3
"""The same for notes: what it is multiplied by where one of them has all the query's words, and what is added where
none has any. Who asks in words that nobody wrote can only be answered by meaning; a title is found by its words."""
