"""What many tests need: a workspace on disk and a memory over it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kept import Memory
from kept.testing import FakeEmbedder

KEPT = str(Path(sys.executable).with_name("kept"))


def write(workspace: Path, path: str, text: str) -> Path:
    file = workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def open_memory(tmp_path: Path, *, embedder: Any = None, settings: dict[str, Any] | None = None, **more: Any) -> Memory:
    """A memory with the fake embedder, unless a provider is named; its workspace and home are below tmp_path."""
    return Memory.open(
        tmp_path / "workspace",
        home=more.pop("home_override", tmp_path / "home"),
        embedder=embedder or (None if "memory_search.provider" in (settings or {}) else FakeEmbedder()),
        settings=settings,
        create=True,
        **more,
    )


def index_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "agents" / "main" / "index.sqlite"


def kept_environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of the machine's own settings, everything below tmp_path."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KEPT_HOME": str(tmp_path / "home"),
        "KEPT_WORKSPACE": str(tmp_path / "workspace"),
    }


def start_kept(tmp_path: Path, *args: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [KEPT, *args],
        env=kept_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def paths(result: Any) -> list[str]:
    return [hit.path for hit in result]
