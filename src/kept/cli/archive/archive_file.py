"""The file of an archive: which members it may have, its manifest, and how it is written and read.

    config.yaml                           settings, without secrets
    notes/AGENT/memory/ideas.md           the workspace of an agent, or of several that share it
    agents/AGENT/sessions/….jsonl         its conversations and records
    manifest.json                         the last member: whose files they are, and the SHA-256 of each

The same rules decide what is packed and what is accepted, so an archive cannot place a file that an export would not
have packed: no index, lock or token, no hook of git, no plugin of an editor.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Literal, cast

from kept.base.digest import digest_bytes
from kept.base.json_values import from_tree, to_tree
from kept.base.limits import int64, is_utf8
from kept.base.values import frozen
from kept.config.layers import AGENT_ID
from kept.errors import ArchiveDamaged, ArchiveRefused, DocumentNotFound, NoteTooLarge, PathRefused
from kept.notes.workspace import show_path
from kept.sessions.attachments import ATTACHMENTS, STORED_NAME
from kept.sessions.importers.source import open_regular
from kept.storage.contract import OWN_FOLDER, Storage, check_name, is_log

MANIFEST = "manifest.json"
SETTINGS = "config.yaml"
NOTES, AGENTS = "notes", "agents"
KEPT_FOLDER = ".kept"
"""Folder in a workspace with the history of its notes."""
MAX_MEMBER_BYTES = 1 << 30
_MAX_MEMBERS = 1_000_000
_MAX_RATIO = 200
_SMALL_SIZE = 100_000_000
"""An archive that unpacks to less is harmless, whatever its ratio."""
_MAX_HEADER = 1 << 18
_FORMAT, _VERSION = "kept-archive", 4

# names

_SETTINGS_HERE, _IGNORE_FILE = ".kept.yaml", ".keptignore"
_RECORD_ENDINGS = (".jsonl", ".json", ".md", ".damaged", ".torn")
_DELETED = ".jsonl.deleted-"
_DERIVED = re.compile(r"\.sqlite|\.lock$|\.tmp$|^qmd-|^watcher-", re.IGNORECASE)
_SECRET = re.compile(r"token|secret|credential|password|\.env\b|^env$|api.?key", re.IGNORECASE)
_UNFINISHED = "forgetting.json"
"""Journal of a forget that was interrupted: it has the words in clear, and belongs to this machine."""
_MAX_RECORD_DEPTH = 4


def check_member_name(name: str) -> None:
    """Raise ValueError with the reason why the name of a member is refused."""
    try:
        check_name(name if is_utf8(name) else "")
    except PathRefused:
        raise ValueError("is not a plain name") from None
    root, agent, below = (*name.split("/", 2), "", "")[:3]
    if name == SETTINGS:
        return
    if root not in (NOTES, AGENTS) or not AGENT_ID.fullmatch(agent) or not below:
        raise ValueError("is not a name that 'kept export' gives")
    if not (is_note_member(below) if root == NOTES else is_agent_record(below)):
        raise ValueError("is not a file that 'kept export' packs")


def is_note_member(path: str) -> bool:
    """Return whether a file of a workspace belongs into an archive.

    Hidden files are other programs' own, and some of them are run as code: only Kept's are packed.
    """
    *folders, name = path.split("/")
    if folders[:1] == [KEPT_FOLDER]:
        own = (*folders[1:], name)
        return f"{KEPT_FOLDER}/{own[0]}" != OWN_FOLDER and not any(map(_is_derived, own))
    is_visible = not any(folder.startswith(".") for folder in folders)
    return path == _SETTINGS_HERE or (is_visible and (name == _IGNORE_FILE or not name.startswith(".")))


def _is_derived(part: str) -> bool:
    """Return whether a part of a path is hidden, or that of a derived file."""
    return part.startswith(".") or _DERIVED.search(part) is not None


def is_agent_record(path: str) -> bool:
    """Return whether a file in the folder of an agent belongs into an archive: it is neither derived nor secret."""
    *_, name = parts = path.split("/")
    if len(parts) > _MAX_RECORD_DEPTH or any(map(_is_derived, parts)):
        return False
    if parts[0] == ATTACHMENTS:
        return len(parts) == 2 and STORED_NAME.fullmatch(name) is not None
    is_record = name.endswith(_RECORD_ENDINGS) or _DELETED in name
    return is_record and parts[0] != _UNFINISHED and (parts[0] == "sessions" or not _SECRET.search(name))


# the manifest


@frozen
class FileRecord:
    """A file as it was when it was packed."""

    size: int
    sha256: str
    mtime_ns: int


@frozen
class ArchivedAgent:
    name: str
    notes: str
    """Name under which its notes are packed: its own, or that of the agent that it shares them with."""
    layout: Literal["kept", "vault"]


@frozen
class Manifest:
    created: dt.datetime
    agents: tuple[ArchivedAgent, ...]
    removed_settings: tuple[str, ...]
    """Settings that were left out because their values are secret."""
    files: dict[str, FileRecord]
    """Every file by its name in the archive."""


def format_manifest(manifest: Manifest) -> bytes:
    tree = {"format": _FORMAT, "version": _VERSION, **to_tree(manifest)}
    return (json.dumps(tree, indent=0, ensure_ascii=False) + "\n").encode()


def _parse_manifest(path: str, raw: bytes) -> Manifest:
    try:
        tree = json.loads(raw)
        if tree["format"] != _FORMAT or tree["version"] != _VERSION:
            raise ArchiveRefused(f"{path}: it was made by another version of Kept.")
        return from_tree(Manifest, tree)
    except (KeyError, TypeError, ValueError, RecursionError) as exc:
        raise ArchiveDamaged(f"{path}: its manifest is damaged.") from exc


# reading


class _LimitedStream:
    """Reads only as much as was allowed: a header that claims to be large must not fill the memory."""

    def __init__(self, stream: IO[bytes], path: str) -> None:
        self._stream = stream
        self._path = path
        self._rest = _MAX_HEADER

    def allow(self, size: int) -> None:
        self._rest = size + _MAX_HEADER

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._rest -= len(data)
        if self._rest < 0:
            raise ArchiveRefused(f"{self._path}: a header in it is too large.")
        return data


def iter_members(path: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the members of an archive. Raise ArchiveRefused or ArchiveDamaged."""
    try:
        raw = open_regular(path)
    except OSError as exc:
        reason = "there is no such file" if isinstance(exc, FileNotFoundError) else f"cannot be read ({exc.strerror})"
        raise ArchiveRefused(f"{path}: {reason}.") from exc
    with raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        size = os.fstat(raw.fileno()).st_size
        stream = _LimitedStream(cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_packed else raw, path)
        tar: tarfile.TarFile | None = None
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar:
                yield from _iter_plain_files(tar, path, stream.allow, max(_SMALL_SIZE, _MAX_RATIO * size))
        except (tarfile.TarError, EOFError, OSError, zlib.error) as exc:
            if tar is None:
                raise ArchiveRefused(f"{path}: it is not an archive of Kept.") from exc
            raise ArchiveDamaged(f"{path}: it is truncated or damaged ({exc}).") from exc


