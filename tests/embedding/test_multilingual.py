"""The multilingual model: its pieces, its file, and the vectors that it joins to those of the built-in model."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from kept.embedding.base import Calibration
from kept.embedding.multilingual.distil import build_table, read_vocabulary, reduce, unpack_encoder, weigh
from kept.embedding.multilingual.joined import FEW_UNKNOWN, MANY_UNKNOWN, TABLE_SHARE, open_encoder, open_table
from kept.embedding.multilingual.piece_table import PieceTable, pack_table
from kept.embedding.multilingual.sentence_encoder import DIMS, SentenceEncoder
from kept.embedding.multilingual.unigram import SPACE, UnigramEncoder
from kept.embedding.static import StaticEmbedder
from kept.remote_errors import EmbedderUnavailable
from tests.support.embedding_models import rows
from tests.support.sentence_encoders import MARKS, PIECES, SCORES, write_encoder


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> PieceTable:
    """A table in which each German word has the vector of the English one before it."""
    generator = np.random.default_rng(7)
    vectors = generator.standard_normal((len(PIECES), 16))
    for word in ("Katze", "Hund", "Haus"):
        at = PIECES.index(SPACE + word)
        vectors[at] = vectors[at - 1]
    vectors[: len(MARKS)] = 0
    path = tmp_path_factory.mktemp("table") / "pieces.table"
    marks = [""] * len(MARKS)
    path.write_bytes(pack_table([*marks, *PIECES[len(MARKS) :]], SCORES, vectors, recipe="test"))
    return PieceTable(str(path))


def encoder_of(table: PieceTable) -> UnigramEncoder:
    return UnigramEncoder(table.find, table.score, unknown_score=-30.0)


def spelled(table: PieceTable, text: str) -> list[str]:
    return [PIECES[row] for row in encoder_of(table).encode(text)]


# pieces


def test_a_word_is_split_into_its_most_probable_pieces(table):
    assert spelled(table, "the cat") == ["▁the", "▁cat"]
    assert spelled(table, "Katzen") == ["▁Katze", "n"]
    assert spelled(table, "  cat\n\tdog ") == ["▁cat", "▁dog"]
    assert spelled(table, "家แมว") == ["▁", "家", "แมว"]
    assert spelled(table, "ｃａｔ") == ["▁cat"]


def test_characters_without_a_piece_and_marks_in_a_text_are_unknown(table):
    assert spelled(table, "§") == ["▁", "<unk>"]
    assert "</s>" not in spelled(table, "</s>")
    assert spelled(table, "") == []


def test_the_split_is_the_best_of_all_splits(table):
    pieces = table.pieces()

    def best(word: str) -> float:
        if not word:
            return 0.0
        ways = []
        for end in range(1, len(word) + 1):
            row = pieces.get(word[:end])
            if row is not None:
                ways.append(table.score(row) + best(word[end:]))
        return max(ways)

    for word in ("hausthecat", "derdasdie", "Katzehund"):
        ids = encoder_of(table).encode(word)
        assert math.isclose(sum(table.score(row) for row in ids), best(SPACE + word), abs_tol=1e-4)


# the file


def test_every_piece_is_found_and_nothing_else(table):
    assert [table.find(piece) for piece in PIECES] == [None] * len(MARKS) + [*range(len(MARKS), len(PIECES))]
    assert all(table.find(text) is None for text in ("", "cat", "▁ca", "\ud800"))
    assert table.pieces() == {piece: row for row, piece in enumerate(PIECES) if row >= len(MARKS)}


def test_the_sum_of_vectors_is_the_same_with_and_without_numpy(table):
    vectors, factors = table.arrays()
    ids = [7, 8, 9, 9]
    expected = (factors[ids].astype(np.float64)[:, None] * vectors[ids]).sum(axis=0)
    assert np.allclose(table.sum_rows(ids), expected, rtol=1e-12)


@pytest.mark.parametrize("damage", [b"", b"KEPT", b"x" * 5000, b"KEPTPT01" + struct.pack("<I", 1 << 30)])
def test_a_file_that_is_not_a_table_is_refused(tmp_path, damage):
    (tmp_path / "pieces.table").write_bytes(damage)
    with pytest.raises(EmbedderUnavailable, match="cannot be read"):
        PieceTable(str(tmp_path / "pieces.table"))


def test_a_table_that_is_cut_short_is_refused(table, tmp_path):
    with open(table.path, "rb") as file:
        whole = file.read()
    for size in (len(whole) - 1, 2000, 600):
        (tmp_path / "pieces.table").write_bytes(whole[:size])
        with pytest.raises(EmbedderUnavailable, match="cannot be read"):
            PieceTable(str(tmp_path / "pieces.table"))


# the embedder


def test_words_of_two_languages_meet_in_the_part_of_the_table(table):
    embedder = open_table(os.path.dirname(table.path))
    cat, katze, dog = rows(embedder.embed(["the cat", "die Katze", "the dog"], role="document"))
    static = StaticEmbedder()
    first, second = rows(static.embed(["the cat", "die Katze"], role="document"))
    assert float(cat @ katze) > float(first @ second)
    assert float(cat[256:] @ katze[256:]) > float(cat[256:] @ dog[256:])


def test_documents_have_both_halves_at_equal_length(table):
    (vector,) = rows(open_table(os.path.dirname(table.path)).embed(["the cat"], role="document"))
    (static,) = rows(StaticEmbedder().embed(["the cat"], role="document"))
    assert vector.shape == (256 + 16,)
    assert np.allclose(vector[:256], static / math.sqrt(2), atol=1e-6)
    assert math.isclose(float(vector[256:] @ vector[256:]), 0.5, abs_tol=1e-5)


@pytest.mark.parametrize(
    ("text", "unknown", "share"),
    [
        ("the cat", 0.0, TABLE_SHARE.same),
        ("the cat", 0.3, TABLE_SHARE.same),
        ("the cat", 1.0, TABLE_SHARE.other),
        ("the cat", (FEW_UNKNOWN + MANY_UNKNOWN) / 2, (TABLE_SHARE.same + TABLE_SHARE.other) / 2),
        ("แมว แมว", 0.0, TABLE_SHARE.other),
    ],
)
def test_the_share_of_the_table_follows_the_languages_of_query_and_notes(table, text, unknown, share):
    embedder = open_table(os.path.dirname(table.path))
    plain = embedder.embed([text], role="query").data
    blended, _ = embedder.blend_query(plain, text, unknown=unknown)
    vector = np.frombuffer(blended, dtype="<f4")
    left, right = np.linalg.norm(vector[:256]), np.linalg.norm(vector[256:])
    assert math.isclose(right / (left + right), share, abs_tol=1e-4)


@pytest.mark.parametrize("unknown", [0.0, 0.5, 1.0])
def test_a_score_is_that_of_both_halves_by_their_shares(table, unknown):
    embedder = open_table(os.path.dirname(table.path))
    texts = ["the cat and the dog", "the dog"]
    query = embedder.embed([texts[0]], role="query").data
    blended, calibration = embedder.blend_query(query, texts[0], unknown=unknown)
    (document,) = rows(embedder.embed([texts[1]], role="document"))
    vector = np.frombuffer(blended, dtype="<f4")
    halves = np.array(rows(embedder.embed(texts, role="query"))) * math.sqrt(2)
    share = TABLE_SHARE.at(unknown, 1.0)
    left, right = (float(halves[0][part] @ halves[1][part]) for part in (slice(256), slice(256, None)))
    expected = Calibration(0.15, 0.75).score((1 - share) * left + share * right)
    assert math.isclose(calibration.score(float(vector @ document)), expected, abs_tol=1e-5)


def test_a_text_without_pieces_still_has_a_vector(table):
    first, empty = rows(open_table(os.path.dirname(table.path)).embed(["§§", ""], role="query"))
    assert math.isclose(float(first @ first), 1.0, abs_tol=1e-5)
    assert not empty.any()


def test_a_query_needs_no_numpy_and_has_the_same_vector_with_it(table):
    code = (
        "import sys, json; from kept.embedding.multilingual.joined import open_table\n"
        f"data = open_table({os.path.dirname(table.path)!r}).embed(['the cat in der Haus'], role='query').data\n"
        "print(json.dumps(['numpy' in sys.modules, data.hex()]))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    has_numpy, data = json.loads(finished.stdout)
    assert not has_numpy
    assert open_table(os.path.dirname(table.path)).embed(["the cat in der Haus"], role="query").data.hex() == data


def test_many_texts_have_the_vectors_that_they_have_alone(table):
    embedder = open_table(os.path.dirname(table.path))
    texts = [f"the cat and das Haus {number} {'dog ' * number}" for number in range(60)]
    together = list(embedder.embed(texts, role="document"))
    assert together == [embedder.embed([text], role="document").data for text in texts]


# making it


def test_the_table_has_a_weighted_vector_for_each_piece(tmp_path):
    write_encoder(tmp_path)
    seen = []
    path = build_table(str(tmp_path), lambda *progress: seen.append(progress))
    table = PieceTable(path)
    pieces, scores = read_vocabulary(str(tmp_path / "sp.model"))
    assert pieces == PIECES
    assert scores == pytest.approx(SCORES)
    assert seen[-1] == ("computing vectors", len(PIECES), len(PIECES))
    assert (table.header.rows, table.header.dims) == (len(PIECES), 256)
    assert table.find("▁Katze") == PIECES.index("▁Katze")
    lengths = [math.hypot(*table.sum_rows([row])) for row in range(len(PIECES))]
    assert not any(lengths[: len(MARKS)])
    assert all(lengths[len(MARKS) :])


def test_a_text_of_several_has_the_vector_that_it_has_alone(tmp_path):
    write_encoder(tmp_path)
    encoder = SentenceEncoder(str(tmp_path))
    texts = [(7, 8, 9), (10,), (11, 12, 13, 14, 15, 16)]
    together = encoder.encode(texts)
    assert np.allclose(together, np.concatenate([encoder.encode([text]) for text in texts]), atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1)


def test_the_whole_encoder_opens_from_the_files_that_pulling_it_leaves(tmp_path):
    write_encoder(tmp_path)
    expected = SentenceEncoder(str(tmp_path)).encode([(PIECES.index("▁the"), PIECES.index("▁cat"))])
    unpack_encoder(str(tmp_path))
    (tmp_path / "sp.model").unlink()
    embedder = open_encoder(str(tmp_path))
    vector, empty = rows(embedder.embed(["the cat", ""], role="document"))
    assert embedder.identity.dims == 256 + DIMS
    assert np.allclose(vector[256:], expected[0] / math.sqrt(2), atol=1e-6)
    assert not empty.any()
    many = rows(embedder.embed([f"the dog {'die Katze ' * (number * 20)}" for number in range(30)], role="document"))
    assert np.allclose(many[7], rows(embedder.embed([f"the dog {'die Katze ' * 140}"], role="document"))[0], atol=1e-5)


def test_frequent_pieces_count_less():
    weighted = weigh(np.ones((2, 3)), [math.log(0.03), math.log(3e-8)], 3e-5)
    assert weighted[:, 0] == pytest.approx([0.001, 0.999], abs=1e-4)


def test_reducing_keeps_the_distances_that_matter():
    generator = np.random.default_rng(5)
    plane = generator.standard_normal((50, 2)) @ generator.standard_normal((2, 512))
    reduced = reduce(plane.astype(np.float32), 2)[6:]
    before = np.linalg.norm(plane[6:, None] - plane[None, 6:], axis=2)
    assert np.allclose(before, np.linalg.norm(reduced[:, None] - reduced[None], axis=2), rtol=1e-3, atol=1e-3)


def test_files_that_are_not_the_model_are_refused(tmp_path):
    (tmp_path / "sp.model").write_bytes(b"\xff" * 100)
    with pytest.raises(EmbedderUnavailable, match="cannot be made"):
        build_table(str(tmp_path))
