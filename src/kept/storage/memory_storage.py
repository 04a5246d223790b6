"""`MemoryStorage`: documents and logs in memory, for tests. It behaves as a storage must, and forgets at the end."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left
from collections import Counter
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
    Erase,
    Extend,
    Lease,
    LogInfo,
    LogLine,
    LogPosition,
    Move,
    OnRefused,
    Receipt,
    Remove,
    Rewrite,
    Write,
    check_blank,
    check_changes,
    check_name,
    check_version,
    is_log,
    targets_of,
    version_of,
)

_Stamp = tuple[int, int]
"""Number of the commit that wrote something, and the time."""
_Lines = list[LogLine]


class MemoryStorage:
    def __init__(self) -> None:
        self.documents = MemoryDocuments()
        self.logs = MemoryLogs()
        self._changed = threading.Condition()
        self._receipts: dict[str, Receipt] = {}
        self._leases: dict[str, tuple[int, bool]] = {}
        self._numbers = itertools.count(1)
        self._subscriptions: list[MemorySubscription] = []

    def commit(self, changes: Sequence[Change], *, lease: Lease | None = None, commit_id: str = "") -> Receipt:
        check_changes(changes)
        with self._changed:
            if lease is not None and self._leases.get(lease.name) != (lease.number, True):
                raise LeaseLost(f"Another process holds the lease '{lease.name}'.")
            if commit_id in self._receipts:
                return self._receipts[commit_id]
            documents, logs = self.documents.copy(), self.logs.copy()
            stamp = next(self._numbers), time.time_ns()
            versions: dict[str, str] = {}
            ends: dict[str, LogPosition] = {}
            for change in changes:
                match change:
                    case Append() | Blank() | Rewrite():
                        ends |= logs.change(change, stamp)
                    case Move() | Remove() | Erase() if is_log(change.path):
                        versions |= logs.change_whole(change, stamp)
                    case _:
                        versions |= documents.change(change, stamp)
            self.documents.files, self.logs.files = documents.files, logs.files
            self.logs.generations.update({c.log for c in changes if isinstance(c, Blank | Rewrite)})
            receipt = Receipt(versions, ends)
            if commit_id:
                self._receipts[commit_id] = receipt
            for subscription in self._subscriptions:
                subscription.report({name for change in changes for name in targets_of(change)})
            self._changed.notify_all()
            return receipt

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
            if not self._changed.wait_for(lambda: not self._leases.get(name, (0, False))[1], wait_s):
                raise LockBusy(f"Another process is holding the lease '{name}'.")
            lease = Lease(name, self._leases.get(name, (0, False))[0] + 1)
            self._leases[name] = lease.number, True
        try:
            yield lease
        finally:
            with self._changed:
                if self._leases[name] == (lease.number, True):
                    self._leases[name] = lease.number, False
                self._changed.notify_all()

    def take_over(self, name: str) -> None:
        """End a lease whose holder does not answer any more, as a server's clock would."""
        with self._changed:
            self._leases[name] = self._leases[name][0], False
            self._changed.notify_all()

    def watch(self, prefix: str = "") -> MemorySubscription:
        subscription = MemorySubscription(prefix, self._changed)
        self._subscriptions.append(subscription)
        return subscription


class MemorySubscription:
    def __init__(self, prefix: str, changed: threading.Condition) -> None:
        self._prefix, self._changed = prefix, changed
        self._names: set[str] = set()

    def __enter__(self) -> MemorySubscription:
        return self

    def __exit__(self, *_: Any) -> None:
        self._prefix = "\0"

    def report(self, names: set[str]) -> None:
        self._names |= {name for name in names if name.startswith(self._prefix)}

    def wait(self, timeout_s: float) -> frozenset[str]:
        with self._changed:
            self._changed.wait_for(lambda: self._names, timeout_s)
            names, self._names = self._names, set()
            return frozenset(names)


@frozen
class _SeenCommit:
    states: dict[str, str]


