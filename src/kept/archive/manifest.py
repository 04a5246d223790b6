"""Description of an archive: the header, which is its first member, and the manifest, which is its last.

    archive.json    {"format": "kept-archive", "version": 1, "id": …, "created": …, "agents": […], "base": …}
    manifest.jsonl  {"path": "notes/main/MEMORY.md", "size": 120, "sha256": …, "mtimeNs": …, "stored": true}
                    …
                    {"files": 2, "sha256": of the lines above}

The manifest lists all files that there were. In an incremental archive, a file with ``"stored": false`` is in the
archive that the header names as ``base``, or in one before that.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable
from typing import Any, BinaryIO

from kept.errors import ArchiveDamaged, ArchiveRefused
from kept.limits import INT64_MAX, is_time
from kept.values import frozen
from kept.workspace.workspace import show_path

FORMAT = "kept-archive"
VERSION = 1
MAX_HEADER_BYTES = 4_000_000
_MAX_LINE = 64_000


@frozen
class FileRecord:
    """A file as it was when it was packed."""

    path: str
    size: int
    sha256: str
    mtime_ns: int
    stored: bool
    """False if its content is in the base."""


@frozen
class ArchivedAgent:
    name: str
    notes: str
    """Name under which its notes are packed: its own, or that of the agent that it shares them with."""
    workspace: str | None
    """Path of the workspace, '~/…' if it was in the user's folder; None if it was the agent's default one."""
    layout: str


@frozen
class BaseReference:
    """The archive that an incremental one builds on."""

    id: str
    file: str
    """Name of its file, without folder, when it was used."""
    created: str


@frozen
class ArchiveHeader:
    id: str
    created: str
    kept: str
    """Version of Kept that wrote it."""
    agents: tuple[ArchivedAgent, ...]
    base: BaseReference | None
    removed_settings: tuple[str, ...]
    """Settings that were left out because their values are secret."""
    left_out: tuple[str, ...]
    """Places that were not packed, such as extra paths."""


# writing


def header_bytes(header: ArchiveHeader) -> bytes:
    base = header.base
    tree = {
        "format": FORMAT,
        "version": VERSION,
        "id": header.id,
        "created": header.created,
        "kept": header.kept,
        "agents": [
            {"name": agent.name, "notes": agent.notes, "workspace": agent.workspace, "layout": agent.layout}
            for agent in header.agents
        ],
        "base": {"id": base.id, "file": base.file, "created": base.created} if base else None,
        "removedSettings": list(header.removed_settings),
        "leftOut": list(header.left_out),
    }
    return (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")


class ManifestWriter:
    """Writes the records of files into a file, and finally the line that closes the list."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.count = 0
        self.size = 0

    def add(self, record: FileRecord) -> None:
        tree = {
            "path": record.path,
            "size": record.size,
            "sha256": record.sha256,
            "mtimeNs": record.mtime_ns,
            "stored": record.stored,
        }
        self._write(tree)
        self.count += 1

    def close(self) -> None:
        self._write({"files": self.count, "sha256": self._hash.hexdigest()})

    def _write(self, tree: dict[str, Any]) -> None:
        line = json.dumps(tree, ensure_ascii=False).encode() + b"\n"
        self._hash.update(line)
        self._out.write(line)
        self.size += len(line)


# reading


def read_header(path: str, raw: bytes) -> ArchiveHeader:
    """Return the header of an archive. ``path`` is for messages."""
    tree = _parse(raw)
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise ArchiveRefused(f"{path}: it is not an archive of Kept.")
    version = tree.get("version")
    if version != VERSION:
        raise ArchiveRefused(f"{path}: it was made by a newer version of Kept.", hint="Upgrade Kept.")
    try:
        return ArchiveHeader(
            id=_text(tree["id"]),
            created=_time(tree["created"]),
            kept=_text(tree["kept"]),
            agents=tuple(map(_read_agent, _list(tree["agents"]))),
            base=None if tree["base"] is None else _read_base(tree["base"]),
            removed_settings=tuple(map(_text, _list(tree["removedSettings"]))),
            left_out=tuple(map(_text, _list(tree["leftOut"]))),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise ArchiveRefused(f"{path}: its header is malformed.") from exc


def _read_agent(tree: Any) -> ArchivedAgent:
    workspace = tree["workspace"]
    layout = _text(tree["layout"])
    if layout not in ("kept", "vault"):
        raise ValueError(layout)
    return ArchivedAgent(
        _text(tree["name"]), _text(tree["notes"]), None if workspace is None else _text(workspace), layout
    )


def _read_base(tree: Any) -> BaseReference:
    return BaseReference(_text(tree["id"]), _text(tree["file"]), _text(tree["created"]))


def read_manifest(path: str, blocks: Iterable[bytes]) -> dict[str, FileRecord]:
    """Return the records of an archive by the path of the file. ``path`` is for messages."""
    records: dict[str, FileRecord] = {}
    digest = hashlib.sha256()
    end: Any = None
    for line in _iter_lines(path, blocks):
        tree = _parse(line)
        if end is not None or not isinstance(tree, dict):
            raise _malformed(path)
        if "files" in tree:
            end = tree
            continue
        record = _read_record(path, tree)
        if record.path in records:
            raise ArchiveRefused(f"{path}: its manifest names '{show_path(record.path)}' twice.")
        records[record.path] = record
        digest.update(line + b"\n")
    if end is None or end.get("files") != len(records) or end.get("sha256") != digest.hexdigest():
        raise ArchiveDamaged(f"{path}: its manifest is damaged.")
    return records


def _iter_lines(path: str, blocks: Iterable[bytes]) -> Iterable[bytes]:
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > _MAX_LINE:
            raise _malformed(path)
    if rest:
        raise _malformed(path)


def _read_record(path: str, tree: dict[str, Any]) -> FileRecord:
    try:
        size, mtime_ns, sha256, stored = tree["size"], tree["mtimeNs"], _text(tree["sha256"]), tree["stored"]
        is_right = type(size) is type(mtime_ns) is int and 0 <= size < 1 << 50 and abs(mtime_ns) <= INT64_MAX
        if not is_right or type(stored) is not bool or len(bytes.fromhex(sha256)) != 32:
            raise ValueError(tree)
        return FileRecord(_text(tree["path"]), size, sha256, mtime_ns, stored)
    except (KeyError, TypeError, ValueError):
        raise _malformed(path) from None


def _malformed(path: str) -> ArchiveDamaged:
    return ArchiveDamaged(f"{path}: its manifest is damaged.")


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _time(value: Any) -> str:
    when = dt.datetime.fromisoformat(_text(value))
    if when.tzinfo is None or not is_time(when):
        raise ValueError(value)
    return _text(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
