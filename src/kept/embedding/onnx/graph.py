"""Outputs of an ONNX model, read from the bytes of its file: asking the runtime costs half a second of every command.

The file is a protocol buffer. Only the path to the graph's outputs is followed; everything else is skipped.
"""

from __future__ import annotations

import mmap

from kept.embedding.protobuf import ProtobufReader
from kept.values import frozen

# Field numbers along the path: model.graph.output.type.tensor_type.shape.dim.dim_value
_GRAPH, _OUTPUT, _NAME, _TYPE, _TENSOR, _SHAPE, _DIM, _DIM_VALUE = 7, 12, 1, 2, 1, 2, 1, 1


@frozen
class GraphOutput:
    name: str
    shape: tuple[int | None, ...]
    """None is a size that depends on the input."""


def read_outputs(path: str) -> list[GraphOutput]:
    """Return the outputs of a model, in order. Raise OSError, or ValueError if the file is not a whole model."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        reader = ProtobufReader(view)
        graphs = list(reader.messages(0, len(view), _GRAPH))
        outputs = [
            _read_output(reader, start, end) for graph in graphs for start, end in reader.messages(*graph, _OUTPUT)
        ]
    if not outputs:
        raise ValueError("it has no outputs")
    return outputs


def _read_output(reader: ProtobufReader, start: int, end: int) -> GraphOutput:
    name = b"".join(reader.view[a:b] for a, b in reader.messages(start, end, _NAME))
    shape: list[int | None] = []
    for value_type in reader.messages(start, end, _TYPE):
        for tensor in reader.messages(*value_type, _TENSOR):
            for sizes in reader.messages(*tensor, _SHAPE):
                shape.extend(reader.number(*dim, _DIM_VALUE) for dim in reader.messages(*sizes, _DIM))
    return GraphOutput(name.decode("utf-8", "replace"), tuple(shape))
