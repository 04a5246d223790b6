"""One transcript: a file of lines that is only ever added to.

A line counts once it ends with a line break. What a crash has left behind the last one is mended by the next writer, or
by a reader that comes across it: a whole entry gets its line break, anything else is cut off and kept beside the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from kept.durable import append_durably, write_atomic
from kept.errors import (
    LockBusy,
    SessionExists,
    SessionNotFound,
    TranscriptUnreadable,
    TranscriptUnwritable,
    WorkspaceError,
    WriteFailed,
)
from kept.limits import int64
from kept.lock import locked
from kept.quarantine import move_torn_end
from kept.sessions.entries import AnyEntry, DamagedEntry, Entry, Message, format_entry, parse_entry
from kept.values import frozen

LOCK_WAIT_S = 30.0
_BLOCK = 1 << 16
_LARGEST_BLOCK = 1 << 22
_SEAM_BYTES = 512


@frozen
class Position:
    """A place between two lines: so many bytes and so many lines stand before it."""

    offset: int = 0
    lines: int = 0


@frozen
class Damage:
    """A line that cannot be read, or the torn end of the file."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@frozen
class Line:
    number: int
    """Counted from 1, as editors do."""
    start: int
    end: int
    content: AnyEntry | Damage


@frozen
class RawLine:
    number: int
    start: int
    end: int
    raw: bytes
    """With its line break."""


@frozen
class Torn:
    """What a crash had left behind the last whole line, and what became of it."""

    size: int
    kept_in: str | None
    """Where the bytes are now; None when they were a whole entry that lacked only its line break."""

    def __str__(self) -> str:
        if self.kept_in is None:
            return "its last line lacked its end, which has been added; nothing is lost"
        return f"its last line was torn; {self.size} bytes were cut off and kept in {os.path.basename(self.kept_in)}"


@frozen
class FileState:
    """What tells whether a file changed without reading it."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> FileState | None:
        try:
            return cls.from_stat(os.stat(path))
        except OSError:
            return None

    @classmethod
    def from_stat(cls, stat: os.stat_result) -> FileState:
        return cls(int64(stat.st_ino), stat.st_size, int64(stat.st_mtime_ns))


class Transcript:
    """The file of one session. Safe between threads and processes; holds nothing open in between."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._end: tuple[FileState, str | None] | None = None

    # reading

    def iter_lines(self, start: Position | None = None, *, stop: int | None = None) -> Iterator[Line]:
        """Every whole line from a place on, at most up to an offset."""
        return map(parse_line, self.iter_raw(start, stop=stop))

    def iter_raw(self, start: Position | None = None, *, stop: int | None = None) -> Iterator[RawLine]:
        """The same without reading what the lines say."""
        start = start or Position()
        at, number = start.offset, start.lines
        with self._reading() as file:
            file.seek(at)
            for raw in file:
                end = at + len(raw)
                if not raw.endswith(b"\n") or (stop is not None and end > stop):
                    return
                number += 1
                yield RawLine(number, at, end, raw)
                at = end

    def tail(self, messages: int, end: Position) -> list[Line]:
        """The last so many messages and whatever stands between and behind them, read from the back.

        ``end`` is a known place, as near to the end as may be: lines can only be numbered from one.
        """
        newer = list(self.iter_lines(end))
        missing = messages - sum(is_message(line) for line in newer)
        older: list[Line] = []
        with self._reading() as file:
            number = end.lines
            for start, raw in _iter_back(file, end.offset):
                if missing <= 0:
                    break
                older.append(Line(number, start, start + len(raw) + 1, _parse(raw, number)))
                missing -= is_message(older[-1])
                number -= 1
        return _from_message_on([*reversed(older), *newer], messages)

    @contextmanager
    def _reading(self) -> Iterator[BinaryIO]:
        try:
            with open(self.path, "rb", buffering=_BLOCK) as file:
                yield file
        except FileNotFoundError as exc:
            raise SessionNotFound(f"{self.path}: there is no such transcript.") from exc
        except OSError as exc:
            raise TranscriptUnreadable(f"{self.path}: cannot be read ({exc.strerror}).") from exc

    def seam(self, offset: int) -> int:
        """A hash of the bytes before an offset. As long as it is the same, what stands behind it was added."""
        with self._reading() as file:
            start = max(0, offset - _SEAM_BYTES)
            file.seek(start)
            digest = hashlib.blake2b(file.read(offset - start), digest_size=7).digest()
        return int.from_bytes(digest, "big")

    # writing

    @classmethod
    def create(cls, path: str, entries: Sequence[AnyEntry]) -> Transcript:
        """A new transcript, whole or not at all. The caller holds the folder's lock."""
        if os.path.lexists(path):
            raise SessionExists(f"{path}: there is such a transcript already.")
        with _unwritable():
            write_atomic(path, b"".join(map(format_entry, entries)))
        return cls(path)

    @contextmanager
    def adding(self) -> Iterator[Adding]:
        """Holds the transcript's lock. What is added in here stands together, behind everything else."""
        with self._locked():
            torn = self._repair_locked()
            yield Adding(self, torn)

    def is_torn(self) -> bool:
        """Whether something stands behind the last whole line, which `repair` would mend."""
        return not _ends_whole(self.path)

    def repair(self) -> Torn | None:
        """Mends a torn end, if there is one. While another process is writing, waits for it to finish."""
        if _ends_whole(self.path):
            return None
        with self._locked():
            return self._repair_locked()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with locked(self.path, wait_s=LOCK_WAIT_S, purpose="writing to this session", create=False) as handle:
                if FileState.from_stat(os.fstat(handle)).inode != _inode(self.path):
                    raise SessionNotFound(f"{self.path}: was deleted.")
                yield
        except LockBusy:
            raise
        except WorkspaceError as exc:
            if isinstance(exc.__cause__, FileNotFoundError):
                raise SessionNotFound(f"{self.path}: there is no such transcript.") from exc
            raise

    def _repair_locked(self) -> Torn | None:
        if _ends_whole(self.path):
            return None
        with self._reading() as file:
            size = file.seek(0, os.SEEK_END)
            start, rest = next(_iter_back(file, size, whole=False))
        with _unwritable():
            try:
                parse_entry(rest)
            except DamagedEntry:
                return Torn(len(rest), move_torn_end(self.path, start, rest))
            append_durably(self.path, b"\n")
            return Torn(len(rest), None)

    def find_last_id(self) -> str | None:
        """The id of the last entry that has one: the parent of the next. Read from the back, or remembered."""
        state = FileState.of(self.path)
        if self._end is None or self._end[0] != state:
            with self._reading() as file:
                size = file.seek(0, os.SEEK_END)
                ids = (_id_of(raw) for _, raw in _iter_back(file, size))
                last = next((one for one in ids if one), None)
            if state is None:
                return last
            self._end = (state, last)
        return self._end[1]

    def remember_end(self, state: FileState, last_id: str | None) -> None:
        self._end = (state, last_id)


