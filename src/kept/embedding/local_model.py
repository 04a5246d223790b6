"""A model that the user has put on this machine: which kind it is, where its files are, and what tells it apart."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable

from kept.config import Local
from kept.embedding.base import Embedder
from kept.errors import EmbedderUnavailable
from kept.values import frozen

_SAMPLE_BYTES = 1 << 20
_ONNX_NAMES = ("model.onnx", "model_quantized.onnx", "model_int8.onnx", "model_quint8.onnx", "model_fp16.onnx")
_ONNX_FOLDERS = (".", "onnx")


def open_local_model(settings: Local, *, gguf_only: bool = False) -> Embedder:
    """The embedder for ``local.model_path``: llama.cpp for a GGUF file or a folder with one, else ONNX."""
    if not settings.model_path:
        raise EmbedderUnavailable(
            "The provider llama_cpp has no model.",
            hint="Set memory_search.local.model_path to a GGUF file.",
        )
    path = os.path.abspath(os.path.expanduser(settings.model_path))
    if not os.path.exists(path):
        raise EmbedderUnavailable(f"There is no model at {path}.", hint="Check memory_search.local.model_path.")
    gguf = find_gguf(path)
    if gguf is not None:
        from kept.embedding.llama_cpp import LlamaCppEmbedder

        return LlamaCppEmbedder(gguf, settings)
    if gguf_only:
        raise EmbedderUnavailable(
            f"There is no GGUF file at {path}.", hint="Set memory_search.local.model_path to one, ending in .gguf."
        )
    from kept.embedding.onnx import OnnxEmbedder

    return OnnxEmbedder(path, settings)


def find_gguf(path: str) -> str | None:
    """The GGUF file that a path means. A folder that has an ONNX model too means that one."""
    if not os.path.isdir(path):
        return path if path.lower().endswith(".gguf") else None
    found = _listed(path, ".gguf")
    if not found or _find_named_onnx(path):
        return None
    return _the_only(found, path)


@frozen
class OnnxFiles:
    folder: str
    """Where the model's own settings are, above the folder `onnx` where there is one."""
    model: str
    tokenizer: str

    @property
    def weights(self) -> tuple[str, ...]:
        """The model and what it keeps beside it: a model above 2 GB has its weights in a file of their own."""
        stem = os.path.splitext(self.model)[0]
        beside = (f"{self.model}_data", f"{self.model}.data", f"{stem}.onnx_data")
        return tuple(dict.fromkeys([self.model, *filter(os.path.isfile, beside)]))


def get_onnx_files(path: str) -> OnnxFiles:
    """The files of the model in a folder, or of one ONNX file that was named itself."""
    model = path if not os.path.isdir(path) else _find_named_onnx(path) or _find_any_onnx(path)
    if model is None or not model.endswith(".onnx"):
        raise EmbedderUnavailable(
            f"There is no ONNX model in {path}.", hint="The folder needs model.onnx (or one *.onnx) and tokenizer.json."
        )
    inside = os.path.dirname(model)
    folder = path if os.path.isdir(path) else inside
    if os.path.basename(folder) == "onnx":
        folder = os.path.dirname(folder)
    for place in dict.fromkeys((folder, inside)):
        tokenizer = os.path.join(place, "tokenizer.json")
        if os.path.isfile(tokenizer):
            return OnnxFiles(folder, model, tokenizer)
    raise EmbedderUnavailable(
        f"There is no tokenizer.json in {folder}.",
        hint="Put the model's tokenizer.json beside it: a fast tokenizer's save_pretrained() writes one.",
    )


def _find_named_onnx(folder: str) -> str | None:
    named = (os.path.join(folder, below, name) for name in _ONNX_NAMES for below in _ONNX_FOLDERS)
    return next((os.path.normpath(path) for path in named if os.path.isfile(path)), None)


def _find_any_onnx(folder: str) -> str | None:
    for below in _ONNX_FOLDERS:
        found = _listed(os.path.normpath(os.path.join(folder, below)), ".onnx")
        if found:
            return _the_only(found, folder)
    return None


def _listed(folder: str, ending: str) -> list[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    return sorted(os.path.join(folder, name) for name in names if name.endswith(ending) and not name.startswith("."))


def _the_only(found: list[str], folder: str) -> str:
    if len(found) > 1:
        names = ", ".join(map(os.path.basename, found))
        raise EmbedderUnavailable(
            f"There are several models in {folder}: {names}.",
            hint="Set memory_search.local.model_path to the file itself.",
        )
    return found[0]


def model_name(path: str) -> str:
    """What a model is called: its folder, or the repository where the folder is a snapshot in a download cache."""
    for above in (path, os.path.dirname(os.path.dirname(path))):
        name = os.path.basename(above)
        if name.startswith("models--"):
            return name.removeprefix("models--").replace("--", "/")
    return os.path.basename(path)


def sample_digest(paths: Iterable[str]) -> str:
    """Tells weights apart without reading gigabytes: SHA-256 over each file's size, first and last megabyte.

    Neither the time of a file nor its place counts, so a model that is copied or downloaded anew keeps its vectors.
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


def require_packages(*names: str, extra: str) -> None:
    """Fails before any work is done where a package of an extra is not installed. Imports nothing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise EmbedderUnavailable(
            f"This model needs the package {missing[0]}, which is not installed.",
            hint=f"Install it: pip install 'kept[{extra}]'",
        )
