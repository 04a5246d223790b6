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
from typing import Any

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
    check_version,
    is_log,
    iter_chosen,
    version_of,
)


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
            documents, logs = MemoryDocuments(dict(self.documents.files)), MemoryLogs(dict(self.logs.files))
            stamp = next(self._numbers), time.time_ns()
            ends: dict[str, LogPosition] = {}
            for change in changes:
                if isinstance(change, Append | Blank | Rewrite):
                    ends |= logs.change(change, stamp)
                elif isinstance(change, Write):
                    documents.write(change, stamp)
                else:
                    _take_away(logs if is_log(change.path) else documents, change)
            self.documents.files, self.logs.files = documents.files, logs.files
            return ends

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


def _take_away(store: MemoryDocuments | MemoryLogs, change: Move | Remove | Erase) -> None:
    """Move or remove a document or a log."""
    check_version(change.path, store.version(change.path), change.expected)
    if not isinstance(change, Move):
        store.files.pop(change.path, None)
        return
    if change.path not in store.files:
        raise DocumentNotFound(f"{change.path}: there is no such document.")
    check_version(change.to, store.version(change.to), ABSENT)
    files: dict[str, Any] = store.files
    files[change.to] = files.pop(change.path)


class MemoryDocuments:
    def __init__(self, files: dict[str, tuple[bytes, int, int]]) -> None:
        self.files = files
        """Bytes of each document, the number of the commit that wrote them, and the time."""

    def list(
        self, prefix: str = "", *, choose: Choose | None = None, on_refused: OnRefused | None = None
    ) -> Iterator[DocumentInfo]:
        paths = [path for path in sorted(self.files) if path.startswith(prefix)]
        return map(self._info, iter_chosen(paths, prefix, choose))

    def find(self, path: str) -> DocumentInfo | None:
        check_name(path)
        return self._info(path) if path in self.files else None

    def _info(self, path: str) -> DocumentInfo:
        data, number, time_ns = self.files[path]
        return DocumentInfo(path, str(number), len(data), time_ns, number)

    def read(self, path: str, *, max_bytes: int | None = None) -> Document:
        info = self.find(path)
        if info is None:
            raise DocumentNotFound(f"{path}: there is no such document.")
        if max_bytes is not None and info.size > max_bytes:
            raise NoteTooLarge(f"{path}: {info.size:,} bytes, more than the limit of {max_bytes:,}.")
        return Document(path, self.files[path][0], self.version(path), info)

    def is_same(self, path: str, other: str) -> bool:
        return path == other and path in self.files

    def changes(self, since: Cursor | None = None) -> tuple[Sequence[Changed], Cursor]:
        infos = {info.path: info for info in self.list()}
        seen = since.infos if isinstance(since, _SeenInfos) else {}
        changed = [Changed(path, info) for path, info in infos.items() if seen.get(path) != info]
        return changed + [Changed(path, None) for path in seen if path not in infos], _SeenInfos(infos)

    def version(self, path: str) -> str:
        return version_of(self.files[path][0]) if path in self.files else ABSENT

    def write(self, change: Write, stamp: tuple[int, int]) -> None:
        check_version(change.path, self.version(change.path), change.expected)
        self.files[change.path] = change.data, stamp[0], change.modified_ns or stamp[1]


@frozen
class _SeenInfos:
    infos: dict[str, DocumentInfo]


@frozen
class _MemoryLog:
    lines: tuple[LogLine, ...] = ()
    end: LogPosition = START
    """A log without lines has an end, too."""
    stamp: tuple[int, int] = (0, 0)
    generation: int = 0

    def find(self, position: LogPosition) -> int:
        """Return the index of the first line from a position on."""
        return bisect_left(self.lines, position.offset, key=lambda line: line.start.offset)


class MemoryLogs:
    def __init__(self, files: dict[str, _MemoryLog]) -> None:
        self.files = files

    def _get(self, name: str) -> _MemoryLog:
        check_name(name)
        return self.files.get(name, _MemoryLog())

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
        size = sum(len(line.data) + 1 for line in log.lines)
        return LogInfo(name, str(log.stamp[0]), size, log.stamp[1], log.generation)

    def end(self, name: str) -> LogPosition:
        return self._get(name).end

    def version(self, name: str) -> str:
        return (
            version_of(b"".join(line.data + b"\n" for line in self._get(name).lines)) if name in self.files else ABSENT
        )

    def change(self, change: Append | Blank | Rewrite, stamp: tuple[int, int]) -> dict[str, LogPosition]:
        """Return the new end of a log that was appended to or rewritten."""
        log = self._get(change.path)
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
        is_counted = not isinstance(change, Append) and log.stamp != stamp
        self.files[change.path] = _MemoryLog(lines, end, stamp, log.generation + is_counted)
        return {} if isinstance(change, Blank) else {change.path: end}
