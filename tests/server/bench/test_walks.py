"""The benchmark that counts the functions of an operation."""

import os
import subprocess
import sys
from pathlib import Path

import click

from benchmarks.walks import TRACER


def test_only_functions_of_the_package_are_counted_wherever_it_is(tmp_path):
    """A library in a folder that has the package's name, as in a clone with a virtual environment."""
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "click").symlink_to(Path(click.__file__).parent)
    counts = tmp_path / "counts"
    environment = {
        **os.environ,
        "WALK_FILE": str(counts),
        "PYTHONPATH": str(folder),
        "KEPT_HOME": str(tmp_path / "home"),
    }
    subprocess.run([sys.executable, "-c", TRACER, "--version"], env=environment, check=True, capture_output=True)
    files = {line.split()[0] for line in counts.read_text().splitlines()}
    assert "cli/__init__.py" in files
    assert not any(name.startswith("click") for name in files)
