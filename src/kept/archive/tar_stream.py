"""The tar format, written and read as a stream.

Writing uses the library's headers (POSIX, with extended headers for long names). Reading is stricter than the library:
it accepts plain files only, and bounds everything that it keeps in memory, because an archive may come from a stranger.
"""

from __future__ import annotations

import gzip
import importlib
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, Any, BinaryIO, cast

from kept.errors import ArchiveDamaged, ArchiveRefused, UsageError
from kept.sessions.importers.source import open_regular
from kept.values import frozen
from kept.workspace.workspace import show_path

BLOCK = tarfile.BLOCKSIZE
CHUNK_BYTES = 1 << 18
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
MAX_MEMBERS = 5_000_000
_MAX_EXTENDED = 1 << 16
_MAX_RATIO = 200
_SMALL_SIZE = 100_000_000
"""An archive that unpacks to less is harmless, whatever its ratio."""
_GZIP_START, _ZSTD_START = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.DIRTYPE: "a folder",
}


# compression


def require_suffix(path: str) -> str:
    """Return the ending of an archive's name. Raise UsageError for one that is not known here."""
    suffix = next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), None)
    if suffix is None:
        raise UsageError(
            f"{path}: the name of an archive ends in .tar, .tar.gz or .tar.zst.",
            hint="For example: kept export kept.tar",
        )
    if suffix == ".tar.zst":
        _zstd()
    return suffix


def compressed(raw: BinaryIO, suffix: str) -> AbstractContextManager[IO[bytes]]:
    """Return the stream to write an archive to. Closing it leaves the file open."""
    if suffix == ".tar":
        return nullcontext(raw)
    if suffix == ".tar.zst":
        stream: IO[bytes] = _zstd().ZstdFile(raw, "wb")
        return stream
    return cast("AbstractContextManager[IO[bytes]]", gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))


def _zstd() -> Any:
    """Return the library for zstd, which Python has since 3.14."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        raise UsageError("This Python cannot read or write .tar.zst.", hint="Use .tar.gz, or Python 3.14.") from None


@contextmanager
def opened_archive(path: str) -> Iterator[TarReader]:
    """Open an archive for reading. Its first bytes tell how it is compressed, not its name."""
    try:
        raw = open_regular(path)
    except OSError as exc:
        reason = "there is no such file" if isinstance(exc, FileNotFoundError) else f"cannot be read ({exc.strerror})"
        raise ArchiveRefused(f"{path}: {reason}.") from exc
    with raw:
        start = raw.read(4)
        raw.seek(0)
        size = os.fstat(raw.fileno()).st_size
        if start.startswith(_GZIP_START):
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
        else:
            stream = _zstd().ZstdFile(raw, "rb") if start == _ZSTD_START else raw
        limit = None if stream is raw else max(_SMALL_SIZE, _MAX_RATIO * size)
        yield TarReader(path, stream, raw, limit=limit)


# writing


class TarWriter:
    """Writes members, each a private regular file without an owner."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out

    def add(self, name: str, size: int, mtime_s: int, blocks: Iterable[bytes]) -> None:
        """Write a member. ``blocks`` have exactly ``size`` bytes."""
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, max(0, mtime_s), 0o600
        self._out.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))
        for block in blocks:
            self._out.write(block)
        self._out.write(bytes(-size % BLOCK))

    def close(self) -> None:
        """Write the end of the archive."""
        self._out.write(bytes(2 * BLOCK))


# reading


@frozen
class TarMember:
    name: str
    size: int
    reader: TarReader

    def blocks(self) -> Iterator[bytes]:
        """Yield the content once, in parts. The next member can be read only then."""
        return self.reader.iter_content()


