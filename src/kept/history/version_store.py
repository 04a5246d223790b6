"""The bytes of every version of every note, stored as differences.

A version is named by the SHA-256 of its bytes. The line of a change holds the version after it, as the version before
it with one range of bytes replaced: for an append or a small edit that is the new text itself. A larger piece is
compressed, with the replaced bytes as dictionary, and appended to a pack. A chain of differences is bounded, so that
reading a version takes bounded work.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator

from kept.errors import HistoryDamaged
from kept.history.change_log import ChangeLog, find_line_backwards, line_around
from kept.history.digest import digest_bytes
from kept.history.history_folder import CHANGES, OBJECTS, HistoryFolder
from kept.history.note_change import StoredText, parse_change
from kept.values import frozen

INLINE_BYTES = 2_000
"""Longest piece that is stored in the line of the change, where people can read it."""
MAX_DEPTH = 200
MAX_PACK_BYTES = 64_000_000
MAX_VERSION_BYTES = 1 << 30
_DICTIONARY_BYTES = 32_768
_LEVEL = 1
"""Compression level: levels above it take far more CPU time for a few per cent of space."""
_BLOCK_BYTES = 131_072
_CACHED_BYTES = 64_000_000
_FEW_SEARCHES = 40
"""Searches through the lines after which reading all of them once is quicker."""
PACK_ENDING = ".pack"


class PackWriter:
    """Collects compressed pieces, and appends them to the pack of this machine in one write.

    The caller holds the lock of the workspace until `flush`.
    """

    def __init__(self, folder: HistoryFolder, machine: str) -> None:
        self.folder = folder
        self.machine = machine
        self._name = ""
        self._size = 0
        self._least = 1
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> tuple[str, int]:
        """Return the name of the pack and the offset that the piece will have in it."""
        if not self._name:
            self._choose_pack()
        offset = self._size
        self._pieces.append(piece)
        self._size += len(piece)
        return self._name, offset

    def begin_new(self) -> None:
        """Write the following pieces to a new pack, for a history that is rewritten."""
        self._least = max(self.numbers(), default=0) + 1

    def flush(self) -> None:
        """Write the pieces, and return when they are on disk."""
        if self._pieces:
            self.folder.append(OBJECTS, self._name, b"".join(self._pieces))
        self._name, self._pieces = "", []

    def _choose_pack(self) -> None:
        number = max([self._least, *self.numbers()])
        self._name = self.name(number)
        self._size = self.folder.size(OBJECTS, self._name)
        if self._size > MAX_PACK_BYTES:
            self._name, self._size = self.name(number + 1), 0

    def numbers(self) -> list[int]:
        """Return the numbers of the packs that this machine has."""
        names = self.folder.names(OBJECTS, PACK_ENDING)
        matches = (re.fullmatch(rf"{re.escape(self.machine)}\.(\d{{1,9}})\.pack", name) for name in names)
        return [int(match[1]) for match in matches if match]

    def name(self, number: int) -> str:
        return f"{self.machine}.{number}{PACK_ENDING}"


def plan_difference(before: bytes, after: bytes) -> tuple[int, int, bytes]:
    """Return the range of ``before`` that differs, and its replacement. Pure."""
    start = _common_length(before, after)
    rest = min(len(before), len(after)) - start
    tail = _common_length(before[start:][::-1][:rest], after[start:][::-1][:rest])
    return start, len(before) - tail, after[start : len(after) - tail]


def _common_length(first: bytes, second: bytes) -> int:
    """Return the length of the common beginning, by halving: comparing slices is quicker than a loop over bytes."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low + (first[low : low + 1] == second[low : low + 1])


def compress(piece: bytes, dictionary: bytes = b"") -> bytes:
    import zlib

    zdict = dictionary[-_DICTIONARY_BYTES:]
    packer = zlib.compressobj(_LEVEL, zdict=zdict) if zdict else zlib.compressobj(_LEVEL)
    return packer.compress(piece) + packer.flush()


def decompress(packed: bytes, dictionary: bytes = b"") -> bytes:
    import zlib

    zdict = dictionary[-_DICTIONARY_BYTES:]
    unpacker = zlib.decompressobj(zdict=zdict) if zdict else zlib.decompressobj()
    try:
        piece = unpacker.decompress(packed, MAX_VERSION_BYTES)
    except zlib.error as exc:
        raise HistoryDamaged(f"A version of a note cannot be read ({exc}).") from exc
    if not unpacker.eof:
        raise HistoryDamaged("A version of a note is incomplete.")
    return piece


def store_version(writer: PackWriter, before: bytes | None, after: bytes, base: StoredText | None) -> StoredText:
    """Return how to store a version: as a difference to ``before`` if that is stored as ``base``, or whole."""
    depth = 0 if base is None else base.depth + 1
    if before is None or base is None or depth > MAX_DEPTH:
        return _store_piece(writer, None, (0, 0), 0, after, b"")
    start, end, piece = plan_difference(before, after)
    return _store_piece(writer, digest_bytes(before), (start, end), depth, piece, before[start:end])


def _store_piece(
    writer: PackWriter, base: str | None, span: tuple[int, int], depth: int, piece: bytes, dictionary: bytes
) -> StoredText:
    if len(piece) <= INLINE_BYTES:
        try:
            return StoredText(base, *span, depth, text=piece.decode("utf-8"))
        except UnicodeDecodeError:
            pass  # bytes that are not text go into the pack
    packed = compress(piece, dictionary)
    name, offset = writer.add(packed)
    return StoredText(base, *span, depth, pack=name, offset=offset, length=len(packed))


