"""The built-in embedder: its file, its tokenizer against the library it stands in for, its vectors and their parts."""

import hashlib
import json
import math
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import NFKC
from tokenizers.pre_tokenizers import Metaspace

from kept.base.remote_errors import EmbedderUnavailable
from kept.embedding import registry
from kept.embedding.static import (
    MODEL_FOLDER,
    TABLE_FILE,
    PieceTable,
    StaticEmbedder,
)
from tests.support.commands import run_python
from tests.support.embedding_models import rows
from tests.support.repository import ROOT

FILE = Path(MODEL_FOLDER, TABLE_FILE)
TABLE = PieceTable(str(FILE))
EMBEDDER = StaticEmbedder()
HEADER = struct.Struct("<8sIIII32s")
PART_DIMS = 192


def test_the_table_is_the_one_that_the_build_makes_on_every_machine():
    digest = hashlib.sha256(FILE.read_bytes()).hexdigest()
    assert f'SHA256 = "{digest}"' in (ROOT / "hatch_build.py").read_text()


def test_the_header_says_what_follows():
    data = FILE.read_bytes()
    magic, count, slots, english, shared, digest = HEADER.unpack_from(data)
    assert (magic, english, shared) == (b"KEPTPT02", PART_DIMS, PART_DIMS)
    assert 130_000 < count < slots
    assert digest == hashlib.sha256(data[8:24] + data[64:]).digest()
    assert TABLE.digest == digest.hex()


def test_the_identity_and_the_vectors_are_those_that_existing_indexes_were_made_with():
    vectors = EMBEDDER.embed(["The staging database listens on port 5433.", "ดอกไม้ 花 émigré 🦜", ""], role="document")
    assert EMBEDDER.identity.key == "4ea0439f136fcde80ca9189273ac8f635409d8e00f8e07cabd85326409a665b5"
    assert (
        hashlib.sha256(vectors.data).hexdigest() == "d4981dc3901fa52ae7e8c5db2d36fd2abe30b6f76ec7d14541a78c56b15b1809"
    )


def test_every_piece_is_found_and_nothing_else():
    pieces = TABLE.pieces()
    assert all(TABLE.find(piece) == row for piece, row in pieces.items())
    assert all(TABLE.find(text) is None for text in ("", "▁qzx", "<unk>"))


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "truncated"])
def test_a_model_that_cannot_be_read_says_so_and_words_are_still_found(
    memory, workspace, tmp_path, damage, monkeypatch
):
    if damage != "missing":
        content = {"empty": b"", "garbage": b"\xff" * 100, "truncated": FILE.read_bytes()[:5000]}[damage]
        (tmp_path / TABLE_FILE).write_bytes(content)
    with pytest.raises(EmbedderUnavailable) as caught:
        StaticEmbedder(str(tmp_path))
    assert "pip install --force-reinstall kept" in caught.value.hint
    (workspace / "MEMORY.md").write_text("the lighthouse keeper")
    monkeypatch.setattr(registry, "make_embedder", lambda *_, **__: StaticEmbedder(str(tmp_path)))
    result = memory(embedder=None).search("lighthouse")
    assert len(result) == 1
    assert "by word only" in result.degraded[0]


@pytest.mark.parametrize(
    "header",
    [
        (b"KEPTPT01", 2, 4, 8, 8),
        (b"KEPTPT02", 0, 4, 8, 8),
        (b"KEPTPT02", 2, 5, 8, 8),
        (b"KEPTPT02", 4, 4, 8, 8),
        (b"KEPTPT02", 2, 4, 1 << 31, 8),
        (b"KEPTPT02", 1 << 31, (1 << 32) - 1, 8, 8),
    ],
)
def test_a_header_that_lies_about_the_table_is_refused(tmp_path, header):
    (tmp_path / TABLE_FILE).write_bytes(HEADER.pack(*header, bytes(32)).ljust(64, b"\0") + bytes(1000))
    with pytest.raises(EmbedderUnavailable, match=TABLE_FILE):
        StaticEmbedder(str(tmp_path))


