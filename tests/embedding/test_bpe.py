"""The built-in embedder: its tokenizer against the library it stands in for, its vectors, and their arithmetic."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from kept.embedding.static import MODEL_FOLDER, TOKENIZER_FILE, PieceEncoder, StaticEmbedder, read_pieces
from kept.store import vector_codes as vectors

TOKENIZER = os.path.join(MODEL_FOLDER, TOKENIZER_FILE)
REFERENCE = Tokenizer.from_file(TOKENIZER)
ENCODER = PieceEncoder(read_pieces(TOKENIZER))


def same_as_reference(text: str) -> None:
    assert ENCODER.encode(text) == REFERENCE.encode(text, add_special_tokens=False).ids


WORDS = st.sampled_from(
    [
        "the",
        "The",
        " lighthouse",
        "keeper's",
        "don't",
        "3.14",
        "ref-0200-3",
        "snake_case",
        "camelCase",
        "http://x.io/?a=b&c",
        "漢字",
        "かな",
        "한국어",
        "ไทย",
        "😀",
        "👩‍👩‍👧",
        "e\u0301",
        "\n",
        "\n\n",
        "\t",
        " ",
        "  ",
        "   ",
        "▁",
        "▁▁",
        "\u00a0",
        "\u3000",
        "\x00",
        "\ufffd",
        "ﬁ",
        "İ",
        "ß",
        "…",
        "—",
        "```",
        "{}",
        "[](",
        "</div>",
        "\\n",
        "0x1F",
        "aaaaaaa",
        "Ωμέγα",
        "Привет",
        "עברית",
        "العربية",
        "<0x0A>",
    ]
)
NO_SURROGATES = st.characters(exclude_categories=["Cs"])
# The library takes the strings '<s>', '</s>' and '<unk>' for control tokens wherever they stand in a text. A note is
# data: here they are letters like all others.
TEXTS = (st.lists(WORDS, max_size=20).map("".join) | st.text(NO_SURROGATES, max_size=80)).filter(
    lambda text: not any(special in text for special in ("<s>", "</s>", "<unk>"))
)


@given(TEXTS)
def test_the_tokenizer_equals_the_library(text):
    same_as_reference(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "  ",
        "   " * 50,
        "\n",
        "a",
        " a",
        "a ",
        "a  b",
        "▁",
        "▁a",
        "a▁b",
        "a ▁ b",
        "\t\t",
        "😀😀",
        "漢" * 300,
        "x" * 500,
        "a" + " " * 37 + "b",
        "word " * 400,
        "\x00\x01\x7f",
        "e\u0301" * 20,
        "\U0010ffff",
        "İstanbul",
        "ﬁn",
        "<0x0A>",
        "</s",
        "<pad>",
        "s>",
        "aAbBcC" * 50,
        "123456789012345678901234567890",
        "=" * 100,
        "-" * 101,
        "...." * 30,
        "\u2028\u2029\x85",
        "\u200b\u200d\ufeff",
        "क्षि" * 20,
    ],
)
def test_the_tokenizer_equals_the_library_on_nasty_strings(text):
    same_as_reference(text)


def test_the_tokenizer_equals_the_library_on_prose(request):
    folder = request.config.rootpath / "src" / "kept"
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.md")]):
        text = path.read_text()
        if not any(special in text for special in ("<s>", "</s>", "<unk>")):
            same_as_reference(text)


def test_control_tokens_in_a_note_are_letters():
    for special in ("<s>", "</s>", "<unk>"):
        assert len(ENCODER.encode(special)) > 1
        assert not {0, 1, 2} & set(ENCODER.encode(special))


def test_half_of_a_surrogate_pair_does_not_stop_the_tokenizer():
    assert ENCODER.encode("a\ud800b")


# vectors


def rows(matrix) -> list[tuple[float, ...]]:
    return [struct.unpack(f"<{matrix.dims}f", row) for row in matrix]


SAMPLES = [
    "the lighthouse keeper",
    "漢字かな交じり文",
    "a",
    "😀 " * 30,
    "word " * 3000,
    "",
    "   ",
    "x" * 30_000,
    "1.5 ± ½",
]

EMBED = """
import hashlib, json, sys
if sys.argv[1] == "many":
    import numpy