@frozen
class Adding:
    """The right to add to a transcript, for as long as its lock is held."""

    transcript: Transcript
    torn: Torn | None

    def add(self, entries: Sequence[AnyEntry]) -> tuple[int, FileState]:
        """Returns when all of them are on disk: the offset they begin at, and the file as it is now."""
        path = self.transcript.path
        before = os.path.getsize(path)
        with _unwritable():
            append_durably(path, b"".join(map(format_entry, entries)))
        state = FileState.of(path)
        if state is None:
            raise SessionNotFound(f"{path}: was deleted.")
        self.transcript.remember_end(state, entries[-1].id)
        return before, state


def parse_line(line: RawLine) -> Line:
    return Line(line.number, line.start, line.end, _parse(line.raw[:-1], line.number))


def faults_of(line: Line) -> tuple[str, ...]:
    """Return what is wrong with a line: it cannot be read, or some fields of it are ignored."""
    match line.content:
        case Damage(reason=reason):
            return (f"{reason}; the rest is read",)
        case Entry(faults=faults):
            return faults
        case _:
            return ()


def is_message(line: Line) -> bool:
    return isinstance(line.content, Entry) and isinstance(line.content.body, Message)


def _from_message_on(lines: list[Line], messages: int) -> list[Line]:
    """From the so many-th message from the end on; all of them where there are fewer."""
    left = messages
    for at in range(len(lines) - 1, -1, -1):
        left -= is_message(lines[at])
        if left <= 0:
            return lines[at:] if messages > 0 else []
    return lines


def _parse(raw: bytes, number: int) -> AnyEntry | Damage:
    try:
        return parse_entry(raw)
    except DamagedEntry as exc:
        return Damage(number, str(exc))


def _id_of(raw: bytes) -> str | None:
    try:
        return parse_entry(raw).id
    except DamagedEntry:
        return None


def _iter_back(file: BinaryIO, end: int, *, whole: bool = True) -> Iterator[tuple[int, bytes]]:
    """Lines from the back, each with its offset and without its line break. ``end`` is behind a line break, or, where
    the last line is not whole, behind that."""
    at, rest, block, skip = end, b"", _BLOCK, whole
    while at > 0:
        step = min(block, at)
        block = min(block * 2, _LARGEST_BLOCK)
        at -= step
        file.seek(at)
        rest, *lines = (file.read(step) + rest).split(b"\n")
        for raw in reversed(lines):
            if skip:  # nothing stands behind the last line break
                skip = False
                continue
            end -= len(raw) + whole
            whole = True
            yield end, raw
    if end > 0:
        yield 0, rest


def _ends_whole(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as exc:
        raise SessionNotFound(f"{path}: there is no such transcript.") from exc
    except OSError as exc:
        raise TranscriptUnreadable(f"{path}: cannot be read ({exc.strerror}).") from exc
    try:
        size = os.fstat(handle).st_size
        return size == 0 or os.pread(handle, 1, size - 1) == b"\n"
    finally:
        os.close(handle)


def _inode(path: str) -> int | None:
    state = FileState.of(path)
    return state.inode if state else None


@contextmanager
def _unwritable() -> Iterator[None]:
    try:
        yield
    except WriteFailed as exc:
        raise TranscriptUnwritable(exc.message) from exc
