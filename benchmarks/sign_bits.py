"""Print how many of the nearest passages are among the candidates that sign bits find, on the text of sets.

    python -m benchmarks.sign_bits SET... [--queries N]

The texts are cut into overlapping pieces, to have as many as a large memory. A share of candidates says what a number
of them means at another size: 2,000 of 1,000,000 passages are 0.2 %.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence

import numpy as np

from kept.app import open_embedder
from kept.bench.dataset import read_set
from kept.config import load_config
from kept.embedding.base import Embedder, Role

PIECE_CHARS, STEP_CHARS = 350, 200
BATCH = 4_000
SHARES = (0.002, 0.004, 0.007, 0.014, 0.035)
NEAREST = (10, 50)


def cut(text: str) -> list[str]:
    return [text[at : at + PIECE_CHARS] for at in range(0, max(1, len(text) - PIECE_CHARS + STEP_CHARS), STEP_CHARS)]


def embed(embedder: Embedder, texts: Sequence[str], role: Role) -> np.ndarray:
    """Return unit vectors."""
    batches = [embedder.embed(texts[at : at + BATCH], role=role) for at in range(0, len(texts), BATCH)]
    matrix = np.concatenate([np.frombuffer(batch.data, dtype="<f4").reshape(-1, batch.dims) for batch in batches])
    return matrix / np.maximum(1e-9, np.linalg.norm(matrix, axis=1, keepdims=True))


def find_shares(pieces: np.ndarray, queries: np.ndarray) -> dict[tuple[int, float], float]:
    """Return which part of the nearest pieces is found, by their number and the share of candidates."""
    signs, query_signs = np.where(pieces > 0, 1.0, -1.0).astype("f4"), np.where(queries > 0, 1.0, -1.0).astype("f4")
    parts: dict[tuple[int, float], list[float]] = {(near, share): [] for near in NEAREST for share in SHARES}
    for query, bits in zip(queries, query_signs, strict=True):
        order = np.argsort(-(pieces @ query))[: max(NEAREST)]
        place = np.empty(len(pieces), dtype=np.int64)
        place[np.argsort(-(signs @ bits), kind="stable")] = np.arange(len(pieces))
        for near, share in parts:
            parts[near, share].append(float(np.mean(place[order[:near]] < share * len(pieces))))
    return {key: float(np.mean(values)) for key, values in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--queries", type=int, default=80, help="of each set")
    chosen = parser.parse_args()
    sets = [read_set(path) for path in chosen.sets]
    with tempfile.TemporaryDirectory() as home:
        embedder = open_embedder(load_config(home=home, environ={}).config, "local")
        assert embedder is not None
        texts = [piece for bench in sets for document in bench.documents for piece in cut(document.text)]
        pieces = embed(embedder, texts, "document")
        asked = [query.text for bench in sets for query in bench.queries[: chosen.queries]]
        found = find_shares(pieces, embed(embedder, asked, "query"))
    print(f"{len(pieces):,} pieces, {len(asked)} queries; part of the nearest that is among the candidates:")
    print("candidates   " + "".join(f"{share:>9.1%}" for share in SHARES))
    for near in NEAREST:
        print(f"nearest {near:>4} " + "".join(f"{found[near, share]:>9.3f}" for share in SHARES))


if __name__ == "__main__":
    main()
