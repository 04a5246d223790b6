"""Write small cross-encoders, and find the real one that the Makefile installs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from tests.support.embedding_models import VOCABULARY, bge_folder, write_tokenizer


def write_judge(
    folder: Path, *, favourite: str = "bread", strange_input: bool = False, logit: float | None = None
) -> Path:
    """Write a model whose logit is 10 for a pair with the favourite word and -10 for others, or always ``logit``."""
    table = np.full((len(VOCABULARY), 1), -10.0, np.float32)
    table[VOCABULARY[favourite], -1] = 10.0
    if logit is not None:
        table[:] = logit
    named = "pixels" if strange_input else "input_ids"
    nodes = [
        helper.make_node("Gather", ["table", named], ["looked_up"]),
        helper.make_node("ReduceMax", ["looked_up", "axis"], ["logits"], keepdims=0),
    ]
    given = [helper.make_tensor_value_info(named, TensorProto.INT64, ["batch", "sequence"])]
    out = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])]
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axis")]
    graph = helper.make_graph(nodes, "judge", given, out, constants)
    folder.mkdir(parents=True, exist_ok=True)
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(folder / "model.onnx")
    )
    write_tokenizer(folder / "tokenizer.json")
    return folder


def ms_marco_folder() -> Path:
    """Return the folder of ms-marco-MiniLM-L12 (int8), next to the embedding model."""
    return bge_folder().parent / "reranker_en"
