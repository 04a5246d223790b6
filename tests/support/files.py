"""Write files and compare folders."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file, creating its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def tree_of(folder: Path) -> dict[str, bytes | None]:
    """Map each path below a folder to its content, to check whether anything changed. The history of the notes, which
    is in the workspace too, and the files of the storage itself are left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(folder.rglob("*"))
        if not _is_own(path.relative_to(folder))
    }


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no write make a file larger than this, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_no_modules, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # one that is cut off fails later tests
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = writes_no_modules


def _is_own(path: Path) -> bool:
    return path.name == ".kept" or ".kept/history" in str(path) or ".kept/storage" in str(path)