from kept.embedding.static import StaticEmbedder
texts = json.loads(sys.stdin.read())
embedder = StaticEmbedder()
data = b"".join(embedder.embed([text], role="document").data for text in texts)
assert ("numpy" in sys.modules) == (sys.argv[1] == "many")
print(hashlib.sha256(data).hexdigest())
"""


def test_one_by_one_and_in_bulk_give_the_same_bytes():
    rng = random.Random(5)
    words = ["alpha", "beta", "gamma", "漢字", "😀", "3.14", "don't", "ref-0200"]
    texts = [text for text in SAMPLES if len(text) < 5000]
    texts += [" ".join(rng.choices(words, k=rng.randint(1, 400))) for _ in range(20)]
    digests = {
        subprocess.run(
            [sys.executable, "-c", EMBED, how], input=json.dumps(texts), capture_output=True, text=True, check=True
        ).stdout
        for how in ("few", "many")
    }
    assert len(digests) == 1


def test_every_vector_has_unit_length_and_text_of_nothing_has_none():
    for text, row in zip(SAMPLES, rows(StaticEmbedder().embed(SAMPLES, role="document")), strict=True):
        length = math.sqrt(math.fsum(value * value for value in row))
        assert length == (0.0 if not text else pytest.approx(1.0, abs=1e-5))


def test_a_text_has_the_same_vector_alone_and_among_others():
    embedder = StaticEmbedder()
    together = list(embedder.embed(SAMPLES, role="document"))
    assert together == [embedder.embed([text], role="query").data for text in SAMPLES]


def test_no_texts_are_no_vectors():
    assert len(StaticEmbedder().embed([], role="document")) == 0


def test_texts_that_mean_the_same_are_nearer_than_others():
    embedder = StaticEmbedder()
    question, answer, other = rows(
        embedder.embed(
            ["which port is the database on", "the database listens on port 5433", "soup recipe"], role="query"
        )
    )
    assert sum(a * b for a, b in zip(question, answer, strict=True)) > sum(
        a * b for a, b in zip(question, other, strict=True)
    )


# arithmetic on codes

COMPONENTS = st.integers(-127, 127)


@given(st.data())
def test_simd_and_numpy_measure_the_same_distances(data):
    dims = data.draw(st.sampled_from([8, 64, 256, 13]))
    code = st.binary(min_size=dims, max_size=dims)
    query, codes = data.draw(code), b"".join(data.draw(st.lists(code, max_size=5)))
    assert list(vectors.cosine_distances(query, codes)) == list(vectors.numpy_cosine_distances(query, codes))
    if dims % 8 == 0:
        assert list(vectors.hamming_distances(query, codes)) == list(vectors.numpy_hamming_distances(query, codes))


@given(st.lists(st.floats(0, 2), max_size=50), st.integers(1, 10))
def test_the_smallest_distances_are_found_with_and_without_numpy(values, limit):
    distances = memoryview(array("d", values))
    expected = sorted(values)[:limit]
    with_numpy = vectors.smallest(distances, limit)
    numpy = sys.modules.pop("numpy")
    try:
        without = vectors.smallest(distances, limit)
    finally:
        sys.modules["numpy"] = numpy
    for found in (with_numpy, without):
        assert sorted(value for value, _ in found)[:limit] == expected
        assert all(values[at] == value for value, at in found)


@pytest.mark.parametrize("measure", [vectors.cosine_distances, vectors.numpy_cosine_distances])
def test_a_vector_of_nothing_is_near_to_nothing(measure):
    nothing, something = bytes(16), bytes([3] * 16)
    assert list(measure(nothing, nothing + something)) == [1.0, 1.0]
    assert list(measure(something, nothing)) == [1.0]
    assert list(measure(something, b"")) == []


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=64))
def test_a_code_points_where_its_vector_points(values):
    code = array("b", vectors.quantise(struct.pack(f"<{len(values)}f", *values)))
    largest = max(map(abs, values))
    assert max(map(abs, code)) == (127 if largest else 0)
    for value, number in zip(values, code, strict=True):
        assert abs(number - (value / largest * 127 if largest else 0)) <= 0.51


@given(st.lists(COMPONENTS, min_size=1, max_size=40))
def test_sign_bits_say_which_components_are_positive(values):
    bits = vectors.sign_bits(array("b", values).tobytes())
    assert len(bits) == -(-len(values) // 8)
    read = "".join(f"{byte:08b}" for byte in bits)
    assert [bit == "1" for bit in read[: len(values)]] == [value > 0 for value in values]
