"""`MemoryStorage`: documents and logs in memory, for tests. It forgets at the end, and has no habits of files.

A commit changes a copy of everything, which takes the place of the old one at its end.
"""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kept.base.values import frozen
from kept.errors import DocumentNotFound, LeaseLost, LockBusy, NoteTooLarge, StorageConflict
from kept.storage.contract import (
    ABSENT,
    START,
    Append,
    Blank,
    Change,
    Changed,
    Choose,
    Cursor,
    Document,
    DocumentInfo,
    Ends,
    Erase,
    Lease,
    LogInfo,
    LogLine,
    LogPosition,
    Move,
    OnRefused,
    Remove,
    Rewrite,
    Write,
    check_blank,
    check_changes,
    check_name,
    is_log,
    iter_chosen,
    version_conflict,
    version_of,
)


@frozen
class _Stored:
    """A document, which has bytes, or a log, which has lines."""

    number: int = 0
    """Number of the commit that changed it last."""
    time_ns: int = 0
    data: bytes = b""
    lines: tuple[LogLine, ...] = ()
    end: LogPosition = START
    """A log without lines has an end, too."""
    generation: int = 0

    @property
    def content(self) -> bytes:
        return self.data + b"".join(line.data + b"\n" for line in self.lines)

    def find(self, position: LogPosition) -> int:
        """Return the index of the first line from a position on."""
        return bisect_left(self.lines, position.offset, key=lambda line: line.start.offset)


_NOTHING = _Stored()
_Files = dict[str, _Stored]


class MemoryStorage:
    def __init__(self) -> None:
        self.documents, self.logs = MemoryDocuments({}), MemoryLogs({})
        self._changed = threading.Condition()
        self._leases: dict[str, Lease] = {}
        self._numbers = itertools.count(1)

    def commit(self, changes: Sequence[Change], *, lease: Lease | None = None) -> Ends:
        check_changes(changes)
        with self._changed:
            if lease is not None and self._leases.get(lease.name) is not lease:
                raise LeaseLost(f"Another process holds the lease '{lease.name}'.")
            files, number = {**self.documents.files, **self.logs.files}, next(self._numbers)
            for change in changes:
                if isinstance(change, Append | Blank | Rewrite):
                    _change_log(files, change, number)
                else:
                    _change_whole(files, change, number)
            self.documents.files = {path: files[path] for path in files if not is_log(path)}
            self.logs.files = {name: files[name] for name in files if is_log(name)}
            return {change.path: files[change.path].end for change in changes if isinstance(change, Append | Rewrite)}

    def exists(self) -> bool:
        return True

    def make(self, folder: str = "") -> None:
        pass

    def is_writable(self, folder: str = "") -> bool:
        return True

    @contextmanager
    def lease(self, name: str, *, wait_s: float) -> Iterator[Lease]:
        check_name(name)
        with self._changed:
            if not self._changed.wait_for(lambda: name not in self._leases, wait_s):
                raise LockBusy(f"Another process is holding the lease '{name}'.")
            lease = self._leases[name] = Lease(name, next(self._numbers))
        try:
            yield lease
        finally:
            with self._changed:
                del self._leases[name]
                self._changed.notify_all()


def _change_whole(files: _Files, change: Write | Move | Remove | Erase, number: int) -> None:
    """Write a document, or move or remove a document or a log."""
    _check_version(files, change.path, change.expected)
    if isinstance(change, Write):
        files[change.path] = _Stored(number, change.modified_ns or time.time_ns(), change.data)
        return
    before = files.pop(change.path, None)
    if isinstance(change, Move):
        if before is None:
            raise DocumentNotFound(f"{change.path}: there is no such document.")
        _check_version(files, change.to, ABSENT)
        files[change.to] = before


def _check_version(files: _Files, path: str, expected: str | None) -> None:
    version = version_of(files[path].content) if path in files else ABSENT
    if expected not in (None, version):
        raise version_conflict(path, version, expected or ABSENT)


