"""The files of the built-in model: what an existing index relies on, and what happens when they are damaged."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from kept.embedding.static import DIMS, MODEL_FOLDER, TOKENIZER_FILE, WEIGHTS_FILE, StaticEmbedder
from kept.remote_errors import EmbedderUnavailable

SHA256 = {
    WEIGHTS_FILE: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    TOKENIZER_FILE: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}
TENSOR = {"dtype": "F16", "shape": [2, DIMS], "data_offsets": [0, 4 * DIMS]}


def test_the_identity_and_the_vectors_are_those_that_existing_indexes_were_made_with():
    embedder = StaticEmbedder()
    vectors = embedder.embed(["The staging database listens on port 5433.", "ดอกไม้ 花 émigré 🦜", ""], role="document")
    assert embedder.identity.fingerprint == "static-mean-1:16384096"
    assert embedder.identity.key == "343c416255600dc55c05843f3ce1019b5e313ae02336986bd8adbfd7645b8a08"
    assert (
        hashlib.sha256(vectors.data).hexdigest() == "e2384b328fbb952ada4c973a0815c2e69c6f3d4f7b1e24e7862afeabcd9b3537"
    )


@pytest.mark.parametrize("name", SHA256)
def test_the_files_are_those_of_the_pinned_release(name):
    assert hashlib.sha256(Path(MODEL_FOLDER, name).read_bytes()).hexdigest() == SHA256[name]


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "truncated"])
def test_a_model_that_cannot_be_read_says_so_and_words_are_still_found(memory, workspace, tmp_path, damage):
    for name in (WEIGHTS_FILE, TOKENIZER_FILE):
        intact = Path(MODEL_FOLDER, name).read_bytes()
        if damage != "missing":
            (tmp_path / name).write_bytes({"empty": b"", "garbage": b"\xff" * 100, "truncated": intact[:5000]}[damage])
    with pytest.raises(EmbedderUnavailable) as caught:
        _ = StaticEmbedder(str(tmp_path)).identity
    assert "pip install --force-reinstall kept" in caught.value.hint
    (workspace / "MEMORY.md").write_text("the lighthouse keeper")
    result = memory(embedder=StaticEmbedder(str(tmp_path))).search("lighthouse")
    assert len(result) == 1
    assert "by word only" in result.degraded[0]


@pytest.mark.parametrize(
    "header",
    [
        [],
        "text",
        {},
        {"embedding.weight": []},
        {"embedding.weight": {**TENSOR, "dtype": "F32"}},
        {"embedding.weight": {**TENSOR, "shape": [2]}},
        {"embedding.weight": {**TENSOR, "shape": ["2", DIMS]}},
        {"embedding.weight": {**TENSOR, "shape": [3, DIMS]}},
        {"embedding.weight": {**TENSOR, "shape": [-2, DIMS], "data_offsets": [0, -4 * DIMS]}},
        {"embedding.weight": {**TENSOR, "shape": [1 << 60, DIMS], "data_offsets": [0, (1 << 61) * DIMS]}},
        {"embedding.weight": {**TENSOR, "data_offsets": [-8, 4 * DIMS]}},
        {"embedding.weight": {**TENSOR, "data_offsets": None}},
    ],
)
def test_a_header_that_lies_about_the_table_is_refused(tmp_path, header):
    write_weights(tmp_path, json.dumps(header).encode())
    with pytest.raises(EmbedderUnavailable, match=WEIGHTS_FILE):
        _ = StaticEmbedder(str(tmp_path)).identity


def test_a_deeply_nested_header_is_refused(tmp_path):
    write_weights(tmp_path, b"[" * 500_000)
    with pytest.raises(EmbedderUnavailable, match=WEIGHTS_FILE):
        _ = StaticEmbedder(str(tmp_path)).identity


@pytest.mark.parametrize("token_id", [2, 1 << 70, "259", None])
def test_a_vocabulary_that_does_not_fit_the_table_is_refused(tmp_path, token_id):
    write_weights(tmp_path, json.dumps({"embedding.weight": TENSOR}).encode())
    vocabulary = {"vocab": {"▁parrot": token_id}, "merges": []}
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps({"model": vocabulary}, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(EmbedderUnavailable, match="cannot be read"):
        StaticEmbedder(str(tmp_path)).embed(["parrot"], role="query")


def write_weights(folder: Path, header: bytes) -> None:
    """Write a table of two rows behind any header."""
    (folder / WEIGHTS_FILE).write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * DIMS))
