"""Embedding provider in a package of its own. It counts letters: useless for search, but a complete example.

Install the package and set `memory_search.provider: letters`. `kept models` lists it too.
"""

from __future__ import annotations

from collections.abc import Sequence

from kept.config import MemorySearchSettings
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.records import Matrix

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterEmbedder:
    # Texts in the same language have similar letter counts, so only a cosine above the floor counts as similar.
    calibration = Calibration(floor=0.8, ceiling=1.0, weight=0.2)

    def __init__(self, model: str) -> None:
        # Everything that the vectors depend on. A change of any of it rebuilds the index.
        self.identity = Identity(provider="letters", model=model, dims=len(LETTERS), fingerprint="")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        rows = ([float(text.lower().count(letter)) for letter in LETTERS] for text in texts)
        return pack_unit_rows(rows, len(LETTERS))


def make(settings: MemorySearchSettings) -> LetterEmbedder:
    """Return an embedder for the settings. The entry point names this function."""
    return LetterEmbedder(settings.model or "count-1")
