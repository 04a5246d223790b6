"""A file of records of another program. It is only read. Nothing in it raises: problems are collected."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from kept.limits import is_deep, strict_json, utf8_path
from kept.records import Problem
from kept.values import frozen

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


class Source:
    """One file. Its records can be read once; after that, its problems are known."""

    def __init__(self, path: str, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.path = path
        self.max_line_bytes = max_line_bytes
        self.records_read = 0
        self.damaged_lines = 0
        self.is_unreadable = False
        self._problems: list[Problem] = []
        self._unnamed = 0

    @property
    def shown_path(self) -> str:
        """Path as valid text, whatever bytes the name has."""
        return utf8_path(self.path)

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
            self._problems, self._unnamed = [Problem(self.shown_path, _describe_foreign(self.path))], 0

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        number = 0
        while raw := file.readline(self.max_line_bytes + 1):
            number += 1
            if len(raw) > self.max_line_bytes:
                self.report(f"the line is longer than {self.max_line_bytes:,} bytes and is left out", line=number)
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(self.max_line_bytes)
                continue
            raw = (raw.removeprefix(_BOM) if number == 1 else raw).strip()
            if raw:
                yield number, raw

    def parse(self, raw: bytes, number: int) -> Iterator[Record]:
        """Yield the record of a line, or several if a line break was lost between them."""
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self._report_damaged("it is not UTF-8", number)
            return
        trees, rest = _decode_all(text)
        if rest is not None:
            readable = f"; {len(trees)} before the damage could be read" if trees else ""
            self._report_damaged(f"{rest}{readable}", number)
        elif len(trees) > 1:
            self._report_damaged(f"there are {len(trees)} records in it; all were read", number)
        for index, tree in enumerate(trees):
            if not isinstance(tree, dict):
                self._report_damaged("it is not an object", number)
            elif is_deep(tree, MAX_DEPTH):
                self.report(f"the line is nested more than {MAX_DEPTH} deep and is left out", line=number)
            else:
                self.records_read += 1
                yield Record(number, tree, fingerprint(b"%d.%d:" % (number, index) + raw))


def open_regular(path: str) -> BinaryIO:
    """Open a regular file. A pipe or a device of that name would never end."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "not a file")
    return os.fdopen(handle, "rb", buffering=1 << 16)


def fingerprint(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def file_size(path: str) -> int:
    """Return the size of a file, or 0 if it cannot be read."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def load_json(raw: bytes) -> Any:
    """Parse a JSON document. Return None if it is damaged or nested too deeply."""
    try:
        tree = strict_json.decode(raw.removeprefix(_BOM).decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return None if is_deep(tree, MAX_DEPTH) else tree


def _decode_all(text: str) -> tuple[list[Any], str | None]:
    """Return every JSON value in a line, and what is wrong with the rest of it."""
    trees: list[Any] = []
    at = 0
    while at < len(text):
        try:
            tree, at = strict_json.raw_decode(text, at)
        except (ValueError, RecursionError):
            return trees, "it is not JSON" if not trees else "what follows in it is not JSON"
        trees.append(tree)
        while at < len(text) and text[at].isspace():
            at += 1
    return trees, None


def _describe_foreign(path: str) -> str:
    try:
        with open_regular(path) as file:
            whole = file.read(MAX_LINE_BYTES)
    except OSError:
        return "cannot be read"
    if load_json(whole) is not None:
        return "is not JSONL but one JSON document, of another program"
    return "is not JSONL: no line of it is a record"
