"""What a GGUF file says about its model, read from its first bytes: loading the model to ask costs seconds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from kept.values import frozen

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_MAX_ENTRIES = 100_000
_MAX_STRING = 1 << 26

Value = str | int | float | bool | None


@frozen
class GgufHeader:
    architecture: str
    dims: int
    context_tokens: int
    pooling: int | None
    """As llama.cpp numbers it; None where the file does not say, as in models made to write text."""


def read_gguf_header(path: str) -> GgufHeader:
    """Raises OSError, or ValueError where the file is not a GGUF model."""
    with open(path, "rb") as file:
        found = dict(_iter_entries(file))
    architecture = str(found.get("general.architecture", ""))

    def number(key: str) -> int | None:
        value = found.get(f"{architecture}.{key}")
        return int(value) if isinstance(value, int) else None

    dims = number("embedding_length_out") or number("embedding_length")
    if not dims:
        raise ValueError("it does not say how long its vectors are")
    return GgufHeader(architecture, dims, number("context_length") or 512, number("pooling_type"))


def _iter_entries(file: BinaryIO) -> Iterator[tuple[str, Value]]:
    """Keys and values up to the vocabulary, behind which there is nothing that is asked for here."""
    if file.read(4) != _MAGIC:
        raise ValueError("it is not a GGUF file")
    version, _, count = struct.unpack("<IQQ", _exactly(file, 20))
    if version not in (2, 3) or count > _MAX_ENTRIES:
        raise ValueError(f"its version, {version}, is not known")
    for _ in range(count):
        key = _string(file)
        kind = int(_number(file, 4))
        if key.startswith("tokenizer."):
            return
        yield key, _value(file, kind)


def _value(file: BinaryIO, kind: int) -> Value:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, kind)
    inner, count = int(_number(file, 4)), int(_number(file, 10))
    if inner == _STRING:
        for _ in range(count):
            _string(file)
    else:
        _exactly(file, count * struct.calcsize(_format(inner)))
    return None


def _string(file: BinaryIO) -> str:
    return _exactly(file, int(_number(file, 10))).decode("utf-8", "replace")


def _number(file: BinaryIO, kind: int) -> int | float | bool:
    form = _format(kind)
    value: int | float | bool = struct.unpack(form, _exactly(file, struct.calcsize(form)))[0]
    return value


def _format(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError("it is damaged")
    return _NUMBERS[kind]


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count) if count <= _MAX_STRING else b""
    if len(data) != count:
        raise ValueError("it is cut short")
    return data
