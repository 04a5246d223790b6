"""What an installation costs: python -m benchmarks.install [WHEEL]

Builds the wheel, unless one is given, installs it with its dependencies into an empty virtual environment, and searches
with it. The times depend on the package index and on what pip has cached; the sizes do not.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import run_once

ROOT = Path(__file__).parents[1]
LARGEST = 8


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kept-install-") as scratch:
        wheel = Path(sys.argv[1]) if len(sys.argv) > 1 else build(Path(scratch, "dist"))
        environment = Path(scratch, "venv")
        timed("create an empty virtual environment", sys.executable, "-m", "venv", environment)
        before = size_of(environment)
        timed("install", environment / "bin" / "pip", "install", "--quiet", wheel)
        timed(
            "first search, with an index to make",
            environment / "bin" / "kept",
            "search",
            "nuts",
            HOME=scratch,
            KEPT_WORKSPACE=str(ROOT / "examples/notes"),
        )
        print(f"{mb(wheel.stat().st_size)}  wheel")
        print(f"{mb(size_of(environment))}  virtual environment")
        print(f"{mb(size_of(environment) - before)}  of it added by the installation")
        show_largest(next(environment.glob("lib/python*/site-packages")))


def build(output: Path) -> Path:
    timed("build the wheel", sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", output, ROOT)
    return next(output.glob("kept-*.whl"))


def timed(what: str, *command: str | Path, **env: str) -> None:
    cost, _ = run_once([str(part) for part in command], {**os.environ, **env})
    print(f"{cost.wall_s:6.1f} s   {what} ({cost.cpu_s:.1f} s CPU)", flush=True)


def show_largest(site: Path) -> None:
    packages = [entry for entry in site.iterdir() if entry.is_dir() and entry.suffix != ".dist-info"]
    print(f"\n{len(list(site.glob('*.dist-info')))} distributions; the largest folders:")
    for size, name in sorted(((size_of(entry), entry.name) for entry in packages), reverse=True)[:LARGEST]:
        print(f"{mb(size)}  {name}")


def size_of(folder: Path) -> int:
    """The size on disk, as du counts it."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def mb(size: int) -> str:
    return f"{size / 1024 / 1024:6.1f} MB"


if __name__ == "__main__":
    main()
