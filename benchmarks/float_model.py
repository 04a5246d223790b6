"""Write a copy of an int8 ONNX model that computes with floats, to see what the rounding of activations costs.

    pip install onnx
    python -m benchmarks.float_model ~/.kept/models/bge-small-en /tmp/float-models/bge-small-en
    python -m benchmarks.model_recall SET --models bge-small-en --models-folder /tmp/float-models --fused

The weights stay those of the int8 model, as floats. A product of int8 matrices becomes one of floats, divided by the
scale that the next step multiplies with.
"""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

MODEL = "model.onnx"


def convert(model: onnx.ModelProto) -> None:
    """Replace the integer products of a model with dynamic quantisation."""
    arrays = {tensor.name: tensor for tensor in model.graph.initializer}
    quantised = {
        node.output[0]: (node.input[0], node.output[1])
        for node in model.graph.node
        if node.op_type == "DynamicQuantizeLinear"
    }
    nodes = []
    for node in model.graph.node:
        if node.op_type != "MatMulInteger":
            nodes.append(node)
            continue
        source, scale = quantised[node.input[0]]
        weights, zero = (
            numpy_helper.to_array(arrays[name]).astype(np.float32) for name in (node.input[1], node.input[3])
        )
        name = f"{node.output[0]}_weights"
        model.graph.initializer.append(numpy_helper.from_array(weights - zero, name))
        nodes.append(helper.make_node("MatMul", [source, name], [f"{name}_product"]))
        nodes.append(helper.make_node("Div", [f"{name}_product", scale], [node.output[0]]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def main(source: str, target: str) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)
    model = onnx.load(os.path.join(source, MODEL))
    convert(model)
    onnx.save(model, os.path.join(target, MODEL))


if __name__ == "__main__":
    main(*sys.argv[1:])
