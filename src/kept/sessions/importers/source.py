"""Files of another program: records line by line, or the conversations in an export of a chat service.

An export is a zip file as it was downloaded, the folder it was unpacked to, or one JSON file. Nothing is unpacked to
disk, and an archive that could not come from a service is refused before anything of it is read. Files are only read.
Nothing in them raises: problems are collected.
"""

from __future__ import annotations

import codecs
import datetime as dt
import hashlib
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, BinaryIO

from kept.base.limits import is_deep, strict_json, utf8_path
from kept.base.records import Problem
from kept.base.values import frozen

MAX_LINE_BYTES = 64_000_000
MAX_DEPTH = 100
_PROBLEMS_NAMED = 20
_BOM = b"\xef\xbb\xbf"


@frozen
class Record:
    line: int
    """Counted from 1. For a row of a database, its number."""
    tree: dict[str, Any]
    digest: str
    """Hash of its place and its bytes: an id for a record that has none."""
    place: str
    """File and line: where bytes are that are not imported."""


class Source:
    """One file. Its records can be read once; after that, its problems are known."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.records_read = 0
        self.damaged_lines = 0
        self.is_unreadable = False
        self.is_whole = True
        """Whether all records of its sessions could be read; otherwise none of them is imported."""
        self._problems: list[Problem] = []
        self._unnamed = 0

    @property
    def shown_path(self) -> str:
        """Path as valid text, whatever bytes the name has."""
        return utf8_path(self.path)

    @property
    def name(self) -> str:
        """Id of the session as the file's name has it: all of it, or what follows an underscore."""
        stem = os.path.basename(self.path).partition(".jsonl")[0]
        return stem.partition("_")[2] or stem or "session"

    @property
    def written(self) -> dt.datetime:
        """When the file was last written: the time of records that have none."""
        seconds = os.path.getmtime(self.path) if os.path.exists(self.path) else 0.0
        return dt.datetime.fromtimestamp(seconds, dt.UTC)

    @property
    def problems(self) -> tuple[Problem, ...]:
        if not self._unnamed:
            return tuple(self._problems)
        return (*self._problems, Problem(self.shown_path, f"has {self._unnamed:,} more problems of this kind"))

    def report(self, reason: str, *, line: int | None = None) -> None:
        if len(self._problems) >= _PROBLEMS_NAMED:
            self._unnamed += 1
        else:
            self._problems.append(Problem(f"{self.shown_path}:{line}" if line else self.shown_path, reason))

    def _report_damaged(self, reason: str, line: int) -> None:
        self.damaged_lines += 1
        self.report(f"the line is damaged: {reason}", line=line)

    @property
    def is_foreign(self) -> bool:
        """True if there are lines and none of them is a record."""
        return self.damaged_lines > 0 and not self.records_read

    def records(self) -> Iterator[Record]:
        try:
            with open_regular(self.path) as file:
                for number, raw in self._lines(file):
                    yield from self.parse(raw, number)
        except OSError as exc:
            self.is_unreadable = True
            self.report(f"cannot be read ({exc.strerror})")
            return
        if self.is_foreign:
            self._problems, self._unnamed = [Problem(self.shown_path, "is not JSONL: no line of it is a record")], 0

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                self.report(f"the line is longer than {MAX_LINE_BYTES:,} bytes and is left out", line=number)
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE_BYTES)
                continue
            raw = (raw.removeprefix(_BOM) if number == 1 else raw).strip()
            if raw:
                yield number, raw

    def parse(self, raw: bytes, number: int) -> Iterator[Record]:
        """Yield the record of a line, if it is one."""
        try:
            tree = strict_json.decode(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            self._report_damaged("it is not JSON", number)
            return
        if not isinstance(tree, dict):
            self._report_damaged("it is not an object", number)
        elif is_deep(tree, MAX_DEPTH):
            self.report(f"the line is nested more than {MAX_DEPTH} deep and is left out", line=number)
        else:
            self.records_read += 1
            yield Record(number, tree, fingerprint(b"%d.0:" % number + raw), f"{self.shown_path}#L{number}")


def open_regular(path: str) -> BinaryIO:
    """Open a regular file. A pipe or a device of that name would never end."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "not a file")
    return os.fdopen(handle, "rb", buffering=1 << 16)


def fingerprint(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def load_json(raw: bytes) -> Any:
    """Parse a JSON document. Return None if it is damaged or nested too deeply."""
    try:
        tree = strict_json.decode(raw.removeprefix(_BOM).decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return None if is_deep(tree, MAX_DEPTH) else tree


_PART_BYTES = 1 << 20
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(?:[-_ ]?\(?\d+\)?)?\.json|(?:.*/)?conversations/[^/]+\.json")
"""`conversations.json`, or numbered parts of it, as ChatGPT splits large exports, or a file for each conversation."""
_SEPARATORS = re.compile(r"[ \t\r\n,]*")
_MAX_RATIO = 150
_MAX_SIZE = 20_000_000_000
_SMALL_SIZE = 50_000_000
"""A file that unpacks to less is harmless, whatever its ratio."""
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What the library raises for a zip file that is damaged, encrypted or packed in a way that it does not know."""


class ExportRefused(Exception):
    """An export that is not read, or not to its end. The message is the reason, without the path."""


def is_conversations_name(path: str) -> bool:
    return _CONVERSATIONS.fullmatch(path.replace(os.sep, "/")) is not None


def find_members(path: str) -> Sequence[str | None]:
    """Return the names of the files with conversations in a zip file, or None for a JSON file itself. Raise
    ExportRefused or OSError."""
    with open_regular(path) as file:
        if file.read(4) not in _ZIP_STARTS:
            return [None]
        try:
            members = zipfile.ZipFile(file).infolist()
        except ZIP_ERRORS as exc:
            raise ExportRefused(f"is a damaged zip file ({exc})") from None
    members = [member for member in members if not member.is_dir()]
    members = [member for member in members if is_conversations_name(member.filename.replace("\\", "/"))]
    for member in members:
        if member.flag_bits & 0x1:
            raise ExportRefused("has a password; unpack it and name the folder")
        # zipfile never returns more than `file_size` bytes, so the size that the archive states can be relied on.
        if member.file_size > _SMALL_SIZE and member.file_size > _MAX_RATIO * max(1, member.compress_size):
            ratio = f"is packed {_MAX_RATIO} times smaller than its content"
            raise ExportRefused(f"{ratio}, like a zip bomb, so it is not read")
    if sum(member.file_size for member in members) > _MAX_SIZE:
        raise ExportRefused(f"would unpack to more than {_MAX_SIZE // 10**9} GB, so it is not read")
    return sorted(member.filename for member in members)


class ExportSource(Source):
    """Conversations of one file of an export, as records. The number of a record is that of its conversation."""

    def __init__(self, path: str, member: str | None) -> None:
        super().__init__(path)
        self.member = member
        """Name inside of the zip file."""

    def records(self) -> Iterator[Record]:
        try:
            with open_regular(self.path) as outer, ExitStack() as stack:
                file: IO[bytes] = outer
                if self.member is not None:
                    file = stack.enter_context(stack.enter_context(zipfile.ZipFile(outer)).open(self.member))
                elements = iter_elements(file.read, max_chars=MAX_LINE_BYTES)
                for number, (tree, text) in enumerate(elements, 1):
                    yield from self._conversations(tree, text, number)
        except ExportRefused as exc:
            self._report_part(str(exc))
        except OSError as exc:
            self._report_part(f"cannot be read ({exc.strerror or exc})")
        except ZIP_ERRORS as exc:
            self._report_part(f"is damaged ({exc})")

    def _conversations(self, tree: Any, text: str, number: int) -> Iterator[Record]:
        if not isinstance(tree, dict) or is_deep(tree, MAX_DEPTH):
            self.damaged_lines += 1
            self._report_part(f"conversation {number} cannot be read: it is not a JSON object, or nested too deeply")
            return
        inner = tree.get("conversations")
        for conversation in inner if isinstance(inner, list) else [tree]:
            if isinstance(conversation, dict):
                self.records_read += 1
                digest = fingerprint(text.encode("utf-8"))
                yield Record(number, conversation, digest, f"{self.shown_path}#L{number}")

    def _report_part(self, reason: str) -> None:
        self.is_unreadable = True
        name = f"{utf8_path(self.member)}: " if self.member else ""
        self.report(f"{name}{reason}")


def iter_elements(read: Callable[[int], bytes], *, max_chars: int) -> Iterator[tuple[Any, str]]:
    """Yield each element of a top-level array, or the one top-level object, with its text.

    Only what is being read is in memory: while an element is not complete, twice as much is read. Raise ExportRefused
    after the last element that could be read.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    text, at, size = "", 0, _PART_BYTES
    is_array: bool | None = None
    while raw := read(size):
        text, at = text[at:] + decoder.decode(raw), 0
        if is_array is None and (text := text.lstrip()):
            if text[0] not in "[{":
                raise ExportRefused("is not JSON")
            is_array = text[0] == "["
            at = int(is_array)
        while (at := _SEPARATORS.match(text, at).end()) < len(text):  # type: ignore[union-attr]
            if is_array and text[at] == "]":
                return
            try:
                tree, end = strict_json.raw_decode(text, at)
            except (ValueError, RecursionError):
                size *= 2
                break
            yield tree, text[at:end]
            if not is_array:
                return
            at, size = end, _PART_BYTES
        if len(text) - at > max_chars:
            raise ExportRefused(f"has a conversation that is damaged or of more than {max_chars:,} characters")
    raise ExportRefused("is empty" if is_array is None else "ends in the middle of a conversation, or is damaged")
