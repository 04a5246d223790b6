"""The built-in embedder: the mean of a text's token vectors, from a table. Nothing to load and little to compute.

The build puts the model, two files of the package `wordllama`, into the folder of that name (`hatch_build.py`). The
table is mapped, not loaded: a search touches only the few pages that hold its words.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.bpe import PieceEncoder, read_pieces
from kept.errors import EmbedderUnavailable
from kept.records import Matrix

MODEL = "wordllama-l2-256"
DIMS = 256
MODEL_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wordllama")
WEIGHTS_FILE = "l2_supercat_256.safetensors"
TOKENIZER_FILE = "l2_supercat_tokenizer_config.json"
_ROW_BYTES = DIMS * 2
_MAX_CHARS = 20_000

# Below this many tokens, summing in pure Python ends before numpy would be imported.
_FEW_TOKENS = 6_000


class StaticEmbedder:
    """Embedder that sums 16-bit rows in 64-bit floats. Such sums are exact: any order gives the same vector."""

    calibration = Calibration(floor=0.15, ceiling=0.75, weight=0.3)

    def __init__(self, folder: str = MODEL_FOLDER) -> None:
        self._folder = folder

    @cached_property
    def identity(self) -> Identity:
        # The size replaces a hash of 16 MB: the build has checked the hash.
        return Identity("local", MODEL, DIMS, f"static-mean-1:{self._table[2]}")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        encode = self._encoder.encode
        try:
            encoded = [encode(text[:_MAX_CHARS]) for text in texts]
            # Importing numpy takes longer than a search, so a short text uses it only if it is imported already.
            if sum(map(len, encoded)) >= _FEW_TOKENS or "numpy" in sys.modules:
                sums = self._sum_numpy(encoded)
            else:
                view, start, _ = self._table
                unpack = struct.Struct(f"<{DIMS}e").unpack_from
                sums = []
                for ids in encoded:
                    rows = [unpack(view, start + token_id * _ROW_BYTES) for token_id in ids]
                    sums.append([sum(column) for column in zip(*rows, strict=True)] or [0.0] * DIMS)
        # The vocabulary has an id that is not a row of the table.
        except (IndexError, OverflowError, TypeError, struct.error) as exc:
            raise _unusable(self._folder, exc) from exc
        return pack_unit_rows(sums, DIMS)

    def _sum_numpy(self, encoded: list[list[int]]) -> list[list[float]]:
        import numpy as np

        table = self._matrix
        sums = []
        for ids in encoded:
            sums.append(table[np.asarray(ids, dtype=np.intp)].sum(axis=0, dtype=np.float64).tolist())
        return sums

    @cached_property
    def _matrix(self) -> Any:
        import numpy as np

        view, start, end = self._table
        return np.frombuffer(view, dtype="<f2", offset=start, count=(end - start) // 2).reshape(-1, DIMS)

    @cached_property
    def _encoder(self) -> PieceEncoder:
        path = os.path.join(self._folder, TOKENIZER_FILE)
        try:
            return PieceEncoder(read_pieces(path))
        except (OSError, ValueError, RecursionError) as exc:
            raise _unusable(path, exc) from exc

    @cached_property
    def _table(self) -> tuple[mmap.mmap, int, int]:
        """The mapped file, and the offsets at which the rows of the table start and end."""
        path = os.path.join(self._folder, WEIGHTS_FILE)
        try:
            with open(path, "rb") as file:
                header_bytes = struct.unpack("<Q", file.read(8))[0]
                header = json.loads(file.read(min(header_bytes, 1 << 20)))
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            start = 8 + header_bytes
            end = start + _table_size(header)
            if end > len(view):
                raise ValueError("the file is truncated")
        except (OSError, ValueError, RecursionError, struct.error) as exc:
            raise _unusable(path, exc) from exc
        return view, start, end


def _table_size(header: Any) -> int:
    """Return the size in bytes of the only tensor in a safetensors file."""
    match header:
        case {"embedding.weight": {"dtype": "F16", "shape": [int(rows), int(dims)], "data_offsets": [0, int(size)]}}:
            if dims == DIMS and size == rows * _ROW_BYTES > 0:
                return size
    raise ValueError("not the expected table")


def _unusable(path: str, exc: Exception) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The built-in embedding model cannot be read ({path}: {exc}).",
        hint="Reinstall Kept: pip install --force-reinstall kept; in a checkout: pip install -e .",
    )
