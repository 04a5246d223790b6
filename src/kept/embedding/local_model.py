"""Models that the user has put on this machine: their kind, their files, a digest of their weights, and their scale."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import struct
from collections.abc import Iterable
from statistics import fmean, pstdev
from typing import Protocol

from kept.config import LocalModelSettings
from kept.embedding.base import Calibration, Embedder, Role
from kept.limits import utf8_safe
from kept.records import Matrix
from kept.remote_errors import EmbedderUnavailable
from kept.values import frozen

_SAMPLE_BYTES = 1 << 20
_ONNX_NAMES = ("model.onnx", "model_quantized.onnx", "model_int8.onnx", "model_quint8.onnx", "model_fp16.onnx")
_ONNX_FOLDERS = (".", "onnx")


def open_local_model(settings: LocalModelSettings, *, gguf_only: bool = False) -> Embedder:
    """Return the embedder for ``local.model_path``: llama.cpp for a GGUF file, else ONNX."""
    if not settings.model_path:
        raise EmbedderUnavailable(
            "The provider llama_cpp has no model.",
            hint="Set memory_search.local.model_path to a GGUF file.",
        )
    path = os.path.abspath(os.path.expanduser(settings.model_path))
    if not os.path.exists(path):
        raise EmbedderUnavailable(f"There is no model at {path}.", hint="Check memory_search.local.model_path.")
    if path.lower().endswith(".gguf"):
        from kept.embedding.llama_cpp import LlamaCppEmbedder

        return LlamaCppEmbedder(path, settings)
    if gguf_only:
        raise EmbedderUnavailable(
            f"{path} is not a GGUF file.", hint="Set memory_search.local.model_path to one, ending in .gguf."
        )
    from kept.embedding.onnx.embedder import OnnxEmbedder

    return OnnxEmbedder(path, settings)


@frozen
class OnnxFiles:
    folder: str
    """Folder with the model's settings: the one above `onnx`, if the model is in such a folder."""
    model: str
    tokenizer: str


def get_onnx_files(path: str) -> OnnxFiles:
    """Return the files of a model, from its folder or its ONNX file. Raise EmbedderUnavailable if one is missing."""
    model = path if not os.path.isdir(path) else _find_onnx(path)
    if model is None or not model.endswith(".onnx"):
        raise EmbedderUnavailable(
            f"There is no ONNX model in {path}.",
            hint="The folder needs model.onnx and tokenizer.json. Under another name, set the path to the file itself.",
        )
    model_folder = os.path.dirname(model)
    folder = path if os.path.isdir(path) else model_folder
    if os.path.basename(folder) == "onnx":
        folder = os.path.dirname(folder)
    for parent in dict.fromkeys((folder, model_folder)):
        tokenizer = os.path.join(parent, "tokenizer.json")
        if os.path.isfile(tokenizer):
            return OnnxFiles(folder, model, tokenizer)
    raise EmbedderUnavailable(
        f"There is no tokenizer.json in {folder}.",
        hint="Put the model's tokenizer.json beside it: a fast tokenizer's save_pretrained() writes one.",
    )


def _find_onnx(folder: str) -> str | None:
    paths = (os.path.join(folder, below, name) for name in _ONNX_NAMES for below in _ONNX_FOLDERS)
    return next((os.path.normpath(path) for path in paths if os.path.isfile(path)), None)


def model_name(path: str) -> str:
    """Return the name of a model: its folder, or the repository if the folder is a snapshot in a download cache."""
    for folder in (path, os.path.dirname(os.path.dirname(path))):
        name = os.path.basename(folder)
        if name.startswith("models--"):
            return name.removeprefix("models--").replace("--", "/")
    return os.path.basename(path)


def sample_digest(paths: Iterable[str]) -> str:
    """Return a digest of weights without reading gigabytes: SHA-256 of each file's size, first and last megabyte.

    Neither the time of a file nor its path counts, so a model that is copied or downloaded again keeps its vectors.
    """
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest.update(size.to_bytes(8, "little"))
            for start in (0, max(0, size - _SAMPLE_BYTES)):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def encodable(text: str, *, max_chars: int) -> str:
    """Cut a text, and replace the lone surrogates that tokenizers refuse.

    Tokenizing megabytes to keep a few hundred tokens would cost more than the model.
    """
    return utf8_safe(text[:max_chars])


def require_packages(*names: str, extra: str) -> None:
    """Raise EmbedderUnavailable if a package of an extra is not installed. Import nothing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise EmbedderUnavailable(
            f"This model needs the package {missing[0]}, which is not installed.",
            hint=f"Install it: pip install 'kept[{extra}]'",
        )


# scale

# Models differ: unrelated sentences have a cosine of 0.00 in some and of 0.39 in bge-small, so no
# constant serves all of them. Eight questions and the passages that answer them, each on another subject, give 8
# cosines of related texts and 56 of unrelated ones.
_PAIRS = (
    ("which port does the staging database use?", "Staging moved its database to port 5433 in March."),
    ("who is allergic to nuts?", "Anna cannot eat peanuts or almonds; she carries an adrenaline pen."),
    ("when is the rent due?", "The landlord wants the money on the third working day of each month."),
    ("how do I restart the printer queue?", "If print jobs are stuck, run cupsenable as root and try once more."),
    ("what did we decide about the logo?", "The board chose the green emblem over the older blue design."),
    ("where did the family go on holiday?", "In July they hired a cottage by the sea in Brittany."),
    ("why was the flight late?", "Fog over the airport held the plane back for two hours."),
    ("what does the cat weigh?", "At the vet's this morning Miso came to four and a half kilos."),
)
WEIGHT = 0.5

# Distance of floor and ceiling from the mean of their kind, in standard deviations. Both were chosen to give an English
# table of word vectors the 0.15 and 0.75 that retrieval sets gave it by hand: one `min_score` serves every model.
_FLOOR_DEVIATIONS = 2.3
_CEILING_DEVIATIONS = 2.85
_LEAST_SPREAD = 0.05


class TextEmbedder(Protocol):
    """The part of an embedder that is measured. It has no calibration yet."""

    def embed(self, texts: list[str], *, role: Role) -> Matrix: ...


def measure_calibration(embedder: TextEmbedder) -> Calibration:
    """Return a floor above the cosines of unrelated texts and a ceiling above those of questions and answers."""
    questions = _rows(embedder.embed([question for question, _ in _PAIRS], role="query"))
    passages = _rows(embedder.embed([passage for _, passage in _PAIRS], role="document"))
    related: list[float] = []
    unrelated: list[float] = []
    for question_number, question in enumerate(questions):
        for passage_number, passage in enumerate(passages):
            cosine = sum(a * b for a, b in zip(question, passage, strict=True))
            (related if question_number == passage_number else unrelated).append(cosine)
    floor = fmean(unrelated) + _FLOOR_DEVIATIONS * pstdev(unrelated)
    ceiling = min(1.0, fmean(related) + _CEILING_DEVIATIONS * pstdev(related))
    if ceiling - floor < _LEAST_SPREAD:
        return Calibration(weight=WEIGHT)  # a model that cannot separate these has no scale
    return Calibration(floor=floor, ceiling=ceiling, weight=WEIGHT)


def _rows(matrix: Matrix) -> list[tuple[float, ...]]:
    return [struct.unpack(f"<{matrix.dims}f", row) for row in matrix]


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