class TarReader:
    """Reads the members of an archive one after the other. Raises ArchiveRefused or ArchiveDamaged."""

    def __init__(self, path: str, stream: IO[bytes], raw: BinaryIO, *, limit: int | None) -> None:
        self.path = path
        self._stream = stream
        self._raw = raw
        self._limit = limit
        self._done = 0
        self._rest = 0
        """Bytes of the content of the current member that were not read yet."""
        self._padding = 0

    @property
    def position(self) -> int:
        """Number of bytes of the file that were read, for progress."""
        return self._raw.tell()

    def iter_members(self) -> Iterator[TarMember]:
        count = 0
        while (member := self._read_member()) is not None:
            count += 1
            if count > MAX_MEMBERS:
                raise self._refused(f"it has more than {MAX_MEMBERS:,} members")
            self._rest, self._padding = member.size, -member.size % BLOCK
            yield member
            for _ in self.iter_content():
                pass
        self._require_end()

    def iter_content(self) -> Iterator[bytes]:
        while self._rest:
            block = self._read(min(self._rest, CHUNK_BYTES))
            self._rest -= len(block)
            yield block
        self._read(self._padding)
        self._padding = 0

    def _read_member(self) -> TarMember | None:
        header = self._read_header()
        extended: dict[str, str] = {}
        if header is not None and header.type == tarfile.XHDTYPE:
            extended = self._read_extended(header.size)
            header = self._read_header()
        if header is None:
            if extended:
                raise self._truncated()
            return None
        name = extended.get("path", header.name)
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise self._refused(f"'{show_path(name)}' is {_KINDS.get(header.type, 'not a plain file')}")
        size = int(extended["size"]) if extended.get("size", "").isdecimal() else header.size
        if not 0 <= size < 1 << 50:
            raise self._refused(f"'{show_path(name)}' has an impossible size")
        return TarMember(name, size, self)

    def _read_header(self) -> tarfile.TarInfo | None:
        """Return the next header, or None at the end of the archive."""
        raw = self._read(BLOCK)
        if not any(raw):
            if any(self._read(BLOCK)):
                raise ArchiveDamaged(f"{self.path}: it is damaged: its end is not its end.")
            return None
        try:
            return tarfile.TarInfo.frombuf(raw, "utf-8", "surrogateescape")
        except tarfile.HeaderError as exc:
            if self._done == BLOCK:
                raise self._refused("it is not a tar archive") from exc
            raise ArchiveDamaged(f"{self.path}: it is damaged ({exc}).") from exc

    def _read_extended(self, size: int) -> dict[str, str]:
        """Return an extended header: records such as '27 path=notes/main/….md' with their length before them."""
        if not 0 < size <= _MAX_EXTENDED:
            raise self._refused("an extended header is too large")
        data = self._read(size)
        self._read(-size % BLOCK)
        records: dict[str, str] = {}
        while data:
            length, _, _ = data.partition(b" ")
            if not length.isdigit() or not len(length) + 2 < int(length) <= len(data):
                raise self._refused("an extended header is malformed")
            record, data = data[len(length) + 1 : int(length)], data[int(length) :]
            key, _, value = record.removesuffix(b"\n").partition(b"=")
            if key not in (b"path", b"size", b"mtime"):
                raise self._refused(f"an extended header has '{show_path(key.decode('utf-8', 'replace'))}'")
            records[key.decode()] = value.decode("utf-8", "surrogateescape")
        return records

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._read_some(size)
            if not part and self._done < BLOCK:
                raise self._refused("it is not an archive of Kept")
            if not part:
                raise self._truncated()
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_some(self, size: int) -> bytes:
        try:
            part = self._stream.read(size)
        except EOFError as exc:
            raise self._truncated() from exc
        except Exception as exc:
            raise ArchiveDamaged(f"{self.path}: it cannot be unpacked ({exc}).") from exc
        self._done += len(part)
        if self._limit is not None and self._done > self._limit:
            raise self._refused("it unpacks to far more than any archive of notes")
        return part

    def _require_end(self) -> None:
        """Read to the end of the file: a compressed one has a checksum there."""
        while part := self._read_some(CHUNK_BYTES):
            if any(part):
                raise ArchiveDamaged(f"{self.path}: it is damaged: something follows its end.")

    def _truncated(self) -> ArchiveDamaged:
        return ArchiveDamaged(f"{self.path}: it is truncated.")

    def _refused(self, reason: str) -> ArchiveRefused:
        return ArchiveRefused(f"{self.path}: {reason}.")
