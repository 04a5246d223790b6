"""Outputs of an ONNX model, read from the bytes of its file: asking the runtime costs half a second of every command.

The file is a protocol buffer. Only the path to the graph's outputs is followed; everything else is skipped.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

from kept.values import frozen

# Field numbers along the path: model.graph.output.type.tensor_type.shape.dim.dim_value
_GRAPH, _OUTPUT, _NAME, _TYPE, _TENSOR, _SHAPE, _DIM, _DIM_VALUE = 7, 12, 1, 2, 1, 2, 1, 1
_VARINT, _BYTES = 0, 2


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


class ProtobufReader:
    """Reader of the fields of a message. Raises ValueError if the bytes are not a whole message."""

    def __init__(self, view: mmap.mmap | bytes) -> None:
        self.view = view

    def messages(self, start: int, end: int, field: int) -> Iterator[tuple[int, int]]:
        """Yield start and end of each value of a field with bytes, within the message from ``start`` to ``end``."""
        return ((a, b) for number, wire, a, b in self.fields(start, end) if number == field and wire == _BYTES)

    def number(self, start: int, end: int, field: int) -> int | None:
        """Return the last value of a field with a number, or None."""
        offsets = [at for number, wire, at, _ in self.fields(start, end) if number == field and wire == _VARINT]
        return self._varint(offsets[-1], end)[0] if offsets else None

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, wire type, start and end of every field of a message."""
        while at < end:
            key, at = self._varint(at, end)
            start, wire = at, key & 7
            match wire:
                case 0:
                    at = self._varint(at, end)[1]
                case 1:
                    at += 8
                case 2:
                    length, start = self._varint(at, end)
                    at = start + length
                case 5:
                    at += 4
                case _:
                    raise ValueError("it is not a model file")
            if at > end:
                raise ValueError("it is cut short")
            yield key >> 3, wire, start, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Return the number at an offset, seven bits to a byte and the lowest first, and the offset after it."""
        value = shift = 0
        while at < end and shift < 64:
            byte = self.view[at]
            value |= (byte & 0x7F) << shift
            at += 1
            if byte < 0x80:
                return value, at
            shift += 7
        raise ValueError("it is cut short")