class MemoryDocuments:
    def __init__(self, files: dict[str, tuple[bytes, _Stamp]] | None = None) -> None:
        self.files = files or {}

    def copy(self) -> MemoryDocuments:
        return MemoryDocuments(dict(self.files))

    def list(
        self, prefix: str = "", *, choose: Choose | None = None, on_refused: OnRefused | None = None
    ) -> Iterator[DocumentInfo]:
        chosen: dict[str, set[str]] = {}
        for path in sorted(self.files):
            if path.startswith(prefix) and (choose is None or self._is_chosen(path, prefix, choose, chosen)):
                yield self._info(path)

    def _is_chosen(self, path: str, prefix: str, choose: Choose, chosen: dict[str, set[str]]) -> bool:
        """Return whether a path and the folders that it is in are chosen. ``chosen`` has those of folders asked for."""
        start = prefix.rpartition("/")[0]
        folder = start
        for name in path[len(start) :].strip("/").split("/"):
            if folder not in chosen:
                lead = f"{folder}/" if folder else ""
                below = (other[len(lead) :].partition("/") for other in self.files if other.startswith(lead))
                chosen[folder] = set(choose(folder, {first: bool(slash) for first, slash, _ in below}))
            if name not in chosen[folder]:
                return False
            folder = f"{folder}/{name}" if folder else name
        return True

    def _info(self, path: str) -> DocumentInfo:
        data, (number, time_ns) = self.files[path]
        return DocumentInfo(path, str(number), len(data), time_ns, number)

    def find(self, path: str) -> DocumentInfo | None:
        check_name(path)
        return self._info(path) if path in self.files else None

    def read(self, path: str, *, max_bytes: int | None = None) -> Document:
        info = self.find(path)
        if info is None:
            raise DocumentNotFound(f"{path}: there is no such document.")
        if max_bytes is not None and info.size > max_bytes:
            raise NoteTooLarge(f"{path}: {info.size:,} bytes, more than the limit of {max_bytes:,}.")
        return Document(path, self.files[path][0], self._version(path), info)

    def is_same(self, path: str, other: str) -> bool:
        return path == other and path in self.files

    def changes(self, since: Cursor | None = None) -> tuple[Sequence[Changed], Cursor]:
        seen = since.states if isinstance(since, _SeenCommit) else {}
        states = {info.path: info.state for info in self.list()}
        changed = [Changed(info.path, info) for info in self.list() if seen.get(info.path) != info.state]
        return changed + [Changed(path, None) for path in seen if path not in states], _SeenCommit(states)

    def _version(self, path: str) -> str:
        return version_of(self.files[path][0]) if path in self.files else ABSENT

    def change(self, change: Change, stamp: _Stamp) -> dict[str, str]:
        """Return the new version of each document that changed."""
        match change:
            case Write(path, data, expected):
                check_version(path, self._version(path), expected)
                self.files[path] = data, (stamp[0], change.modified_ns or stamp[1])
            case Extend(path, data):
                self.files[path] = self.files.get(path, (b"",))[0] + data, stamp
            case Move(path, to, expected):
                check_version(path, self._version(path), expected)
                check_version(to, self._version(to), ABSENT)
                self.files[to] = self.read(path).data, stamp
                del self.files[path]
                return {path: ABSENT, to: self._version(to)}
            case Remove(path) | Erase(path):
                check_version(path, self._version(path), change.expected)
                self.files.pop(path, None)
            case _:
                raise TypeError(change)
        return {path: self._version(path)}


class MemoryLogs:
    def __init__(self, files: dict[str, tuple[list[LogLine], LogPosition, _Stamp]] | None = None) -> None:
        self.files = files or {}
        """Lines, end and stamp of each log. A log without lines has an end, too."""
        self.generations: Counter[str] = Counter()

    def copy(self) -> MemoryLogs:
        return MemoryLogs({name: (list(lines), end, stamp) for name, (lines, end, stamp) in self.files.items()})

    def read(self, name: str, start: LogPosition = START) -> Iterator[LogLine]:
        check_name(name)
        lines = self._get(name)[0]
        yield from lines[_find(lines, start) :]

    def read_back(
        self, name: str, end: LogPosition | None = None, *, having: Sequence[bytes] = ()
    ) -> Iterator[LogLine]:
        check_name(name)
        lines = self._get(name)[0]
        for line in reversed(lines if end is None else lines[: _find(lines, end)]):
            if not having or any(text in line.data for text in having):
                yield line

    def list(self, prefix: str = "") -> Iterator[LogInfo]:
        for name in sorted(self.files):
            if name.startswith(prefix) and (info := self.find(name)):
                yield info

    def find(self, name: str) -> LogInfo | None:
        check_name(name)
        if name not in self.files:
            return None
        lines, _, stamp = self.files[name]
        size = sum(len(line.data) + 1 for line in lines)
        return LogInfo(name, str(stamp[0]), size, stamp[1], self.generations[name])

    def end(self, name: str) -> LogPosition:
        check_name(name)
        return self._get(name)[1]

    def _get(self, name: str) -> tuple[_Lines, LogPosition]:
        lines, end, _ = self.files.get(name, ([], START, (0, 0)))
        return lines, end

    def change(self, change: Append | Blank | Rewrite, stamp: _Stamp) -> dict[str, LogPosition]:
        """Return the new end of a log that was appended to."""
        lines, end = self._get(change.log)
        match change:
            case Append(name, added, expected_end) | Rewrite(name, added, expected_end):
                if expected_end is not None and expected_end != end:
                    raise StorageConflict(f"{name}: it has other lines at its end.")
                if isinstance(change, Rewrite):
                    lines.clear()
                for line in added:
                    start, end = end, LogPosition(end.offset + len(line) + 1)
                    lines.append(LogLine(line, start, end))
                self.files[name] = lines, end, stamp
                return {name: end}
            case Blank(name, position, line):
                at = _find(lines, position)
                if at == len(lines) or lines[at].start != position:
                    raise StorageConflict(f"{name}: no line begins at this position.")
                lines[at] = replace(lines[at], data=check_blank(name, lines[at].data, line))
        self.files[change.log] = lines, end, stamp
        return {}

    def change_whole(self, change: Move | Remove | Erase, stamp: _Stamp) -> dict[str, str]:
        """Rename or remove a log. Return its versions."""
        version = self._version(change.path)
        check_version(change.path, version, change.expected)
        if not isinstance(change, Move):
            self.files.pop(change.path, None)
            return {change.path: ABSENT}
        if not version:
            raise DocumentNotFound(f"{change.path}: there is no such log.")
        check_version(change.to, self._version(change.to), ABSENT)
        lines, end, _ = self.files.pop(change.path)
        self.files[change.to] = lines, end, stamp
        return {change.path: ABSENT, change.to: version}

    def _version(self, name: str) -> str:
        if name not in self.files:
            return ABSENT
        return version_of(b"".join(line.data + b"\n" for line in self.files[name][0]))


def _find(lines: Sequence[LogLine], position: LogPosition) -> int:
    return bisect_left(lines, position.offset, key=lambda line: line.start.offset)
