"""Run the real `kept` command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT = str(Path(sys.executable).with_name("kept"))


@dataclass(frozen=True)
class Outcome:
    """The exit code and output of a finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_kept(*args: str | Path, stdin: str | bytes = b"", env: dict[str, str], cwd: Path) -> Outcome:
    """Run the command to its end."""
    finished = subprocess.run(
        [KEPT, *args],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=env,
        cwd=cwd,
        timeout=60,
    )
    return Outcome(finished.returncode, finished.stdout.decode(), finished.stderr.decode())


def start_kept(tmp_path: Path, *args: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command and return at once. ``options`` go to `subprocess.Popen`."""
    return subprocess.Popen(
        [KEPT, *args],
        env=kept_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def kept_environment(tmp_path: Path) -> dict[str, str]:
    """Return a minimal environment: PATH, and home and workspace below tmp_path."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KEPT_HOME": str(tmp_path / "home"),
        "KEPT_WORKSPACE": str(tmp_path / "workspace"),
    }
