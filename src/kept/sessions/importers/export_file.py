"""Exports of chat services: a zip file as it was downloaded, the folder it was unpacked to, or one JSON file.

Nothing is unpacked to disk. An archive that could not come from a service is refused before anything of it is read.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from kept.limits import utf8_path
from kept.sessions.importers.json_array import DocumentDamaged, iter_elements
from kept.sessions.importers.source import (
    MAX_LINE_BYTES,
    Record,
    Source,
    fingerprint,
    load_json,
    open_regular,
)
from kept.values import frozen

_PART_BYTES = 1 << 20
_ZIP_START = b"PK\x03\x04"
_EMPTY_ZIP_START = b"PK\x05\x06"
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(?:[-_ ]?\(?\d+\)?)?\.json|(?:.*/)?conversations/[^/]+\.json")
"""`conversations.json`, or numbered parts of it, as ChatGPT splits large exports, or a file for each conversation."""
_MAX_RATIO = 150
_MAX_SIZE = 20_000_000_000
_SMALL_SIZE = 50_000_000
"""A file that unpacks to less is harmless, whatever its ratio."""
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What the library raises for a zip file that is damaged, encrypted or packed in a way that it does not know."""


class ExportRefused(Exception):
    """An export that is not read. The message is the reason, without the path: the caller knows that."""


@frozen
class ExportPart:
    """One JSON file with conversations: in a folder, or in a zip file."""

    path: str
    member: str | None
    """Name inside of the zip file."""
    size: int
    """Size in bytes, unpacked."""

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        with open_regular(self.path) as file:
            if self.member is None:
                yield file
                return
            with zipfile.ZipFile(file) as archive, archive.open(self.member) as member:
                yield member


def is_zip(path: str) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(4) in (_ZIP_START, _EMPTY_ZIP_START)
    except OSError:
        return False


def is_conversations_name(path: str) -> bool:
    return _CONVERSATIONS.fullmatch(path.replace(os.sep, "/")) is not None


def find_parts(path: str) -> list[ExportPart]:
    """Return the files with conversations in a zip file, or a JSON file itself. Raise ExportRefused or OSError."""
    if not is_zip(path):
        return [ExportPart(path, None, os.path.getsize(path))]
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except ZIP_ERRORS as exc:
        raise ExportRefused(f"is a damaged zip file ({exc})") from None
    parts = []
    for member in members:
        _refuse_hostile_name(member)
        if not member.is_dir() and is_conversations_name(member.filename.replace("\\", "/")):
            _refuse_unreadable(member)
            parts.append(ExportPart(path, member.filename, member.file_size))
    if sum(part.size for part in parts) > _MAX_SIZE:
        raise ExportRefused(f"would unpack to more than {_MAX_SIZE // 10**9} GB, so it is not read")
    return sorted(parts, key=lambda part: part.member or "")


def _refuse_hostile_name(member: zipfile.ZipInfo) -> None:
    """Refuse names that lead out of the archive. They are never used as paths, but no service writes such names."""
    name = member.orig_filename.replace("\\", "/")
    is_absolute = name.startswith("/") or name[1:2] == ":"
    if is_absolute or ".." in name.split("/") or "\0" in name:
        raise ExportRefused(f"has a file whose name leads out of it ({name[:60]!a}), so it is not read")


def _refuse_unreadable(member: zipfile.ZipInfo) -> None:
    if member.flag_bits & 0x1:
        raise ExportRefused("has a password; unpack it and name the folder")
    # zipfile never returns more than `file_size` bytes, so the size that the archive states can be relied on.
    if member.file_size > _SMALL_SIZE and member.file_size > _MAX_RATIO * max(1, member.compress_size):
        raise ExportRefused(
            f"is packed {_MAX_RATIO} times smaller than its content, like a zip bomb, so it is not read"
        )


class ExportSource(Source):
    """Conversations of one part of an export, as records. The number of a record is that of its conversation."""

    def __init__(
        self, part: ExportPart, *, max_bytes: int = MAX_LINE_BYTES, on_read: Callable[[int], None] | None = None
    ) -> None:
        super().__init__(part.path, max_line_bytes=max_bytes)
        self.part = part
        self._on_read = on_read

    def records(self) -> Iterator[Record]:
        try:
            with self.part.open() as file:
                for number, raw in enumerate(iter_elements(lambda: self._read(file), max_bytes=self.max_line_bytes), 1):
                    yield from self._conversations(raw, number)
        except DocumentDamaged as exc:
            self._report_part(str(exc))
        except OSError as exc:
            self._report_part(f"cannot be read ({exc.strerror or exc})")
        except ZIP_ERRORS as exc:
            self._report_part(f"is damaged ({exc})")

    def _read(self, file: IO[bytes]) -> bytes:
        part = file.read(_PART_BYTES)
        if self._on_read is not None:
            self._on_read(len(part))
        return part

    def _conversations(self, raw: bytes | None, number: int) -> Iterator[Record]:
        if raw is None:
            self._report_part(f"conversation {number} is larger than {self.max_line_bytes:,} bytes and is left out")
            return
        tree = load_json(raw)
        if not isinstance(tree, dict):
            self.damaged_lines += 1
            self._report_part(f"conversation {number} cannot be read: it is not a JSON object")
            return
        inner = tree.get("conversations")
        for conversation in inner if isinstance(inner, list) else [tree]:
            if isinstance(conversation, dict):
                self.records_read += 1
                yield Record(number, conversation, fingerprint(raw))

    def _report_part(self, reason: str) -> None:
        self.is_unreadable = True
        name = f"{utf8_path(self.part.member)}: " if self.part.member else ""
        self.report(f"{name}{reason}")
