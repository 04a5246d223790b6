"""Architecture, dimensions and pooling of a GGUF model, read from its first bytes: loading the model costs seconds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from kept.values import frozen

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_NUMBER_FORMATS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_MAX_ENTRIES = 100_000
_MAX_BYTES = 1 << 26

HeaderValue = str | int | float | bool | None


@frozen
class GgufHeader:
    architecture: str
    dims: int
    context_tokens: int
    pooling: int | None
    """Pooling in llama.cpp's numbering; None if the file declares none, as models for writing text do."""


def read_gguf_header(path: str) -> GgufHeader:
    """Read the header. Raise OSError, or ValueError if the file is not a GGUF model."""
    with open(path, "rb") as file:
        entries = dict(_iter_entries(file))
    architecture = str(entries.get("general.architecture", ""))

    def number(key: str) -> int | None:
        value = entries.get(f"{architecture}.{key}")
        return int(value) if isinstance(value, int) else None

    dims = number("embedding_length_out") or number("embedding_length")
    if not dims:
        raise ValueError("it does not declare the length of its vectors")
    return GgufHeader(architecture, dims, number("context_length") or 512, number("pooling_type"))


def _iter_entries(file: BinaryIO) -> Iterator[tuple[str, HeaderValue]]:
    """Yield keys and values up to the vocabulary. After that comes nothing that is needed here."""
    if file.read(4) != _MAGIC:
        raise ValueError("it is not a GGUF file")
    version, _, count = struct.unpack("<IQQ", _read_bytes(file, 20))
    if version not in (2, 3) or count > _MAX_ENTRIES:
        raise ValueError(f"its version, {version}, is not known")
    for _ in range(count):
        key = _read_string(file)
        value_type = int(_read_number(file, 4))
        if key.startswith("tokenizer."):
            return
        yield key, _read_value(file, value_type)


def _read_value(file: BinaryIO, value_type: int) -> HeaderValue:
    """Return a string or a number. Skip an array and return None."""
    if value_type == _STRING:
        return _read_string(file)
    if value_type != _ARRAY:
        return _read_number(file, value_type)
    item_type, count = int(_read_number(file, 4)), int(_read_number(file, 10))
    if item_type == _STRING:
        for _ in range(count):
            _read_string(file)
    else:
        _read_bytes(file, count * struct.calcsize(_number_format(item_type)))
    return None


def _read_string(file: BinaryIO) -> str:
    return _read_bytes(file, int(_read_number(file, 10))).decode("utf-8", "replace")


def _read_number(file: BinaryIO, value_type: int) -> int | float | bool:
    number_format = _number_format(value_type)
    value: int | float | bool = struct.unpack(number_format, _read_bytes(file, struct.calcsize(number_format)))[0]
    return value


def _number_format(value_type: int) -> str:
    if value_type not in _NUMBER_FORMATS:
        raise ValueError("it is damaged")
    return _NUMBER_FORMATS[value_type]


def _read_bytes(file: BinaryIO, count: int) -> bytes:
    """Return exactly ``count`` bytes. A larger count than any real header has is treated as damage."""
    content = file.read(count) if count <= _MAX_BYTES else b""
    if len(content) != count:
        raise ValueError("it is cut short")
    return content
