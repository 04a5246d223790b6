"""A folder with an ONNX model: small real models, run by the real runtime, against sums done by hand."""

from __future__ import annotations

import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from kept.config import LocalModelSettings
from kept.embedding.local_model import open_local_model
from kept.embedding.onnx.embedder import OnnxEmbedder
from kept.remote_errors import EmbedderUnavailable
from tests.support.embedding_models import DIMS, rows, token_table, tokens_of, unit, write_folder, write_onnx
from tests.support.workspaces import open_memory, paths, write_note

TEXTS = ["the cat sat on the mat", "king", "the dog ran fast on the river bank the king sat", "queen money"]
PROMPTS = {"prompts": {"query": "query : ", "passage": "passage : "}}


def declares(mode: str) -> dict[str, dict[str, object]]:
    modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    return {"1_Pooling/config.json": {f"pooling_mode_{name}": name == mode for name in modes}}


def open_model(path, **settings):
    return open_local_model(LocalModelSettings(model_path=str(path), **settings))


def embed(path, *texts, role="document", **settings):
    return rows(open_model(path, **settings).embed(texts, role=role))


def mean_of(text, *, table=None):
    return unit((token_table() if table is None else table)[tokens_of(text)].mean(axis=0))


def test_the_vector_is_the_mean_of_the_token_vectors_where_nothing_is_declared(tmp_path):
    vectors = embed(write_folder(tmp_path), *TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert vector == pytest.approx(mean_of(text), abs=1e-6)


@pytest.mark.parametrize(
    ("mode", "at"), [("cls_token", 0), ("lasttoken", -1)], ids=["the first token", "the last token"]
)
def test_the_pooling_that_the_folder_declares_is_used(tmp_path, mode, at):
    vectors = embed(write_folder(tmp_path, configs=declares(mode)), *TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert vector == pytest.approx(unit(token_table()[tokens_of(text)[at]]), abs=1e-6)


def test_a_setting_overrides_the_declared_pooling(tmp_path):
    (vector,) = embed(write_folder(tmp_path, configs=declares("cls_token")), "king", pooling="mean")
    assert vector == pytest.approx(mean_of("king"), abs=1e-6)


def test_a_pooling_that_is_not_known_is_refused_and_can_be_overridden(tmp_path):
    folder = write_folder(tmp_path, configs=declares("max_tokens"))
    with pytest.raises(EmbedderUnavailable, match="pools by max_tokens") as caught:
        open_model(folder)
    assert "local.pooling" in caught.value.hint
    assert embed(folder, "king", pooling="mean")[0] == pytest.approx(mean_of("king"), abs=1e-6)


@pytest.mark.parametrize("per_token", [True, False])
def test_an_output_that_is_already_pooled_is_taken_as_it_is(tmp_path, per_token):
    (vector,) = embed(write_folder(tmp_path, pooled=True, per_token=per_token), "the cat")
    assert vector == pytest.approx(unit(token_table()[tokens_of("the cat")].max(axis=0)), abs=1e-6)


def test_a_pooling_set_by_hand_goes_before_an_output_that_is_already_pooled(tmp_path):
    (vector,) = embed(write_folder(tmp_path, pooled=True), "the cat", pooling="mean")
    assert vector == pytest.approx(mean_of("the cat"), abs=1e-6)


@pytest.mark.parametrize("ints", [TensorProto.INT64, TensorProto.INT32], ids=["int64", "int32"])
@pytest.mark.parametrize(
    "inputs",
    [
        ("input_ids",),
        ("input_ids", "attention_mask"),
        ("input_ids", "attention_mask", "token_type_ids"),
        ("input_ids", "attention_mask", "position_ids"),
    ],
    ids=len,
)
def test_a_model_gets_the_inputs_it_asks_for(tmp_path, inputs, ints):
    (vector,) = embed(write_folder(tmp_path, inputs=inputs, ints=ints), "the cat")
    table = token_table() + (0.25 if "token_type_ids" in inputs else 0.0)
    assert vector == pytest.approx(mean_of("the cat", table=table), abs=1e-6)


def test_an_input_that_kept_cannot_give_is_named(tmp_path):
    model = open_model(write_folder(tmp_path, inputs=("input_ids", "past_key")))
    with pytest.raises(EmbedderUnavailable, match="past_key"):
        model.embed(["king"], role="query")


def test_a_width_that_the_file_does_not_say_is_found_by_asking(tmp_path):
    model = open_model(write_folder(tmp_path, known_width=False))
    assert model.identity.dims == DIMS
    assert len(rows(model.embed(["king"], role="query"))[0]) == DIMS


@pytest.mark.parametrize("pooled", [True, False])
def test_a_file_without_shapes_is_understood_by_its_names(tmp_path, pooled):
    folder = write_folder(tmp_path, pooled=pooled, shapes=False)
    expected = unit(token_table()[tokens_of("the cat")].max(axis=0)) if pooled else mean_of("the cat")
    assert open_model(folder).identity.dims == DIMS
    assert embed(folder, "the cat")[0] == pytest.approx(expected, abs=1e-6)


def test_a_model_that_sorts_texts_into_classes_is_refused(tmp_path):
    folder = write_folder(tmp_path, pooled=True, per_token=False)
    model = onnx.load(str(folder / "model.onnx"))
    model.graph.output[0].name = model.graph.node[-1].output[0] = "logits"
    onnx.save(model, str(folder / "model.onnx"))
    with pytest.raises(EmbedderUnavailable, match="none of its outputs"):
        embed(folder, "king")


def test_vectors_come_in_the_order_of_the_texts_and_do_not_depend_on_each_other(tmp_path):
    folder = write_folder(tmp_path)
    texts = [" ".join(["cat", "dog", "mat", "king"][at % 4 :] * (1 + at * 7 % 29)) for at in range(70)]
    alone = [embed(folder, text)[0] for text in texts]
    together = embed(folder, *texts)
    for one, other in zip(alone, together, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def test_every_vector_has_unit_length_whatever_the_text(tmp_path):
    odd = ["", " ", "\n", "\x00", "\ud800 lone", "👩‍👩‍👧", "ไทย", "x" * 100_000, "cat " * 50_000]
    for vector in embed(write_folder(tmp_path), *odd):
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_an_english_model_has_no_vector_for_a_query_in_a_script_it_cannot_read(tmp_path):
    write_folder(tmp_path)
    embedder = OnnxEmbedder(str(tmp_path), LocalModelSettings(), languages=("en",))
    assert not any(embedder.embed(["แมวบนเสื่อ"], role="query").data)
    assert any(embedder.embed(["the cat on the mat 猫"], role="query").data)
    assert any(embedder.embed(["42"], role="query").data)
    assert any(embedder.embed(["แมวบนเสื่อ"], role="document").data)


def test_a_long_text_is_cut_where_the_model_ends(tmp_path):
    folder = write_folder(tmp_path, configs={"sentence_bert_config.json": {"max_seq_length": 10}})
    long, cut = embed(folder, "cat " * 8 + "king queen money", "cat " * 8)
    assert long == pytest.approx(cut, abs=1e-6)


@pytest.mark.parametrize(
    ("configs", "room"),
    [
        ({"tokenizer_config.json": {"model_max_length": 12}}, 12),
        ({"tokenizer_config.json": {"model_max_length": 10**30}, "config.json": {"max_position_embeddings": 14}}, 14),
        (
            {"config.json": {"max_position_embeddings": 18, "model_type": "xlm-roberta", "pad_token_id": 1}},
            16,
        ),
        ({}, 24),
    ],
    ids=["the tokenizer", "positions", "positions that begin after the padding", "the setting"],
)
def test_the_least_of_all_limits_counts(tmp_path, configs, room):
    folder = write_folder(tmp_path, configs=configs)
    words = "cat " * (room - 2)
    fits, longer = embed(folder, words, f"{words} king king", max_tokens=24)
    assert fits == pytest.approx(longer, abs=1e-6)
    shorter = embed(folder, "cat " * (room - 4) + "king king", max_tokens=24)[0]
    assert fits != pytest.approx(shorter, abs=1e-3)


def test_declared_prompts_stand_before_queries_and_documents(tmp_path):
    folder = write_folder(tmp_path, configs={"config_sentence_transformers.json": PROMPTS})
    assert embed(folder, "king", role="query")[0] == pytest.approx(mean_of("query : king"), abs=1e-6)
    assert embed(folder, "king", role="document")[0] == pytest.approx(mean_of("passage : king"), abs=1e-6)


def test_prefixes_that_are_set_replace_the_declared_ones_even_by_nothing(tmp_path):
    folder = write_folder(tmp_path, configs={"config_sentence_transformers.json": PROMPTS})
    own = {"query_prefix": "the ", "document_prefix": ""}
    assert embed(folder, "king", role="query", **own)[0] == pytest.approx(mean_of("the king"), abs=1e-6)
    assert embed(folder, "king", role="document", **own)[0] == pytest.approx(mean_of("king"), abs=1e-6)


@pytest.mark.parametrize("name", ["onnx/model.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"])
def test_the_model_is_found_under_its_usual_names(tmp_path, name):
    assert embed(write_folder(tmp_path, model=name), "king")[0] == pytest.approx(mean_of("king"), abs=1e-6)


def test_the_whole_model_goes_before_a_quantised_one_and_a_named_file_before_both(tmp_path):
    folder = write_folder(tmp_path)
    write_onnx(folder / "onnx" / "model_int8.onnx", seed=2)
    assert embed(folder, "king")[0] == pytest.approx(mean_of("king"), abs=1e-6)
    (named,) = embed(folder / "onnx" / "model_int8.onnx", "king")
    assert named == pytest.approx(mean_of("king", table=token_table(2)), abs=1e-6)


@pytest.mark.parametrize(
    ("left", "named"), [("tokenizer.json", "no ONNX model"), ("model.onnx", "no tokenizer.json"), (None, "no model at")]
)
def test_a_folder_that_lacks_a_file_is_refused_in_one_line(tmp_path, left, named):
    folder = write_folder(tmp_path / "model")
    for file in list(folder.iterdir()):
        if file.name != left:
            file.unlink()
    if left is None:
        folder.rmdir()
    with pytest.raises(EmbedderUnavailable, match=named) as caught:
        open_model(folder)
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("damage", ["cut short", "emptied", "replaced"])
def test_a_damaged_model_is_refused_in_one_line(tmp_path, damage):
    file = write_folder(tmp_path) / "model.onnx"
    raw = file.read_bytes()
    file.write_bytes({"cut short": raw[: len(raw) // 2], "emptied": b"", "replaced": b"not a model at all"}[damage])
    with pytest.raises(EmbedderUnavailable, match="cannot be used") as caught:
        embed(tmp_path, "king")
    assert "\n" not in caught.value.message


def test_a_model_that_the_runtime_refuses_leaves_search_by_word(tmp_path):
    folder = write_folder(tmp_path / "model")
    file = folder / "model.onnx"
    file.write_bytes(file.read_bytes().replace(b"Gather", b"Gother"))
    write_note(tmp_path / "workspace", "MEMORY.md", "The king sat on the mat.\n")
    settings = {"memory_search.provider": "local", "memory_search.local.model_path": str(folder)}
    with open_memory(tmp_path, settings=settings) as memory:
        result = memory.search("king")
    assert paths(result) == ["MEMORY.md"]
    assert any("cannot be used" in reason for reason in result.degraded)


def test_a_damaged_tokenizer_is_refused_in_one_line(tmp_path):
    (write_folder(tmp_path) / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(EmbedderUnavailable, match=r"tokenizer\.json") as caught:
        open_model(tmp_path).embed(["king"], role="query")
    assert "\n" not in caught.value.message


def test_a_dense_layer_that_the_file_lacks_is_not_left_out_silently(tmp_path):
    dense = {"2_Dense/config.json": {}}
    with pytest.raises(EmbedderUnavailable, match="dense layer"):
        embed(write_folder(tmp_path / "tokens", configs=dense), "king")
    assert embed(write_folder(tmp_path / "pooled", configs=dense, pooled=True), "king")


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EmbedderUnavailable, match=package) as caught:
        open_model(write_folder(tmp_path))
    assert "kept[neural]" in caught.value.hint


def test_the_identity_survives_a_copy_and_a_new_date(tmp_path):
    folder = write_folder(tmp_path / "a" / "tiny")
    other = write_folder(tmp_path / "b" / "tiny")
    os.utime(other / "model.onnx", (1, 1))
    assert open_model(folder).identity == open_model(other).identity
    assert open_model(folder).identity.provider == "local"
    assert open_model(folder).identity.model == "tiny"


@pytest.mark.parametrize(
    "change", [{"pooling": "cls"}, {"query_prefix": "q"}, {"document_prefix": "q"}, {"max_tokens": 64}], ids=str
)
def test_the_identity_changes_with_whatever_changes_vectors(tmp_path, change):
    folder = write_folder(tmp_path / "tiny")
    assert open_model(folder).identity.key != open_model(folder, **change).identity.key


def test_the_identity_changes_with_the_weights_and_the_tokenizer(tmp_path):
    folder = write_folder(tmp_path / "tiny")
    before = open_model(folder).identity
    write_onnx(folder / "model.onnx", seed=2)
    new_weights = open_model(folder).identity
    with open(folder / "tokenizer.json", "a", encoding="utf-8") as file:
        file.write("\n")
    assert len({before.key, new_weights.key, open_model(folder).identity.key}) == 3


def test_a_snapshot_in_a_download_cache_is_called_by_its_repository(tmp_path):
    folder = write_folder(tmp_path / "models--ann--tiny-embed" / "snapshots" / "0123abcd")
    assert open_model(folder).identity.model == "ann/tiny-embed"


def test_another_prefix_rebuilds_the_index(tmp_path):
    folder = write_folder(tmp_path / "model")
    write_note(tmp_path / "workspace", "MEMORY.md", "The king sat on the mat.\n")
    settings = {"memory_search.provider": "auto", "memory_search.local.model_path": str(folder)}
    with open_memory(tmp_path, settings=settings) as memory:
        assert memory.sync().embedded == 1
        assert memory.status().provider == "local"
        assert memory.status().model == "model"
    settings["memory_search.local.document_prefix"] = "passage : "
    with open_memory(tmp_path, settings=settings) as memory:
        report = memory.sync()
    assert report.rebuilt
    assert report.embedded == 1
