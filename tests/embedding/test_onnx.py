"""A folder with an ONNX model: small real models, run by the real runtime, against sums done by hand."""

import os
import sys

import numpy as np
import pytest

from kept.base.remote_errors import EmbedderUnavailable
from kept.embedding.model_catalogue import CATALOGUE
from tests.support.embedding_models import open_folder, rows, write_folder, write_onnx
from tests.support.model_wheels import catalogue_model, files_of
from tests.support.workspaces import open_memory, paths, write_note

TEXTS = ["cat sat on the mat", "king", "dog ran fast on the river bank the king sat", "queen money"]


def embed(folder, *texts, role="document", **options):
    return rows(open_folder(folder, **options).embed(texts, role=role))


def test_an_input_that_kept_cannot_give_is_named(tmp_path):
    with pytest.raises(EmbedderUnavailable, match="an input named past_key"):
        embed(write_folder(tmp_path, given="past_key"), "king", role="query")


def test_every_vector_has_unit_length_whatever_the_text(tmp_path):
    odd = ["", " ", "\n", "\x00", "\ud800 lone", "👩‍👩‍👧", "ไทย", "x" * 100_000, "cat " * 50_000]
    for vector in embed(write_folder(tmp_path), *odd):
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_an_english_model_has_no_vector_for_a_query_in_a_script_it_cannot_read(tmp_path):
    embedder = open_folder(write_folder(tmp_path), languages=("en",))
    assert not any(embedder.embed(["แมวบนเสื่อ"], role="query").data)
    assert any(embedder.embed(["the cat on the mat 猫"], role="query").data)
    assert any(embedder.embed(["42"], role="query").data)
    assert any(embedder.embed(["แมวบนเสื่อ"], role="document").data)


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "cut short", "emptied", "replaced"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, file, damage):
    path = write_folder(tmp_path) / file
    raw = path.read_bytes()
    path.write_bytes({"cut short": raw[: len(raw) // 2], "replaced": b"not a model at all"}.get(damage, b""))
    if damage == "missing":
        path.unlink()
    with pytest.raises(EmbedderUnavailable, match=file) as caught:
        embed(tmp_path, "king")
    assert "\n" not in caught.value.message
    assert "kept models" in caught.value.hint


def test_a_model_that_the_runtime_refuses_leaves_search_by_word(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "home" / "models" / "tiny")
    file = folder / "model.onnx"
    file.write_bytes(file.read_bytes().replace(b"Gather", b"Gother"))
    monkeypatch.setitem(CATALOGUE, "tiny", catalogue_model("tiny", files_of(folder), dims=8))
    write_note(tmp_path / "workspace", "MEMORY.md", "The king sat on the mat.\n")
    with open_memory(tmp_path, settings={"memory_search.provider": "local", "memory_search.model": "tiny"}) as memory:
        result = memory.search("king")
    assert paths(result) == ["MEMORY.md"]
    assert any("cannot be used" in reason for reason in result.degraded)


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EmbedderUnavailable, match=package) as caught:
        open_folder(write_folder(tmp_path))
    assert "kept[neural]" in caught.value.hint


def test_the_identity_survives_a_copy_and_a_new_date_and_changes_with_the_content(tmp_path):
    folder = write_folder(tmp_path / "a" / "tiny")
    before = open_folder(folder).identity
    other = write_folder(tmp_path / "b" / "tiny")
    os.utime(other / "model.onnx", (1, 1))
    assert open_folder(other).identity == before
    assert (before.provider, before.model) == ("local", "tiny")
    write_onnx(folder / "model.onnx", seed=2)
    new_weights = open_folder(folder).identity
    with open(folder / "tokenizer.json", "a", encoding="utf-8") as file:
        file.write("\n")
    prefixed = open_folder(folder, query_prefix="query: ").identity
    assert len({before.key, new_weights.key, open_folder(folder).identity.key, prefixed.key}) == 4
