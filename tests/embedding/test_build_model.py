"""The build of the built-in model: its parts against the long way, with small random data."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from kept.embedding.piece_table import PieceTable
from tests.support.repository import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from build_model.piece_vectors import Pieces, _reduce, _Splitter, merge_pieces
from build_model.sentence_encoder import SentenceEncoder
from build_model.sources import _read_sentencepiece
from build_model.table_file import write_table

BRANCHES = ((2, 0), (3, 1), (5, 2))
START, END = 1, 2


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    """Arrays of a sentence encoder with 170 tokens."""
    draw = np.random.default_rng(3)
    shapes = {"ln_g": (1280,), "ln_b": (1280,), "cnn_W": (1280, 512), "cnn_b": (512,), "d0": (512, 320)}
    shapes |= {"d1": (320, 320), "p1": (512, 320), "d2": (320, 512), "p3": (320, 512), "d3": (512, 512)}
    for size, _ in BRANCHES:
        shapes |= {f"proj{size}": (512, 256), f"proj_b{size}": (256,), f"ln_g{size}": (256,), f"ln_b{size}": (256,)}
        for layer in (1, 2):
            shapes |= {f"w{layer}_{size}": (256 * size, 256), f"b{layer}_{size}": (256,)}
    arrays = {name: draw.standard_normal(shape) / 20 for name, shape in shapes.items()}
    arrays |= {"lo": draw.standard_normal(17), "scale": draw.random(17) + 0.1, "eps": np.array(1e-12)}
    return arrays | {f"q{part + 1}": draw.integers(0, 64, (10, 512), dtype=np.uint8) for part in range(17)}


def encode_slowly(weights: dict[str, np.ndarray], token: int) -> np.ndarray:
    """Return the vector of a text of one token, step by step, with the windows of each position written out."""

    def normalise(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
        x = x - x.mean()
        return x / math.sqrt((x * x).mean() + float(weights["eps"])) * gain + bias

    def embed(token: int) -> np.ndarray:
        part = token % 17
        return weights[f"q{part + 1}"][token // 17] * weights["scale"][part] + weights["lo"][part]

    def project(embedded: np.ndarray) -> list[np.ndarray]:
        whole = np.concatenate([embedded @ weights[f"proj{size}"] + weights[f"proj_b{size}"] for size, _ in BRANCHES])
        gain, bias = (np.concatenate([weights[f"{name}{size}"] for size, _ in BRANCHES]) for name in ("ln_g", "ln_b"))
        return np.split(normalise(whole, gain, bias), 3)

    embedded = [embed(each) for each in (START, token, END)]
    columns = [project(each) for each in embedded]
    features = [[each] for each in embedded]
    for number, (size, before) in enumerate(BRANCHES):
        x = [column[number] for column in columns]
        for layer in (1, 2):
            padded = [np.zeros(256)] * before + x + [np.zeros(256)] * (size - before - 1)
            windows = [np.concatenate(padded[at : at + size]) for at in range(3)]
            kernel, bias = weights[f"w{layer}_{size}"], weights[f"b{layer}_{size}"]
            x = [np.maximum(window @ kernel + bias, 0) + each for window, each in zip(windows, x, strict=True)]
        for at, each in enumerate(x):
            features[at].append(each)
    summed = sum(normalise(np.concatenate(each), weights["ln_g"], weights["ln_b"]) for each in features)
    x = (summed @ weights["cnn_W"] + 3 * weights["cnn_b"]) / math.sqrt(3)
    middle = np.maximum(x @ weights["p1"] + np.maximum(x @ weights["d0"], 0) @ weights["d1"], 0)
    vector = np.tanh(middle @ weights["p3"] + np.maximum(middle @ weights["d2"], 0) @ weights["d3"])
    return vector / np.linalg.norm(vector)


def test_the_encoder_computes_what_the_long_way_computes(weights):
    fast = SentenceEncoder(weights).encode_tokens(6, 40)
    for row, token in ((0, 6), (11, 17), (33, 39)):
        assert np.allclose(fast[row], encode_slowly(weights, token), atol=1e-12)


def test_pieces_and_scores_are_read_from_a_sentencepiece_file():
    piece = b"\x0a\x05\xe2\x96\x81ab\x15\x00\x00\x20\xc1"  # "▁ab", -10.0
    data = b"\x0a" + bytes([len(piece)]) + piece + b"\x12\x02\x08\x01" + b"\x0a\x03\x0a\x01c"
    assert _read_sentencepiece(data) == (["▁ab", "c"], [-10.0, 0.0])


def test_a_word_is_split_into_its_most_probable_pieces_or_not_at_all():
    splitter = _Splitter(["", "▁", "▁cat", "c", "a", "ts", "s"], [0.0, -1.0, -5.0, -2.0, -2.0, -9.0, -1.0])
    assert splitter.split("▁cats") == [2, 6]
    assert splitter.split("▁cax") == []


def test_pieces_merge_as_the_library_merges_them():
    letters = ["a", "b", "c", "▁"]
    merges = [("a", "b"), ("▁", "ab"), ("b", "c"), ("ab", "c"), ("c", "c")]
    pieces = {piece: number for number, piece in enumerate([*letters, *("".join(pair) for pair in merges)])}
    library = Tokenizer(BPE(pieces, merges))
    for text in ("▁abc", "abcc", "ccc", "bcab", "▁▁abab", "a"):
        assert merge_pieces(text, pieces) == library.encode(text).tokens


def test_reducing_keeps_the_distances_that_matter():
    draw = np.random.default_rng(5)
    plane = draw.standard_normal((50, 2)) @ draw.standard_normal((2, 256))
    reduced = _reduce(plane, np.ones(50))
    before = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    assert np.allclose(before, np.linalg.norm(reduced[:, None] - reduced[None], axis=2), rtol=2e-2, atol=1e-2)


def test_the_product_reads_the_file_that_the_build_writes(tmp_path):
    draw = np.random.default_rng(7)
    texts = ["", "▁cat", "▁dog", "แมว"]
    english, shared = draw.standard_normal((4, 8)), draw.standard_normal((4, 16)) / 100
    english[3] = 0
    write_table(str(tmp_path / "small.table"), Pieces(texts, [0.0, -3.0, -4.0, -5.5], english, shared))
    table = PieceTable(str(tmp_path / "small.table"))
    assert (table.rows, table.english_dims, table.shared_dims) == (4, 8, 16)
    assert table.pieces() == {"▁cat": 1, "▁dog": 2, "แมว": 3}
    assert table.score(3) == -5.5
    for rows in ([1], [2, 3, 3]):
        first, second = table.sum_rows(rows)
        assert first == pytest.approx(english[rows].sum(axis=0), abs=0.2)
        assert second == pytest.approx(shared[rows].sum(axis=0), abs=0.002)
        assert table.sum_many([rows]) == [(first, second)]
