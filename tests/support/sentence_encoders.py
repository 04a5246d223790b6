"""Write the files of a multilingual sentence encoder with a small vocabulary."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from kept.embedding.multilingual.sentence_encoder import DIMS
from kept.embedding.multilingual.unigram import SPACE

MARKS = ["<unk>", "<s>", "</s>", "extra_token_id_1", "extra_token_id_2", "extra_token_id_3"]
WORDS = ["cat", "Katze", "dog", "Hund", "house", "Haus", "the", "die", "das", "der"]
PIECES = [*MARKS, SPACE, *(SPACE + word for word in WORDS), *"abcdefghijklmnopqrstuvwxyzHK", "家", "แมว"]
SCORES = [0.0] * len(MARKS) + [-3.0 - number / 10 for number in range(len(PIECES) - len(MARKS))]


def write_encoder(folder: Path) -> None:
    """Write random weights in the layout of the published model, for a small vocabulary."""
    generator = np.random.default_rng(3)

    def matrix(*shape: int):
        return (generator.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)

    weights = {f"q{number + 1}": generator.integers(0, 64, (4, DIMS), dtype=np.uint8) for number in range(17)}
    weights |= {"scale": np.full(17, 0.05, np.float32), "lo": np.full(17, -1.6, np.float32), "eps": np.float64(1e-6)}
    for size in (2, 3, 5):
        weights |= {f"proj{size}": matrix(DIMS, 256), f"proj_b{size}": matrix(256)}
        weights |= {f"ln_g{size}": matrix(256), f"ln_b{size}": matrix(256)}
        for layer in (1, 2):
            weights |= {f"w{layer}_{size}": matrix(size * 256, 256), f"b{layer}_{size}": matrix(256)}
    weights |= {"ln_g": matrix(1280), "ln_b": matrix(1280), "cnn_W": matrix(1280, 512), "cnn_b": matrix(512)}
    weights |= {"d0": matrix(512, 320), "d1": matrix(320, 320), "p1": matrix(512, 320), "d2": matrix(320, 512)}
    np.savez(folder / "weights.npz", **weights, p3=matrix(320, 512), d3=matrix(512, 512))
    vocabulary = b"".join(
        b"\x0a" + varint(len(entry)) + entry
        for entry in (
            b"\x0a" + varint(len(piece.encode())) + piece.encode() + b"\x15" + struct.pack("<f", score)
            for piece, score in zip(PIECES, SCORES, strict=True)
        )
    )
    (folder / "sp.model").write_bytes(vocabulary)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])
