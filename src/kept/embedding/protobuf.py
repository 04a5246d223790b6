"""Reads protocol buffers field by field, without their definitions: the formats of ONNX and SentencePiece models."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

_VARINT, _BYTES = 0, 2


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
