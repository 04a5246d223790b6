"""What every test stands on: a home and a workspace of its own, a memory without a model, and the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from kept import Memory
from kept.testing import FakeEmbedder

KEPT = Path(sys.executable).with_name("kept")

# A run is the same today and tomorrow; `--hypothesis-profile=explore` looks for what nobody has thought of yet.
settings.register_profile("kept", deadline=None, max_examples=100, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=3000, database=None)
settings.load_profile("kept")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """No test sees the settings, the home or the colours of whoever runs it."""
    unwanted = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "PYTHONDONTWRITEBYTECODE")
    for name in [*os.environ]:
        if name.startswith("KEPT_") or name in unwanted:
            monkeypatch.delenv(name)
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))
    return {**os.environ}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where KEPT_HOME points. Not made yet: a fresh machine has none."""
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def memory(workspace: Path, home: Path, embedder: FakeEmbedder) -> Iterator[Callable[..., Memory]]:
    """Opens memories of the workspace with the fake embedder; whatever is passed takes the place of that."""
    opened: list[Memory] = []

    def open_memory(**options: Any) -> Memory:
        made = Memory.open(**{"workspace": workspace, "home": home, "embedder": embedder, **options})
        opened.append(made)
        return made

    yield open_memory
    for one in opened:
        one.close()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def kept(environment: dict[str, str], workspace: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """Runs the real command in a process of its own, on the workspace unless the arguments name another."""

    def run(*args: str | Path, stdin: str | bytes = b"", env: dict[str, str] | None = None) -> Outcome:
        ended = subprocess.run(
            [KEPT, *args],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env={**environment, "KEPT_WORKSPACE": str(workspace), **(env or {})},
            cwd=tmp_path,
            timeout=60,
        )
        return Outcome(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    return run


def write(path: Path, text: str | bytes) -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def tree_of(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder with its content, to see whether anything changed."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(folder.rglob("*"))
    }
