"""What a storage does: values, changes, and the protocol.

- A document has a path, bytes, and a version: the SHA-256 of its bytes. A log has a name, with .jsonl in it, and lines.
- `Storage.commit` is the only way to change anything. It makes all its changes or none, also if the process is killed
  on the way: whoever reads or commits next finishes it. What it returned from is on disk.
- Other programs may change documents at any time, never logs. So a change of a document can name the version that it
  expects. If another program writes in the very moment of a commit, one of the two texts wins.
- A position in a log stays valid when lines before or after it are blanked. After a rewrite it means the first line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from kept.base.digest import digest_bytes
from kept.base.limits import printable_line
from kept.base.values import frozen
from kept.errors import PathRefused, StorageConflict, UsageError, WorkspaceError

ABSENT = ""
"""The version of a document that does not exist."""
LOG_MARK = ".jsonl"
"""Part of the name of every log. It need not be the end: a log that was put aside keeps its kind."""
OWN_FOLDER = ".kept/storage"
"""Folder of the storage itself. Nothing in it is a document."""
MAX_NAME_BYTES, MAX_PATH_BYTES = 255, 3_000
_PATIENCE_S = 30.0
T = TypeVar("T")
P = ParamSpec("P")


# values


class DocumentInfo(NamedTuple):
    """A document in a list. A tuple, because a scan makes one for every document."""

    path: str
    state: str
    """Another one whenever the document changes. Cheap to tell, and not comparable with a version."""
    size: int
    modified_ns: int
    changed_ns: int = 0
    """Time of the last change, as the storage itself tells it: nobody can set it back."""


@frozen
class Document:
    path: str
    data: bytes
    version: str
    info: DocumentInfo
    """Its state when these bytes were read."""


@frozen
class Changed:
    """A document that was written or removed since a cursor."""

    path: str
    info: DocumentInfo | None
    """None if it is gone."""


class Cursor(Protocol):
    """Tells which changes a reader has seen. Only the storage that returned it can read it."""


@frozen
class LogPosition:
    """Place between two lines of a log. Only the storage that returned it can read it."""

    offset: int


START = LogPosition(0)


@frozen
class LogLine:
    data: bytes
    """Without its line break."""
    start: LogPosition
    end: LogPosition


@frozen
class LogInfo:
    """A log in a list."""

    name: str
    state: str
    """Another one whenever the log changes."""
    size: int
    modified_ns: int
    generation: int = 0
    """How often lines of it were blanked or all rewritten. While it is the same, the log has only grown."""
    changed_ns: int = 0
    """As of a document."""


@frozen
class Lease:
    """The right to do something that one process does at a time. Every holder gets a higher number."""

    name: str
    number: int


# changes


@frozen
class Write:
    """Create a document, or replace it. With ``expected``, only if it has that version.

    ``erase`` overwrites the bytes that it replaces, where the storage can. ``modified_ns`` is for a copy, which keeps
    the time of what it is a copy of; 0 stands for now.
    """

    path: str
    data: bytes
    expected: str | None = None
    erase: bool = False
    modified_ns: int = 0


@frozen
class Remove:
    """Remove a document or a log. It is fine if there is none, unless another version is expected."""

    path: str
    expected: str | None = None


@frozen
class Erase:
    """Remove a document or a log, and overwrite its bytes where the storage can."""

    path: str
    expected: str | None = None


@frozen
class Move:
    """Rename a document or a log. Nothing may have the new name."""

    path: str
    to: str
    expected: str | None = None


@frozen
class Append:
    """Append lines to a log. With ``expected_end``, only if it ends there."""

    path: str
    lines: Sequence[bytes]
    expected_end: LogPosition | None = None


@frozen
class Blank:
    """Replace a line of a log by a shorter one. Spaces fill the rest, so that all positions stay."""

    path: str
    position: LogPosition
    line: bytes


@frozen
class Rewrite:
    """Replace all lines of a log. With ``expected_end``, only if it ends there. The new lines are after its old end.

    ``erase`` overwrites the lines that it replaces, where the storage can.
    """

    path: str
    lines: Sequence[bytes]
    expected_end: LogPosition | None = None
    erase: bool = False


Change = Write | Remove | Erase | Move | Append | Blank | Rewrite


Ends = Mapping[str, LogPosition]
"""End of each log that a commit appended to or rewrote."""


# the protocol


Choose = Callable[[str, Mapping[str, bool]], Iterable[str]]
"""Function that gets a folder, and the names in it with whether each is a folder. It returns those to look at."""
OnRefused = Callable[[str, WorkspaceError], None]
"""Function that gets a folder or a document that cannot be read, and why."""


class Documents(Protocol):
    def list(
        self, prefix: str = "", *, choose: Choose | None = None, on_refused: OnRefused | None = None
    ) -> Iterator[DocumentInfo]:
        """Yield the documents whose path begins with a prefix, ordered by path.

        What ``choose`` leaves out is not looked at. Without ``on_refused``, what cannot be read is an error.
        """

    def find(self, path: str) -> DocumentInfo | None:
        """Return a document without reading it. Raise PathRefused for a link or anything else that is no file."""

    def read(self, path: str, *, max_bytes: int | None = None) -> Document:
        """Raise DocumentNotFound, PathRefused as `find`, or NoteTooLarge."""

    def is_same(self, path: str, other: str) -> bool:
        """Return whether two names lead to one document, by links of any kind, or since case does not count."""

    def changes(self, since: Cursor | None = None) -> tuple[Sequence[Changed], Cursor]:
        """Return what changed since a cursor, or all documents without one, and the next cursor."""


class Logs(Protocol):
    def read(self, name: str, start: LogPosition = START) -> Iterator[LogLine]:
        """Yield the lines from a position on, none if there is no such log."""

    def read_back(
        self, name: str, end: LogPosition | None = None, *, having: Sequence[bytes] = ()
    ) -> Iterator[LogLine]:
        """Yield the lines before a position, or all, from the last to the first, without reading all at once.

        With ``having``, only those that have one of these texts in them.
        """

    def find(self, name: str) -> LogInfo | None:
        """Return a log without reading it."""

    def end(self, name: str) -> LogPosition:
        """Return the position after the last line, START if there is no such log."""

    def list(self, prefix: str = "") -> Iterator[LogInfo]:
        """Yield the logs whose name begins with a prefix, ordered by name."""


class Storage(Protocol):
    @property
    def documents(self) -> Documents: ...

    @property
    def logs(self) -> Logs: ...

    def commit(self, changes: Sequence[Change], *, lease: Lease | None = None) -> Ends:
        """Make all changes or none.

        Raise StorageConflict if a version or an end is not the expected one, LeaseLost, PathRefused for a name that is
        not allowed, or WriteFailed for a full or read-only disk. Nothing is changed then.
        """

    def exists(self) -> bool:
        """Return whether there is a place for documents already. The first commit makes it, or `make`."""

    def make(self, folder: str = "") -> None:
        """Make the place for documents, or a folder in it where people can see folders. Raise WriteFailed."""

    def is_writable(self, folder: str = "") -> bool:
        """Return whether documents in a folder can be written, as far as permissions tell."""

    def lease(self, name: str, *, wait_s: float) -> AbstractContextManager[Lease]:
        """Hold a lease. Raise LockBusy if another process still has it when the time is up."""


# rules that all storages share


version_of = digest_bytes
"""Returns the version of a document with these bytes."""


def is_log(path: str) -> bool:
    return LOG_MARK in path and LOG_MARK in path.rpartition("/")[2]


def check_changes(changes: Sequence[Change]) -> None:
    """Raise PathRefused for a name that is not allowed, UsageError for changes that do not go together."""
    seen: dict[str, list[object]] = {}
    for change in changes:
        # These three do not say which they mean, so the name decides; for the others it has to agree.
        is_of_either = isinstance(change, Move | Remove | Erase)
        is_of_log = is_log(change.path) if is_of_either else isinstance(change, Append | Blank | Rewrite)
        place = change.position if isinstance(change, Blank) else None
        for name in (change.path, change.to) if isinstance(change, Move) else (change.path,):
            check_name(name)
            if is_log(name) != is_of_log:
                raise PathRefused(f"{printable_line(name)}: logs have {LOG_MARK} in their names, and documents do not.")
            # Several lines of one log may be blanked at once.
            if any(None in (place, other) or place == other for other in seen.setdefault(name, [])):
                raise UsageError(f"{printable_line(name)}: a commit changes it twice.")
            seen[name].append(place)
        if isinstance(change, Append | Rewrite) and any(b"\n" in line for line in change.lines):
            raise UsageError(f"{change.path}: a line has a line break in it.")


def check_name(name: str) -> None:
    """Raise PathRefused unless a path or name is relative, has no empty, '.' or '..' part, and fits a file system."""
    try:
        parts = os.fsencode(name).split(b"/")
    except UnicodeEncodeError:
        parts = [b""]
    if b"\0" in b"".join(parts) or any(part in (b"", b".", b"..") for part in parts):
        raise PathRefused(f"'{printable_line(name)}': not a path inside the storage.")
    if sum(map(len, parts)) + len(parts) > MAX_PATH_BYTES or max(map(len, parts)) > MAX_NAME_BYTES:
        raise PathRefused(f"{printable_line(name[:80])}…: the name is too long.")
    if name == OWN_FOLDER or name.startswith(OWN_FOLDER + "/"):
        raise PathRefused(f"{printable_line(name)}: a file of the storage itself.")


def retried(act: Callable[P, T]) -> Callable[P, T]:
    """Let a function that reads, plans and commits start again if another process was faster: it is never the same one
    that loses."""

    @wraps(act)
    def act_again(*args: P.args, **kwargs: P.kwargs) -> T:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return act(*args, **kwargs)
            except StorageConflict:  # somebody else's commit was made, so all together get on; no pause is needed
                if time.monotonic() > deadline:
                    raise

    return act_again


def version_conflict(path: str, version: str, expected: str) -> StorageConflict:
    """Return the error for a version that is not the expected one."""
    reason = "it has changed" if version and expected else "it exists" if version else "it is gone"
    return StorageConflict(f"{printable_line(path)}: {reason}.")


def check_blank(log: str, old: bytes, new: bytes) -> bytes:
    """Return a line filled up to the length of the one that it replaces."""
    if len(new) > len(old) or b"\n" in new:
        raise UsageError(f"{log}: a line can only be replaced by one that is not longer.")
    return new.ljust(len(old))


def iter_chosen(paths: Sequence[str], prefix: str, choose: Choose | None) -> Iterator[str]:
    """Yield the paths that `Documents.list` may show: those in folders that ``choose`` looks at, and chosen there."""
    if choose is None:
        yield from paths
        return
    start = prefix.rpartition("/")[0]
    names: dict[str, dict[str, bool]] = {}
    for path in paths:
        folder, rest = start, path[len(start) :].strip("/").split("/")
        for at, name in enumerate(rest):
            names.setdefault(folder, {})[name] = at < len(rest) - 1
            folder = f"{folder}/{name}" if folder else name
    chosen: dict[str, frozenset[str]] = {}
    for path in paths:
        folder = start
        for name in path[len(start) :].strip("/").split("/"):
            if folder not in chosen:
                chosen[folder] = frozenset(choose(folder, names[folder]))
            if name not in chosen[folder]:
                break
            folder = f"{folder}/{name}" if folder else name
        else:
            yield path
