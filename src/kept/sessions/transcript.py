"""One transcript: a file of lines that is only ever appended to, except that a line may lose its text (`forgetting`).

A line counts once it ends with a line break. A crash may leave a torn end: bytes after the last line break. The next
writer, or a reader that meets it, repairs it: an entry that lacks only its line break gets one, anything else is cut
off and kept in a file beside the transcript.

Lines that were read once need not be read again. A reader stores up to where it has read. The next reader checks that
the transcript still has those bytes and continues after them; if it was changed in any other way, it is read from the
beginning. The catalogue keeps a `ReadEnd` per transcript, the index a `TranscriptCheckpoint`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeGuard

from kept.base.damaged_records import move_torn_end
from kept.base.durable import append_durably, replace_erasing, write_atomic
from kept.base.file_lock import locked
from kept.base.json_values import from_tree, to_tree
from kept.base.limits import int64
from kept.base.values import frozen
from kept.errors import (
    LockMissing,
    SessionExists,
    SessionNotFound,
    TranscriptUnreadable,
    TranscriptUnwritable,
    WriteFailed,
)
from kept.sessions.echoes import NO_ECHOES, EchoState
from kept.sessions.entries import AnyEntry, DamagedEntry, format_entry, is_message, parse_entry
from kept.sessions.title import TitleParts

LOCK_WAIT_S = 30.0
BLOCK_BYTES = 1 << 16
_LARGEST_BLOCK = 1 << 22
_TAIL_BYTES = 512


@frozen
class Position:
    """Place between two lines, by the bytes and the lines before it."""

    offset: int = 0
    lines: int = 0


@frozen
class Damage:
    """A line that cannot be read."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@frozen
class TranscriptLine:
    number: int
    """Counted from 1, as in an editor."""
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
class FileState:
    """Attributes of a file that change when it is written to."""

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


@frozen
class Transcript:
    """File of one session. Safe between threads and processes. Opened for each call and closed after it."""

    path: str

    # reading

    def iter_lines(self, start: Position | None = None, *, stop: int | None = None) -> Iterator[TranscriptLine]:
        """Yield every whole line from a position on, at most up to the offset ``stop``."""
        return map(parse_line, self.iter_raw(start, stop=stop))

    def iter_raw(self, start: Position | None = None, *, stop: int | None = None) -> Iterator[RawLine]:
        """Yield the same lines without parsing them."""
        start = start or Position()
        offset, number = start.offset, start.lines
        with self._open() as file:
            file.seek(offset)
            for raw in file:
                end = offset + len(raw)
                if not raw.endswith(b"\n") or (stop is not None and end > stop):
                    return
                number += 1
                yield RawLine(number, offset, end, raw)
                offset = end

    def tail(self, messages: int, end: Position) -> list[TranscriptLine]:
        """Return the last messages, and the other lines between and after them. Reads the file backwards.

        ``end`` is any known position, best near the end of the file: line numbers are counted from it.
        """
        newer = list(self.iter_lines(end))
        missing = messages - sum(is_message(line.content) for line in newer)
        older: list[TranscriptLine] = []
        with self._open() as file:
            number = end.lines
            for start, raw in _iter_backwards(file, end.offset):
                if missing <= 0:
                    break
                older.append(parse_line(RawLine(number, start, start + len(raw) + 1, raw + b"\n")))
                missing -= is_message(older[-1].content)
                number -= 1
        return _from_message_on([*reversed(older), *newer], messages)

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        with _unreadable(self.path), open(self.path, "rb", buffering=BLOCK_BYTES, opener=_open_unlinked) as file:
            yield file

    def stat(self) -> os.stat_result:
        """Return the file's state. A symbolic link is not followed."""
        with _unreadable(self.path):
            return os.stat(self.path, follow_symlinks=False)

    def tail_hash(self, offset: int) -> int:
        """Return a hash of the last bytes before an offset. While it stays the same, the file only grew after it."""
        with self._open() as file:
            start = max(0, offset - _TAIL_BYTES)
            file.seek(start)
            digest = hashlib.blake2b(file.read(offset - start), digest_size=7).digest()
        return int.from_bytes(digest, "big")

    def find_last_id(self) -> str | None:
        """Return the id of the last entry that has one: the parent of the next entry."""
        with self._open() as file:
            size = file.seek(0, os.SEEK_END)
            ids = (_find_id(raw) for _, raw in _iter_backwards(file, size))
            return next(filter(None, ids), None)

    # writing

    @classmethod
    def create(cls, path: str, entries: Sequence[AnyEntry]) -> Transcript:
        """Create a transcript with its first entries, all or none. The caller holds the folder's lock."""
        if os.path.lexists(path):
            raise SessionExists(f"{path}: there is such a transcript already.")
        with _unwritable():
            write_atomic(path, b"".join(map(format_entry, entries)))
        return cls(path)

    @contextmanager
    def appending(self) -> Iterator[TranscriptAppend]:
        """Hold the transcript's lock. Entries that are appended within stand together at the end of the file."""
        while True:
            try:
                with locked(self.path, wait_s=LOCK_WAIT_S, purpose="writing to this session", create=False) as handle:
                    state = FileState.of(self.path)
                    if state is None:
                        raise SessionNotFound(f"{self.path}: was deleted.")  # while this waited for the lock
                    if state.inode != FileState.from_stat(os.fstat(handle)).inode:
                        continue  # replaced meanwhile (`replace_lines`): the lock of the old file protects nothing
                    yield TranscriptAppend(self, self._repair_locked() if self.is_torn() else None)
                    return
            except LockMissing as exc:
                raise SessionNotFound(f"{self.path}: there is no such transcript.") from exc

    def repair(self) -> str | None:
        """Repair a torn end, if there is one, and return what was done.

        Waits for another process that is writing: its line is not torn.
        """
        if not self.is_torn():
            return None
        with self.appending() as append:
            return append.torn

    def is_torn(self) -> bool:
        """Return whether there are bytes after the last whole line, which `repair` would settle."""
        with _unreadable(self.path):
            handle = _open_unlinked(self.path, os.O_RDONLY)
        try:
            size = os.fstat(handle).st_size
            return size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        finally:
            os.close(handle)

    def _repair_locked(self) -> str:
        with self._open() as file:
            size = file.seek(0, os.SEEK_END)
            start, raw = next(_iter_backwards(file, size, ends_with_line_break=False))
        with _unwritable():
            try:
                parse_entry(raw)
            except DamagedEntry:
                kept_in = os.path.basename(move_torn_end(self.path, start, raw))
                return f"its last line was torn; {len(raw)} bytes were cut off and kept in {kept_in}"
            append_durably(self.path, b"\n")
            return "its last line lacked its line break, which has been added; nothing is lost"


