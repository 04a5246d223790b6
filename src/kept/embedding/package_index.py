"""Wheels on the package index that pip is configured to use. Nothing is installed, and pip itself is not needed.

Kept may have been installed by a program that brings no pip, so pip's settings are read here: its variables, then its
files. A wheel's checksum is known beforehand, so it does not matter which index or mirror delivers it.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from kept.durable import read_if_possible
from kept.errors import KeptError
from kept.net import RetryPolicy
from kept.net.file_download import download_page
from kept.remote_errors import RemoteError
from kept.values import frozen

PYPI = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@frozen
class IndexSettings:
    """Package indexes and folders in which pip looks for packages."""

    indexes: tuple[str, ...] = (PYPI,)
    links: tuple[str, ...] = ()
    """Folders and pages with files of packages."""


def read_index_settings(environ: Mapping[str, str]) -> IndexSettings:
    """Return where pip looks for packages, by its variables and its files."""
    values: dict[str, str] = {}
    for path in _config_files(environ):
        values |= _read_config(path)
    for name in ("index-url", "extra-index-url", "find-links", "no-index"):
        variable = f"PIP_{name.replace('-', '_').upper()}"
        if environ.get(variable):
            values[name] = environ[variable]
    uv_index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")
    if uv_index:
        values.setdefault("index-url", uv_index)
    indexes = (values.get("index-url", PYPI), *values.get("extra-index-url", "").split())
    has_index = values.get("no-index", "").lower() not in ("1", "true", "yes", "on")
    return IndexSettings(indexes if has_index else (), tuple(values.get("find-links", "").split()))


def _config_files(environ: Mapping[str, str]) -> list[str]:
    """Return pip's settings files, in rising precedence."""
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = environ.get("HOME", "")
    folder = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    paths = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", os.path.join(home, ".pip", "pip.conf")]
    if sys.platform == "darwin":
        paths += ["/Library/Application Support/pip/pip.conf"]
        paths += [os.path.join(home, "Library", "Application Support", "pip", "pip.conf")]
    paths += [os.path.join(folder, "pip", "pip.conf"), os.path.join(sys.prefix, "pip.conf")]
    return [*paths, *([named] if named else [])]


def _read_config(path: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}  # pip reports this; another source may still have the wheel
    sections = ("global", "download")
    return {key.replace("_", "-"): value for name in sections if name in parser for key, value in parser[name].items()}


def find_wheel(package: str, filename: str, settings: IndexSettings, *, policy: RetryPolicy | None = None) -> str:
    """Return the address of a package's file: a path, or a URL. Raise RemoteError if no index has it."""
    problems: list[str] = []
    for link in settings.links:
        path = _local_path(link)
        if path is not None and os.path.isfile(os.path.join(path, filename)):
            return os.path.join(path, filename)
    for index in settings.indexes:
        page = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', package).lower()}/"
        try:
            links = _read_page(page, policy)
        except KeptError as exc:
            problems.append(exc.message)
            continue
        for link in links:
            if unquote(urlsplit(link).path).rpartition("/")[2] == filename:
                return _local_path(link) or link
    raise RemoteError(
        f"{filename} is on none of the package indexes. {' '.join(problems)}".rstrip(),
        hint="Set PIP_INDEX_URL to an index that has it, or PIP_FIND_LINKS to a folder with the file.",
    )


def _local_path(link: str) -> str | None:
    if link.startswith("file://"):
        return unquote(urlsplit(link).path)
    return link if "://" not in link else None


def _read_page(page: str, policy: RetryPolicy | None) -> list[str]:
    """Return the addresses of all files of a package."""
    path = _local_path(page)
    if path is None:
        content = download_page(page, accept=_ACCEPT, policy=policy)
    else:
        page, content = f"file://{path}", read_if_possible(os.path.join(path, "index.html"))
    return [urljoin(page, link) for link in _links_in(content)]


def _links_in(content: bytes) -> Iterator[str]:
    text = content.decode("utf-8", "replace")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        parser = _LinkParser()
        parser.feed(text)
        yield from parser.links
        return
    files = tree.get("files") if isinstance(tree, dict) else None
    for file in files if isinstance(files, list) else ():
        if isinstance(file, dict) and isinstance(file.get("url"), str):
            yield file["url"]


class _LinkParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