def _change_log(files: _Files, change: Append | Blank | Rewrite, number: int) -> None:
    log = files.get(change.path, _NOTHING)
    if isinstance(change, Blank):
        at = log.find(change.position)
        if at == len(log.lines) or log.lines[at].start != change.position:
            raise StorageConflict(f"{change.path}: no line begins at this position.")
        line = replace(log.lines[at], data=check_blank(change.path, log.lines[at].data, change.line))
        lines, end = (*log.lines[:at], line, *log.lines[at + 1 :]), log.end
    else:
        if change.expected_end not in (None, log.end):
            raise StorageConflict(f"{change.path}: it has other lines at its end.")
        lines, end = () if isinstance(change, Rewrite) else log.lines, log.end
        for data in change.lines:
            start, end = end, LogPosition(end.offset + len(data) + 1)
            lines = (*lines, LogLine(data, start, end))
    # Several lines that one commit blanks count once.
    generation = log.generation + (not isinstance(change, Append) and log.number != number)
    files[change.path] = _Stored(number, time.time_ns(), lines=lines, end=end, generation=generation)


class MemoryDocuments:
    def __init__(self, files: _Files) -> None:
        self.files = files

    def list(
        self, prefix: str = "", *, choose: Choose | None = None, on_refused: OnRefused | None = None
    ) -> Iterator[DocumentInfo]:
        paths = [path for path in sorted(self.files) if path.startswith(prefix)]
        return map(self._info, iter_chosen(paths, prefix, choose))

    def find(self, path: str) -> DocumentInfo | None:
        check_name(path)
        return self._info(path) if path in self.files else None

    def _info(self, path: str) -> DocumentInfo:
        stored = self.files[path]
        return DocumentInfo(path, str(stored.number), len(stored.data), stored.time_ns, stored.number)

    def read(self, path: str, *, max_bytes: int | None = None) -> Document:
        info = self.find(path)
        if info is None:
            raise DocumentNotFound(f"{path}: there is no such document.")
        if max_bytes is not None and info.size > max_bytes:
            raise NoteTooLarge(f"{path}: {info.size:,} bytes, more than the limit of {max_bytes:,}.")
        data = self.files[path].data
        return Document(path, data, version_of(data), info)

    def is_same(self, path: str, other: str) -> bool:
        return path == other and path in self.files

    def changes(self, since: Cursor | None = None) -> tuple[Sequence[Changed], Cursor]:
        infos = {info.path: info for info in self.list()}
        seen = since.infos if isinstance(since, _SeenInfos) else {}
        changed = [Changed(path, info) for path, info in infos.items() if seen.get(path) != info]
        return changed + [Changed(path, None) for path in seen if path not in infos], _SeenInfos(infos)


@frozen
class _SeenInfos:
    infos: dict[str, DocumentInfo]


class MemoryLogs:
    def __init__(self, files: _Files) -> None:
        self.files = files

    def _get(self, name: str) -> _Stored:
        check_name(name)
        return self.files.get(name, _NOTHING)

    def read(self, name: str, start: LogPosition = START) -> Iterator[LogLine]:
        log = self._get(name)
        yield from log.lines[log.find(start) :]

    def read_back(
        self, name: str, end: LogPosition | None = None, *, having: Sequence[bytes] = ()
    ) -> Iterator[LogLine]:
        log = self._get(name)
        for line in reversed(log.lines[: None if end is None else log.find(end)]):
            if not having or any(text in line.data for text in having):
                yield line

    def list(self, prefix: str = "") -> Iterator[LogInfo]:
        return (self._info(name) for name in sorted(self.files) if name.startswith(prefix))

    def find(self, name: str) -> LogInfo | None:
        check_name(name)
        return self._info(name) if name in self.files else None

    def _info(self, name: str) -> LogInfo:
        log = self.files[name]
        return LogInfo(name, str(log.number), len(log.content), log.time_ns, log.generation)

    def end(self, name: str) -> LogPosition:
        return self._get(name).end
