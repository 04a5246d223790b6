"""An embedding provider of another package: letters counted, which finds no meaning but shows what is asked of one.

With the package installed, `memory_search.provider: letters` uses it, and `kept providers` lists it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kept.config import MemorySearchSettings
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.records import Matrix

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterEmbedder:
    # Two texts in the same language have much the same letters: only what is nearer than that counts as alike.
    calibration = Calibration(floor=0.8, ceiling=1.0, weight=0.2)

    def __init__(self, model: str) -> None:
        # All that decides what the vectors are. Change any of it, and the index is built anew.
        self.identity = Identity(provider="letters", model=model, dims=len(LETTERS), fingerprint="")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        rows = ([float(text.lower().count(letter)) for letter in LETTERS] for text in texts)
        return pack_unit_rows(rows, len(LETTERS))


def make(settings: MemorySearchSettings) -> LetterEmbedder:
    """What the entry point names: from the settings to an embedder."""
    return LetterEmbedder(settings.model or "count-1")
