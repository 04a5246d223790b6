"""Write files and compare folders."""

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


def _is_own(path: Path) -> bool:
    return path.name == ".kept" or ".kept/history" in str(path) or ".kept/storage" in str(path)
