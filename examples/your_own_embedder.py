"""An embedder of your own: letters counted, which is no way to find meaning but shows what is asked of one.

Run it: python examples/your_own_embedder.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from kept import Memory
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.records import Matrix

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterEmbedder:
    identity = Identity(provider="letters", model="count-1", dims=len(LETTERS), fingerprint="")
    calibration = Calibration(floor=0.7, ceiling=1.0, weight=0.2)

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        return pack_unit_rows(([float(text.lower().count(x)) for x in LETTERS] for text in texts), len(LETTERS))


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(f"{folder}/notes", home=folder, embedder=LetterEmbedder(), create=True) as memory,
    ):
        memory.add("Zebras graze on the savannah.", to="memory")
        for hit in memory.search("zebra"):
            print(hit.citation, [f"{part.name} {part.value:.2f}" for part in hit.parts])


if __name__ == "__main__":
    main()
