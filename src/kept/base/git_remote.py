"""Finds the repository of a folder, by the address that it is cloned from. Read from .git, without running git.

`git@host:ada/otter.git` and `https://host/ada/otter` are the same repository: both are "host/ada/otter" here. A folder
without such an address is known by its name only: "folder:otter".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_MAX_BYTES = 200_000
_REMOTE = r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?(?:[^/@]*@)?(?P<host>\[[^\]]*\]|[^/:@]+)(?::(?P<port>\d*)(?=/))?[:/](?P<path>.*)"
"""An address, the short form of ssh (host:path), or a key."""
_LOCAL_KEY = "file:"
_DEFAULT_PORTS = {"http": "80", "https": "443", None: ""}
_SECTION = r'\s*\[\s*remote\s+"(?P<name>(?:[^"\\]|\\.)*)"\s*\]'
_ADDRESS = r"\s*url\s*=\s*(?P<url>.*)"


def repository_keys(folder: str) -> Iterator[str]:
    """Yield the keys of the repositories and folders that a folder is in, innermost first.

    A clone has the key of its remote. Any other folder has one by its name.
    """
    try:
        folder = os.path.abspath(folder)
    except FileNotFoundError:  # the current folder was deleted
        return
    for path in _upwards(folder):
        name = os.path.basename(path)
        if key := find_remote(path) or (name and folder_key(name)):
            yield key


def folder_key(name: str) -> str:
    return f"folder:{name}"


def find_root(folder: str) -> str | None:
    """Return the root of the working tree that a folder is in, or None."""
    above = _upwards(os.path.abspath(folder))
    return next((path for path in above if os.path.lexists(os.path.join(path, ".git"))), None)


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and those that it is in."""
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


def find_remote(root: str) -> str | None:
    """Return the key of the remote of a working tree, of 'origin' if it has several. None if it has none."""
    git_folder = _find_git_folder(root)
    urls = _read_urls(os.path.join(git_folder, "config")) if git_folder else {}
    url = urls.get("origin") or next(iter(urls.values()), None)
    return normalise_remote(url, root=root) if url else None


def normalise_remote(url: str, *, root: str = "") -> str | None:
    """Return an address without the parts in which two clones of one repository may differ, or None if it is none.

    These are the protocol, the user, the password, the usual ports and the ending ".git". A path on this machine is
    relative to ``root``.
    """
    url = url.strip()
    if url.startswith("file://"):
        url = "/" + url.removeprefix("file://").partition("/")[2]
    if url.startswith((_LOCAL_KEY, "/", "./", "../")):
        path = os.path.normpath(os.path.join(root, url.removeprefix(_LOCAL_KEY)))
        return f"{_LOCAL_KEY}{_plain_path(path)}" if path.strip("/.") else None
    match = re.fullmatch(_REMOTE, url, re.IGNORECASE)
    path = _plain_path(match["path"]).strip("/") if match else ""
    if match is None or not path:
        return None
    scheme, port = match["scheme"] and match["scheme"].lower(), match["port"]
    # A server listens for ssh on another port than for the web; two ports of the web are two servers.
    has_port = port and scheme in _DEFAULT_PORTS and port != _DEFAULT_PORTS[scheme]
    return f"{match['host'].lower()}{f':{port}' if has_port else ''}/{path}"


def _plain_path(path: str) -> str:
    path = path.rstrip("/")
    return path.removesuffix(".git").rstrip("/") if path not in ("", ".git") else path


# .git


def _find_git_folder(root: str) -> str | None:
    """Return the folder with the configuration of a working tree. In a linked one and in a submodule, .git is a file
    that names a folder, and that may have a file `commondir` which names the one of the main working tree."""
    path = os.path.join(root, ".git")
    if not os.path.isdir(path):
        text = _read(path)
        if not text.startswith("gitdir:"):
            return None
        path = os.path.join(root, text.removeprefix("gitdir:").strip())
    common = _read(os.path.join(path, "commondir")).strip()
    return os.path.normpath(os.path.join(path, common)) if common else path


def _read_urls(path: str) -> dict[str, str]:
    """Return the first address of each remote, in the order of the file."""
    urls: dict[str, str] = {}
    remote = None
    for line in _read(path).splitlines():
        if line.lstrip().startswith("["):
            match = re.match(_SECTION, line)
            remote = match["name"] if match else None
            line = line.partition("]")[2]
        if remote is not None and (match := re.match(_ADDRESS, line)):
            urls.setdefault(remote, match["url"].strip().strip('"'))
    return urls


def _read(path: str) -> str:
    """Return the text of a small file, empty if it cannot be read. Never wait for a pipe."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
