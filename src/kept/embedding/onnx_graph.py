"""What an ONNX file says it gives, read from its bytes: asking the runtime costs half a second of every command.

The file is a protocol buffer. Only the way to the graph's outputs is followed; all else is stepped over.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

from kept.values import frozen

_VARINT, _BYTES = 0, 2

# The numbers of the fields on the way: model.graph.output.type.tensor_type.shape.dim.dim_value
_GRAPH, _OUTPUT, _NAME, _TYPE, _TENSOR, _SHAPE, _DIM, _DIM_VALUE = 7, 12, 1, 2, 1, 2, 1, 1


@frozen
class Output:
    name: str
    shape: tuple[int | None, ...]
    """None stands for a size that depends on the input."""


def read_outputs(path: str) -> list[Output]:
    """The outputs of a model, in order. Raises OSError, or ValueError where the file is not a whole model."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        reader = _Reader(view)
        graphs = list(reader.inside(0, len(view), _GRAPH))
        outputs = [_output(reader, start, end) for graph in graphs for start, end in reader.inside(*graph, _OUTPUT)]
    if not outputs:
        raise ValueError("it has no outputs")
    return outputs


def _output(reader: _Reader, start: int, end: int) -> Output:
    name = b"".join(reader.view[a:b] for a, b in reader.inside(start, end, _NAME))
    shape: list[int | None] = []
    for kind in reader.inside(start, end, _TYPE):
        for tensor in reader.inside(*kind, _TENSOR):
            for sizes in reader.inside(*tensor, _SHAPE):
                shape.extend(reader.number(*dim, _DIM_VALUE) for dim in reader.inside(*sizes, _DIM))
    return Output(name.decode("utf-8", "replace"), tuple(shape))


class _Reader:
    def __init__(self, view: mmap.mmap) -> None:
        self.view = view

    def inside(self, start: int, end: int, field: int) -> Iterator[tuple[int, int]]:
        """Where the values of one field of a message begin and end."""
        return ((a, b) for number, wire, a, b in self._fields(start, end) if number == field and wire == _BYTES)

    def number(self, start: int, end: int, field: int) -> int | None:
        found = [at for number, wire, at, _ in self._fields(start, end) if number == field and wire == _VARINT]
        return self._varint(found[-1], end)[0] if found else None

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
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
                    raise ValueError("it is not an ONNX model")
            if at > end:
                raise ValueError("it is cut short")
            yield key >> 3, wire, start, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 64:
            byte = self.view[at]
            value |= (byte & 0x7F) << shift
            at += 1
            if byte < 0x80:
                return value, at
            shift += 7
        raise ValueError("it is cut short")