@frozen
class TranscriptAppend:
    """Permission to append to a transcript while its lock is held."""

    transcript: Transcript
    torn: str | None
    """What was done with a torn end, which was repaired first."""

    def add(self, entries: Sequence[AnyEntry]) -> None:
        """Append entries. When this returns, all are on disk."""
        with _unwritable():
            append_durably(self.transcript.path, b"".join(map(format_entry, entries)))

    def replace_lines(self, lines: Sequence[bytes]) -> bool:
        """Replace all lines, which keep their order and best also their lengths: other processes know offsets.

        The old file is overwritten. Return False if it has another name, which keeps its text.
        """
        with _unwritable():
            return replace_erasing(self.transcript.path, b"".join(lines))


def parse_line(line: RawLine) -> TranscriptLine:
    content: AnyEntry | Damage
    try:
        content = parse_entry(line.raw[:-1])
    except DamagedEntry as exc:
        content = Damage(line.number, str(exc))
    return TranscriptLine(line.number, line.start, line.end, content)


def _from_message_on(lines: list[TranscriptLine], messages: int) -> list[TranscriptLine]:
    """Return the lines from the Nth-last message on; all lines if there are fewer messages."""
    missing = messages
    for index in range(len(lines) - 1, -1, -1):
        missing -= is_message(lines[index].content)
        if missing <= 0:
            return lines[index:] if messages > 0 else []
    return lines


def _find_id(raw: bytes) -> str | None:
    try:
        return parse_entry(raw).id
    except DamagedEntry:
        return None


