"""Clones of repositories, as far as Kept reads them."""

from pathlib import Path

from tests.support.files import write_file

OTTER = "git@github.com:ada/otter.git"
BADGER = "https://github.com/ada/badger"


def make_clone(folder: Path, url: str | None) -> Path:
    """Make the working tree of a repository that was cloned from ``url``, or of one without a remote."""
    remote = f'[remote "origin"]\n\turl = {url}\n' if url else ""
    write_file(folder / ".git/config", f"[core]\n\tbare = false\n{remote}")
    (folder / "src").mkdir(exist_ok=True)
    return folder