def store_together(writer: PackWriter, contents: list[bytes]) -> list[StoredText]:
    """Return how to store whole versions, compressed in blocks: small notes compress better together."""
    stored: list[StoredText] = []
    block: list[bytes] = []
    size = 0
    for content in contents:
        block.append(content)
        size += len(content)
        if size >= _BLOCK_BYTES:
            stored += _store_block(writer, block)
            block, size = [], 0
    return stored + (_store_block(writer, block) if block else [])


def _store_block(writer: PackWriter, contents: list[bytes]) -> list[StoredText]:
    packed = compress(b"".join(contents))
    name, offset = writer.add(packed)
    stored, start = [], 0
    for content in contents:
        piece = (start, start + len(content))
        stored.append(StoredText(None, 0, 0, 0, pack=name, offset=offset, length=len(packed), piece=piece))
        start = piece[1]
    return stored


@frozen
class _StoredLine:
    """Version that a line has, and where the line is: its base is in an earlier line of the same file."""

    stored: StoredText
    name: str
    offset: int


class VersionReader:
    """Reads versions by their hash, from the files of all machines.

    Lines are searched from the end, since most versions that people ask for are recent. ``is_indexed`` reads all lines
    once instead, for a caller that needs all versions.
    """

    def __init__(self, log: ChangeLog, *, is_indexed: bool = False) -> None:
        self._log = log
        self._folder = log.folder
        self._lines = self._scan() if is_indexed else None
        """Positions of the lines that have a version, by its hash."""
        self._may_grow = not is_indexed
        """True if lines may have been added or rewritten since they were read."""
        self._searches = 0
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0

    def read(self, digest: str) -> bytes:
        """Return the bytes of a version. Raise HistoryDamaged if they are missing or damaged."""
        chain: list[tuple[str, StoredText]] = []
        content: bytes | None = None
        version: str | None = digest
        match: _StoredLine | None = None
        while version is not None:
            content = self._cache.get(version)
            if content is not None:
                break
            match = self._find(version, match)
            chain.append((version, match.stored))
            version = match.stored.base
        for name, stored in reversed(chain):
            content = self._apply(content or b"", stored)
            if digest_bytes(content) != name:
                raise HistoryDamaged(f"The version {name[:12]} of a note is damaged.")
            self._keep(name, content)
        return content or b""

    def _find(self, digest: str, later: _StoredLine | None) -> _StoredLine:
        """Return a line that has a version. A base is searched for before the line that needs it, so that a chain never
        leads back to where it began, as it might after an undo."""
        for name in self._log.names() if later is None else [later.name]:
            match = self._find_in(name, digest, None if later is None else later.offset)
            if match is not None:
                return match
        raise HistoryDamaged(f"The version {digest[:12]} of a note is missing from the history.")

    def _find_in(self, name: str, digest: str, end: int | None) -> _StoredLine | None:
        with self._folder.reading(CHANGES, name) as handle:
            if handle is None:
                return None
            for offset, line in self._iter_candidates(handle, name, digest, end):
                change = parse_change(line, "")
                if change is not None and change.after == digest and change.stored is not None:
                    return _StoredLine(change.stored, name, offset)
        return None

    def _iter_candidates(self, handle: int, name: str, digest: str, end: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield lines before ``end`` that may have a version, the last first."""
        end = os.fstat(handle).st_size if end is None else end
        if self._lines is not None:
            for file, offset in reversed(self._lines.get(digest, [])):
                if file == name and offset < end:
                    yield line_around(handle, offset)
            if not self._may_grow:
                return
        self._count_search()
        pattern = (f'"after":"{digest}"'.encode(),)
        while end > 0:
            end, line = find_line_backwards(handle, end, pattern)
            yield end, line

    def _count_search(self) -> None:
        self._searches += 1
        if self._searches == _FEW_SEARCHES and self._lines is None:
            self._lines = self._scan()

    def _scan(self) -> dict[str, list[tuple[str, int]]]:
        lines: dict[str, list[tuple[str, int]]] = {}
        for name in self._log.names():
            data = self._folder.read(CHANGES, name)
            for match in re.finditer(rb'"after":"([0-9a-f]{64})"', data):
                start = data.rfind(b"\n", 0, match.start()) + 1
                lines.setdefault(match[1].decode(), []).append((name, start))
        return lines

    def _apply(self, base: bytes, stored: StoredText) -> bytes:
        if stored.start > stored.end or stored.end > len(base):
            raise HistoryDamaged("A version of a note does not fit its base.")
        if stored.pack is None:
            piece = (stored.text or "").encode()
        else:
            piece = decompress(self._read_piece(stored), base[stored.start : stored.end])
            if stored.piece is not None:
                piece = piece[stored.piece[0] : stored.piece[1]]
        return base[: stored.start] + piece + base[stored.end :]

    def _read_piece(self, stored: StoredText) -> bytes:
        name = stored.pack or ""
        if "/" in name or not name.endswith(PACK_ENDING):
            raise HistoryDamaged("A line of the history names no pack.")
        with self._folder.reading(OBJECTS, name) as handle:
            piece = b"" if handle is None else os.pread(handle, stored.length, stored.offset)
        if len(piece) != stored.length:
            raise HistoryDamaged(f"{self._folder.path(OBJECTS, name)}: a version of a note is missing.")
        return piece

    def _keep(self, digest: str, content: bytes) -> None:
        self._cache[digest] = content
        self._cached_bytes += len(content)
        while self._cached_bytes > _CACHED_BYTES and len(self._cache) > 1:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1])