def _iter_backwards(file: BinaryIO, end: int, *, ends_with_line_break: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield the lines before ``end``, the last one first, each with its offset and without its line break.

    ``end`` is the offset after a line break, or, with ``ends_with_line_break`` False, the end of a torn line.

    Blocks are read from the back and split at line breaks. The first piece of a block is only the end of a line; it is
    kept in ``line_end`` and joined to the block before::

        {"a": 1}⏎{"b"|: 2}⏎{"c": 3}⏎    the second block yields {"c": 3} and keeps `: 2}`,
         first block  | second block    which the first block completes

    Blocks double in size, so that a line longer than a block is not joined over and over.
    """
    block_start, line_end, line_break = end, b"", int(ends_with_line_break)
    skips_empty, block_bytes = ends_with_line_break, BLOCK_BYTES
    while block_start > 0:
        size = min(block_bytes, block_start)
        block_bytes = min(block_bytes * 2, _LARGEST_BLOCK)
        block_start -= size
        file.seek(block_start)
        line_end, *lines = (file.read(size) + line_end).split(b"\n")
        for raw in reversed(lines):
            if skips_empty:  # the empty piece after the last line break
                skips_empty = False
                continue
            end -= len(raw) + line_break
            line_break = 1
            yield end, raw
    if end > 0:
        yield 0, line_end


def _open_unlinked(path: str, flags: int) -> int:
    """Open a transcript. A symbolic link in its place is refused, and a pipe is not waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def _unreadable(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        raise SessionNotFound(f"{path}: there is no such transcript.") from exc
    except OSError as exc:
        raise TranscriptUnreadable(f"{path}: cannot be read ({exc.strerror}).") from exc


@contextmanager
def _unwritable() -> Iterator[None]:
    try:
        yield
    except WriteFailed as exc:
        raise TranscriptUnwritable(exc.message) from exc


# resuming a transcript that has only grown


@frozen
class ReadEnd:
    """Place after the last line that was read, and how to recognise it."""

    inode: int
    offset: int
    tail_hash: int
    """Hash of the last bytes before the offset (`Transcript.tail_hash`)."""


def has_only_grown(transcript: Transcript, read: ReadEnd, state: FileState) -> bool:
    """Return whether the transcript is the same file and has the same bytes before the end of what was read.

    Only the last bytes are compared, so that this costs the same for any length. A change further up that keeps the
    length moves nothing: callers notice it by the file's times, if its size is as it was.
    """
    is_same_file = state.inode == read.inode and state.size >= read.offset
    return is_same_file and transcript.tail_hash(read.offset) == read.tail_hash


@frozen
class TranscriptCheckpoint:
    """Progress of the index through a transcript.

    The chunks of the last utterances still change, because the next ones will be their context. So three places are
    kept, in this order::

        resume_at      where to read from next time: some utterances earlier, as context for the lines after final_line
        final_line     chunks up to here are final and stay in the index; later ones are replaced
        read.offset    end of the last line that was read
    """

    read: ReadEnd
    final_line: int
    resume_at: Position
    running_hash: str
    """Hash of all lines before ``resume_at`` (`extend_hash`)."""
    key: str
    """Key of the session. Empty if the first line, which has it, is lost."""
    echoes: EchoState = NO_ECHOES
    """What the lines before ``resume_at`` tell about those after it."""
    heading: str = ""
    """Channel and person, or for an imported conversation channel and folder."""
    titles: TitleParts = TitleParts()

    def to_json(self) -> str:
        """Return it as the index stores it. A query reads the title from there."""
        return json.dumps({**to_tree(self), "title": self.titles.text}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TranscriptCheckpoint | None:
        """Return None for a text that is not a checkpoint: then the transcript is read from the beginning."""
        try:
            return from_tree(cls, json.loads(text))
        except ValueError:
            return None


def extend_hash(running_hash: str, raw: bytes) -> str:
    """Return the hash of all lines up to this one, from the hash of those before it ("" before the first).

    Unlike a plain SHA-256 of the file, its state is a short text, so it can be stored and continued at any line.
    """
    return hashlib.sha256(running_hash.encode() + raw).hexdigest()


# receipts of compactions: which lines left the context, and the hash of these lines

LineRanges = Sequence[tuple[int, int]]
"""First and last line of each range."""


def is_receipt(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Check the shape: anyone who appends a compaction can store anything as its receipt."""
    if not isinstance(value, Mapping) or not {"path", "lines", "sha256", "searchable"} <= set(value):
        return False
    ranges = value["lines"]
    return isinstance(ranges, list) and all(
        isinstance(line_range, list) and [type(number) for number in line_range] == [int, int] for line_range in ranges
    )


def ranges_of(receipt: Mapping[str, Any]) -> LineRanges:
    return [(first, last) for first, last in receipt["lines"]]


def hash_lines(lines: Iterable[RawLine], ranges: LineRanges) -> str:
    """Return the SHA-256 of some lines of a transcript, byte for byte."""
    digest = hashlib.sha256()
    for line in lines:
        if any(first <= line.number <= last for first, last in ranges):
            digest.update(line.raw)
    return digest.hexdigest()
