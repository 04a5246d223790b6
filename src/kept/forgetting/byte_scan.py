"""The proof: search all bytes below the home and the workspace for what was forgotten.

Each file is read as it is, whatever its kind, and searched for the text in UTF-8, UTF-16 and escaped as in JSON. In a
database there is no space between two texts, so there a word counts inside of another one too, unless a text that is
stored there explains it: "planning" in a note is not a trace of "ann".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import apsw

from kept.forgetting.needles import Matcher, Needles, byte_forms
from kept.sqlite import checksum_vfs
from kept.values import frozen

_BLOCK = 1 << 23
_DATABASE = b"SQLite format 3\0"
_GIT = ".git"


@frozen
class LeftOver:
    """A file that still has what was forgotten."""

    path: str
    count: int
    """Occurrences, or 1 if only their presence is known."""


@frozen
class ByteScan:
    files: int
    size: int
    """Bytes that were read."""
    left: tuple[LeftOver, ...]
    unread: tuple[str, ...]
    """Files that could not be read."""
    lines_searched: int
    """Removed lines that were searched for in all bytes."""


@frozen
class _Form:
    data: bytes
    starts_word: bool
    ends_word: bool


def scan_bytes(roots: Iterable[str], needles: Needles, *, leave_out: Iterable[str] = ()) -> ByteScan:
    """Search every file below the roots. ``leave_out`` are files and folders that are not searched."""
    lines = needles.longest_lines
    forms = [form for text in needles.words for form in _forms(text)]
    forms += [_Form(data, False, False) for line in lines for data in byte_forms(line)]
    files = size = 0
    left: list[LeftOver] = []
    unread: list[str] = []
    for path in iter_all_files(roots, frozenset(leave_out)):
        try:
            count, read = _search_file(path, forms, needles)
        except OSError:
            unread.append(path)
            continue
        files, size = files + 1, size + read
        if count:
            left.append(LeftOver(path, count))
    return ByteScan(files, size, tuple(left), tuple(unread), len(lines))


def _forms(text: str) -> list[_Form]:
    return [_Form(data, text[:1].isalnum(), text[-1:].isalnum()) for data in byte_forms(text)]


def iter_all_files(roots: Iterable[str], leave_out: frozenset[str]) -> Iterator[str]:
    """Yield every regular file below the roots, hidden ones too, but not the objects of git, which are compressed."""
    seen: set[tuple[int, int]] = set()
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(
                name for name in folders if name != _GIT and os.path.join(folder, name) not in leave_out
            )
            for name in sorted(names):
                path = os.path.join(folder, name)
                try:
                    state = os.lstat(path)
                except OSError:
                    continue
                is_file = not os.path.islink(path) and os.path.isfile(path)
                if is_file and path not in leave_out and (state.st_dev, state.st_ino) not in seen:
                    seen.add((state.st_dev, state.st_ino))
                    yield path


def _search_file(path: str, forms: list[_Form], needles: Needles) -> tuple[int, int]:
    """Return the number of occurrences in a file, and its size."""
    longest = max((len(form.data) for form in forms), default=1)
    count = size = 0
    is_database = False
    with open(path, "rb") as file:
        before = b""
        while block := file.read(_BLOCK):
            is_database = is_database or (not size and block.startswith(_DATABASE))
            size += len(block)
            data = before + block.lower()
            count += sum(_occurrences(data, form, len(before), any_place=is_database) for form in forms)
            before = data[-(longest + 1) :]
    if count and is_database:
        return (0 if _is_explained(path, needles) else count), size
    return count, size


def _occurrences(data: bytes, form: _Form, known: int, *, any_place: bool) -> int:
    """Return how often a form occurs, without occurrences in the first ``known`` bytes, which were searched before."""
    count, at = 0, data.find(form.data)
    while at >= 0:
        end = at + len(form.data)
        is_new = end > known
        is_word = any_place or not (
            (form.starts_word and at and _is_letter(data[at - 1])) or (form.ends_word and _is_letter_at(data, end))
        )
        count += is_new and is_word
        at = data.find(form.data, at + 1)
    return count


def _is_letter_at(data: bytes, at: int) -> bool:
    return at < len(data) and _is_letter(data[at])


def _is_letter(byte: int) -> bool:
    return byte >= 0x80 or chr(byte).isalnum() or byte == 0x5F


def _is_explained(path: str, needles: Needles) -> bool:
    """Return whether no stored text has a match, and some of them have the letters inside of other words."""
    matcher = Matcher(needles)
    inside = [text.casefold() for text in needles.words]
    has_letters = False
    for text in _stored_texts(path):
        if matcher.matches(text):
            return False
        has_letters = has_letters or any(part in text.casefold() for part in inside)
    return has_letters


def _stored_texts(path: str) -> Iterator[str]:
    """Yield every text in the tables of a database. One that cannot be read has none to explain anything."""
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY, vfs=checksum_vfs())
    except apsw.Error:
        return
    try:
        yield from (sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema") if sql)
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            if not _is_virtual(db, table):
                yield from _column_texts(db, table)
    except apsw.Error:
        return
    finally:
        db.close()


def _is_virtual(db: apsw.Connection, table: str) -> bool:
    sql = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get
    return isinstance(sql, str) and sql.upper().startswith("CREATE VIRTUAL")


def _column_texts(db: apsw.Connection, table: str) -> Iterator[str]:
    quoted = table.replace('"', '""')
    for row in db.execute(f'SELECT * FROM "{quoted}"'):
        yield from (value for value in row if isinstance(value, str))


Scanner = Callable[[Needles], ByteScan]
