"""Computes the table of the multilingual model from the files of the original. It takes half a minute of CPU time.

Every piece of the vocabulary goes through the sentence encoder as a text of its own. The vectors are centred, reduced
to the directions in which they differ most (PCA), and weighted by a / (a + p) with the probability p of the piece, so
that a mean over a text is not about its frequent words (Arora et al. 2017, "A simple but tough-to-beat baseline").
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from typing import Any

from kept.durable import write_atomic
from kept.embedding.multilingual.parts import TABLE_FILE
from kept.embedding.multilingual.piece_table import pack_table
from kept.embedding.multilingual.sentence_encoder import TOKENS_FILE, WEIGHTS_FILE, SentenceEncoder, read_tokens
from kept.embedding.protobuf import ProtobufReader
from kept.remote_errors import EmbedderUnavailable

VOCABULARY_FILE = "sp.model"
DIMS = 256
RARITY = 3e-5
"""The a of the weights: pieces that are much more frequent than this count little."""
_FIRST_PLAIN_PIECE = 6
"""The pieces before it are marks, not text."""
_BATCH = 512


def build_table(folder: str, progress: Callable[[str, int, int], None] | None = None) -> str:
    """Compute the table from the files in a folder, write it there, and return its path."""
    try:
        pieces, scores = read_vocabulary(os.path.join(folder, VOCABULARY_FILE))
        vectors = encode_pieces(SentenceEncoder(folder), len(pieces), progress)
    except (OSError, ValueError, KeyError) as exc:
        raise EmbedderUnavailable(f"{folder}: the multilingual model cannot be made ({exc}).") from exc
    table = pack_table(
        _without_marks(pieces),
        scores,
        weigh(reduce(vectors, DIMS), scores, RARITY),
        recipe=f"use-m3:{DIMS}:{RARITY:g}:1",
    )
    path = os.path.join(folder, TABLE_FILE)
    write_atomic(path, table)
    return path


def unpack_encoder(folder: str, progress: Callable[[str, int, int], None] | None = None) -> str:
    """Rewrite the files of the original so that the whole encoder opens quickly. Return the path of the new table."""
    import numpy as np

    if progress:
        progress("unpacking the encoder", 0, 0)
    weights_path, path = os.path.join(folder, WEIGHTS_FILE), os.path.join(folder, TOKENS_FILE)
    try:
        pieces, scores = read_vocabulary(os.path.join(folder, VOCABULARY_FILE))
        with np.load(weights_path, allow_pickle=False) as stored:
            tokens = read_tokens(stored)
            weights = {name: stored[name] for name in stored.files if not name.startswith("q")}
    except (OSError, ValueError, KeyError) as exc:
        raise EmbedderUnavailable(f"{folder}: the multilingual model cannot be read ({exc}).") from exc
    table = pack_table(_without_marks(pieces), scores, np.zeros((len(pieces), 1)), recipe="use-m3-full:1")
    write_atomic(os.path.join(folder, TABLE_FILE), table)
    np.savez(weights_path, **weights)
    np.save(path, tokens)
    return path


def _without_marks(pieces: list[str]) -> list[str]:
    """Return the pieces with empty ones for the marks: a text that spells a mark is not one."""
    return [*[""] * _FIRST_PLAIN_PIECE, *pieces[_FIRST_PLAIN_PIECE:]]


def read_vocabulary(path: str) -> tuple[list[str], list[float]]:
    """Return the pieces of a SentencePiece model with their log probabilities."""
    with open(path, "rb") as file:
        data = file.read()
    reader = ProtobufReader(data)
    pieces: list[str] = []
    scores: list[float] = []
    for start, end in reader.messages(0, len(data), 1):
        piece, score = "", 0.0
        for number, _, value_start, value_end in reader.fields(start, end):
            if number == 1:
                piece = data[value_start:value_end].decode()
            elif number == 2:
                (score,) = struct.unpack("<f", data[value_start:value_end])
        pieces.append(piece)
        scores.append(score)
    return pieces, scores


def encode_pieces(encoder: SentenceEncoder, count: int, progress: Callable[[str, int, int], None] | None) -> Any:
    """Return the vector of every piece as a text of its own. Marks get zeros."""
    import numpy as np

    vectors = np.zeros((count, 512), dtype=np.float32)
    for start in range(_FIRST_PLAIN_PIECE, count, _BATCH):
        ids = range(start, min(start + _BATCH, count))
        vectors[ids.start : ids.stop] = encoder.encode([(token_id,) for token_id in ids])
        if progress:
            progress("computing vectors", ids.stop, count)
    return vectors


def reduce(vectors: Any, dims: int) -> Any:
    """Return the vectors around their mean, in the directions with the largest variance."""
    import numpy as np

    plain = vectors[_FIRST_PLAIN_PIECE:]
    centred = plain - plain.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # in order of rising variance
    reduced = np.zeros((len(vectors), dims), dtype=np.float32)
    reduced[_FIRST_PLAIN_PIECE:] = centred @ directions[:, ::-1][:, :dims]
    return reduced


def weigh(vectors: Any, scores: list[float], rarity: float) -> Any:
    import numpy as np

    weights = [rarity / (rarity + math.exp(score)) for score in scores]
    return vectors * np.array(weights, dtype=np.float32)[:, None]