def _iter_plain_files(
    tar: tarfile.TarFile, path: str, allow: Callable[[int], None], most: int
) -> Iterator[tuple[str, bytes]]:
    total = count = 0
    while (info := tar.next()) is not None:
        name, count, total = show_path(info.name), count + 1, total + info.size
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.sparse is not None:
            raise ArchiveRefused(f"{path}: '{name}' is not a plain file.")
        if not 0 <= info.size <= MAX_MEMBER_BYTES or total > most or count > _MAX_MEMBERS:
            raise ArchiveRefused(f"{path}: it unpacks to far more than any archive of notes.")
        try:
            if info.name != MANIFEST:
                check_member_name(info.name)
        except ValueError as exc:
            raise ArchiveRefused(f"{path}: the name '{name}' {exc}.") from exc
        allow(info.size)
        yield info.name, cast("IO[bytes]", tar.extractfile(info)).read()
        tar.members = []  # type: ignore[attr-defined]  # the library remembers every member
        allow(0)


def check_archive(path: str, inspect: Callable[[str, bytes], None] = lambda name, content: None) -> Manifest:
    """Read an archive to its end, and compare every file with the manifest. Raise an ArchiveError if it differs.

    ``inspect`` is called with the name and the content of each file.
    """
    seen: dict[str, tuple[int, str]] = {}
    manifest: Manifest | None = None
    for name, content in iter_members(path):
        if manifest is not None:
            raise ArchiveRefused(f"{path}: something follows its manifest.")
        if name == MANIFEST:
            manifest = _parse_manifest(path, content)
        elif name in seen:
            raise ArchiveRefused(f"{path}: it has '{show_path(name)}' twice.")
        else:
            seen[name] = len(content), digest_bytes(content)
            inspect(name, content)
    if manifest is None:
        raise ArchiveDamaged(f"{path}: it is truncated: its manifest is missing.")
    _require_same(path, seen, manifest.files)
    return manifest


def _require_same(path: str, seen: dict[str, tuple[int, str]], files: dict[str, FileRecord]) -> None:
    """Refuse an archive that differs from its manifest, or has a name that is both a file and a folder."""
    folders = {name[:at] for name in files for at, char in enumerate(name) if char == "/"}
    for folder in sorted(folders & files.keys()):
        raise ArchiveRefused(f"{path}: '{show_path(folder)}' is both a file and a folder.")
    listed = {name: (record.size, record.sha256) for name, record in files.items()}
    wrong = [name for name in (seen | listed) if seen.get(name) != listed.get(name)]
    if wrong:
        first, more = wrong[0], f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
        reason = "does not match its checksum" if first in seen else "is missing"
        reason = reason if first in files else "is not in the manifest"
        raise ArchiveDamaged(f"{path}: {show_path(first)} {reason}{more}.")


# what is packed


def read_stored(storage: Storage, path: str) -> tuple[bytes, int] | None:
    """Return a document, or the whole lines of a log, and when it was changed last; None if there is none. A last line
    that is being written is left out. Raise NoteTooLarge for more than a member may have."""
    if not is_log(path):
        try:
            document = storage.documents.read(path, max_bytes=MAX_MEMBER_BYTES)
        except DocumentNotFound:
            return None
        return document.data, int64(document.info.modified_ns)
    info = storage.logs.find(path)
    if info is None:
        return None
    if info.size > MAX_MEMBER_BYTES:
        raise NoteTooLarge(f"{path}: {info.size:,} bytes.")
    return b"".join(line.data + b"\n" for line in storage.logs.read(path)), int64(info.modified_ns)


def add_member(tar: tarfile.TarFile, name: str, content: bytes, modified_ns: int = 0) -> None:
    """Write a member, a private regular file without an owner."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(content), max(0, modified_ns // 1_000_000_000), 0o600
    tar.addfile(info, io.BytesIO(content))
