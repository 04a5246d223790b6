"""Checks an archive: its format, its names, the checksum of every file, and the archives that it builds on.

Nothing is written. Memory holds one record for each file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence

from kept.archive.manifest import MAX_HEADER_BYTES, ArchiveHeader, BaseReference, FileRecord, read_header, read_manifest
from kept.archive.member_names import HEADER, MANIFEST, parse_member_name
from kept.archive.tar_stream import TarMember, TarReader, opened_archive
from kept.errors import ArchiveDamaged, ArchiveError, ArchiveIncomplete, ArchiveRefused
from kept.records import Problem, Progress
from kept.values import frozen
from kept.workspace.workspace import show_path

_MAX_CHAIN = 10_000


@frozen
class ExaminedArchive:
    path: str
    header: ArchiveHeader
    records: dict[str, FileRecord]
    """Every file of the manifest by its path."""
    problems: tuple[Problem, ...]
    """Files that are missing, unexpected or changed."""


@frozen
class ArchiveChain:
    """An archive and those that it builds on, the newest first."""

    archives: tuple[ExaminedArchive, ...]
    problems: tuple[Problem, ...]

    @property
    def newest(self) -> ExaminedArchive:
        return self.archives[0]

    def locate(self, path: str) -> ExaminedArchive | None:
        """Return the archive that has the content of a file of the newest one."""
        target = self.newest.records[path]
        for archive in self.archives:
            record = archive.records.get(path)
            if record is None or record.sha256 != target.sha256 or record.size != target.size:
                return None
            if record.stored:
                return archive
        return None

    def earlier_hashes(self, path: str) -> frozenset[str]:
        """Return the hashes that a file had in the older archives."""
        records = (archive.records.get(path) for archive in self.archives[1:])
        return frozenset(record.sha256 for record in records if record)


# one archive


def get_sound_archive(path: str, *, progress: Progress | None = None) -> ExaminedArchive:
    """Examine an archive by itself. Raise an ArchiveError if anything about it is wrong."""
    archive = examine_archive(os.path.abspath(os.path.expanduser(path)), progress=progress)
    _require_sound(archive.path, archive.problems)
    return archive


def _require_sound(path: str, problems: Sequence[Problem]) -> None:
    if problems:
        first = problems[0]
        more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
        hint = "Nothing was changed. 'kept verify ARCHIVE' lists the damage; use another copy."
        raise ArchiveDamaged(f"{path}: {show_path(first.path)}: {first.reason}{more}.", hint=hint)


def examine_archive(path: str, *, progress: Progress | None = None) -> ExaminedArchive:
    """Read an archive once. Raise an ArchiveError if it cannot be read to its end, or has a member that no export
    writes."""
    total = os.path.getsize(path) if os.path.isfile(path) else 0
    with opened_archive(path) as reader:

        def advance(name: str) -> None:
            if progress is not None:
                progress(reader.position, max(total, 1), name)

        pass_ = _Pass(reader, advance)
        for member in reader.iter_members():
            pass_.take(member)
    return pass_.result()


class _Pass:
    """One pass over an archive: hashes of its members, and then its manifest, which comes last."""

    def __init__(self, reader: TarReader, advance: Callable[[str], None]) -> None:
        self._path = reader.path
        self._advance = advance
        self._header: ArchiveHeader | None = None
        self._records: dict[str, FileRecord] | None = None
        self._seen: dict[str, tuple[int, bytes]] = {}

    def take(self, member: TarMember) -> None:
        if self._records is not None:
            raise self._refused("something follows its manifest")
        if self._header is None:
            self._take_header(member)
        elif member.name == MANIFEST:
            self._records = read_manifest(self._path, member.blocks())
        else:
            self._take_file(member)

    def _take_header(self, member: TarMember) -> None:
        if member.name != HEADER or member.size > MAX_HEADER_BYTES:
            raise self._refused("it is not an archive of Kept")
        raw = b"".join(member.blocks())
        self._header = read_header(self._path, raw)
        self._seen[HEADER] = len(raw), hashlib.sha256(raw).digest()

    def _take_file(self, member: TarMember) -> None:
        name = member.name
        target = parse_member_name(name)
        if isinstance(target, str):
            raise self._refused(f"the name '{show_path(name)}' {target}")
        if name in self._seen:
            raise self._refused(f"it has '{show_path(name)}' twice")
        digest = hashlib.sha256()
        for block in member.blocks():
            digest.update(block)
        self._seen[name] = member.size, digest.digest()
        self._advance(name)

    def result(self) -> ExaminedArchive:
        if self._header is None:
            raise self._refused("it is not an archive of Kept")
        if self._records is None:
            raise ArchiveDamaged(f"{self._path}: it is truncated: its manifest is missing.")
        self._require_names(self._records)
        return ExaminedArchive(self._path, self._header, self._records, tuple(self._compare()))

    def _require_names(self, records: dict[str, FileRecord]) -> None:
        """Refuse names that no export writes, and one that is both a file and a folder: such an archive could be
        restored only in part."""
        folders: set[str] = set()
        for name in records:
            if name != HEADER and isinstance(reason := parse_member_name(name), str):
                raise self._refused(f"the name '{show_path(name)}' {reason}")
            folder = name.rpartition("/")[0]
            while folder and folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
        for name in folders & records.keys():
            raise self._refused(f"'{show_path(name)}' is both a file and a folder")

    def _compare(self) -> list[Problem]:
        assert self._records is not None
        problems = [Problem(name, "is not in the manifest") for name in self._seen if name not in self._records]
        for name, record in self._records.items():
            seen = self._seen.get(name)
            if not record.stored:
                if seen is not None:
                    problems.append(Problem(name, "is in the archive although the manifest says that it is not"))
            elif seen is None:
                problems.append(Problem(name, "is missing"))
            elif seen != (record.size, bytes.fromhex(record.sha256)):
                problems.append(Problem(name, "does not match its checksum"))
        return problems

    def _refused(self, reason: str) -> ArchiveRefused:
        return ArchiveRefused(f"{self._path}: {reason}.")


# an archive and those before it


def get_sound_chain(path: str, bases: Sequence[str] = (), *, progress: Progress | None = None) -> ArchiveChain:
    """Examine an archive and those that it builds on. Raise an ArchiveError if anything about them is wrong."""
    chain = examine_chain(path, bases, progress=progress)
    for archive in chain.archives:
        _require_sound(archive.path, archive.problems)
    _require_sound(chain.newest.path, chain.problems)
    return chain


def examine_chain(path: str, bases: Sequence[str] = (), *, progress: Progress | None = None) -> ArchiveChain:
    """Examine an archive and those that it builds on: ``bases``, or files of the recorded names beside it.

    Raise ArchiveIncomplete if one is missing.
    """
    archives = [examine_archive(os.path.abspath(os.path.expanduser(path)), progress=progress)]
    while (reference := archives[-1].header.base) is not None:
        if len(archives) > _MAX_CHAIN or reference.id in {archive.header.id for archive in archives}:
            raise ArchiveRefused(f"{path}: the archives that it builds on form a circle.")
        archives.append(examine_archive(_find_base(archives[-1].path, reference, bases), progress=progress))
    chain = ArchiveChain(tuple(archives), ())
    lost = [Problem(name, "is in none of the archives that this one builds on") for name in _unlocated(chain)]
    return ArchiveChain(chain.archives, tuple(lost))


def _unlocated(chain: ArchiveChain) -> list[str]:
    return [name for name, record in chain.newest.records.items() if not record.stored and not chain.locate(name)]


def _find_base(path: str, reference: BaseReference, bases: Sequence[str]) -> str:
    """Return the path of the archive that another one builds on. It is known by its id; names may change."""
    candidates = [os.path.abspath(os.path.expanduser(base)) for base in bases]
    name = os.path.basename(reference.file)
    candidates += [os.path.join(os.path.dirname(path), name)] if name == reference.file and name else []
    for candidate in candidates:
        if os.path.isfile(candidate) and _read_id(candidate) == reference.id:
            return candidate
    base = f"{show_path(reference.file)} of {show_path(reference.created)} (id {show_path(reference.id)})"
    raise ArchiveIncomplete(f"{path}: it builds on {base}, which is not here.")


def _read_id(path: str) -> str | None:
    """Return the id of an archive, from its first member."""
    try:
        with opened_archive(path) as reader:
            for member in reader.iter_members():
                if member.name != HEADER or member.size > MAX_HEADER_BYTES:
                    return None
                return read_header(path, b"".join(member.blocks())).id
    except ArchiveError:
        pass
    return None