@pytest.fixture(scope="module")
def reference() -> Tokenizer:
    """The library with the pieces of the table. Its first pieces stand for the marks, which no text contains."""
    texts = {row: piece for piece, row in TABLE.pieces().items()}
    vocabulary = [(texts.get(row, f"\x02mark{row}"), TABLE.scores[row]) for row in range(TABLE.rows)]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = NFKC()
    tokenizer.pre_tokenizer = Metaspace(prepend_scheme="always")
    return tokenizer


def score_of(ids: list[int]) -> float:
    return sum(-28.833 if row == 0 else TABLE.scores[row] for row in ids)


def same_as_reference(reference: Tokenizer, text: str) -> None:
    """Compare each word. Of several splits with the same probability, either may be chosen, and the library joins
    unknown characters that stand together."""
    for word in text.split():
        ours = EMBEDDER._encoder.encode(word)
        theirs = reference.encode(word).ids
        if 0 in ours:
            ours = [row for at, row in enumerate(ours) if row or not at or ours[at - 1]]
        assert ours == theirs or score_of(ours) == pytest.approx(score_of(theirs), abs=1e-3), word


WORDS = st.sampled_from(
    [
        *"the The keeper's don't 3.14 ref-0200-3 snake_case camelCase http://x.io/?a=b&c 漢字 かな 한국어 ไทย 😀 "
        "é ▁ ▁▁ � ﬁ İ ß … — ``` {} []( </div> \\n 0x1F aaaaaaa Ωμέγα Привет עברית العربية <0x0A>".split(),
        *(
            " lighthouse", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\n", "\n\n", "\t", " ", "  ", "   ",
            "\xa0", "\u3000", "\x00",
        ),
    ]
)  # fmt: skip
NO_SURROGATES = st.characters(exclude_categories=["Cs"])
TEXTS = st.lists(WORDS, max_size=20).map("".join) | st.text(NO_SURROGATES, max_size=80)


@given(TEXTS.filter(lambda text: "▁" not in text and "\x02" not in text))
def test_the_tokenizer_equals_the_library(reference, text):
    same_as_reference(reference, text)


def test_half_of_a_surrogate_pair_does_not_stop_the_tokenizer():
    assert EMBEDDER._encoder.encode("a\ud800b")


SAMPLES = [
    "the lighthouse keeper", "漢字かな交じり文", "a", "😀 " * 30, "word " * 3000, "", "   ", "x" * 30_000, "1.5 ± ½",
]  # fmt: skip

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
    texts = [text for text in SAMPLES if len(text) < 1500]
    texts += [" ".join(rng.choices(words, k=rng.randint(1, 200))) for _ in range(20)]
    digests = {run_python(EMBED, how, input=json.dumps(texts), check=True).stdout for how in ("few", "many")}
    assert len(digests) == 1


def test_every_vector_has_unit_length_and_text_of_nothing_has_none():
    for text, row in zip(SAMPLES, rows(EMBEDDER.embed(SAMPLES, role="document")), strict=True):
        length = math.sqrt(math.fsum(value * value for value in row))
        assert length == (0.0 if not text.strip() else pytest.approx(1.0, abs=1e-5))


@pytest.mark.parametrize(
    ("text", "same"),
    [("die Katze schläft", "the cat sleeps"), ("猫在睡觉", "the cat sleeps"), ("แมวนอนหลับ", "le chat dort")],
)
def test_words_of_two_languages_meet_in_the_shared_part(text, same):
    vector, near, far = rows(EMBEDDER.embed([text, same, "invoice of the electricity company"], role="document"))
    assert vector[PART_DIMS:] @ near[PART_DIMS:] > vector[PART_DIMS:] @ far[PART_DIMS:] + 0.1


def test_both_parts_have_the_same_length_unless_the_english_one_is_empty():
    english, thai = rows(EMBEDDER.embed(["the cat", "ซื้อ"], role="document"))
    assert math.isclose(float(english[:PART_DIMS] @ english[:PART_DIMS]), 0.5, abs_tol=1e-5)
    assert not thai[:PART_DIMS].any()
