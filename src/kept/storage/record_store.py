"""Records in a storage: a value in a document (`Book`), or one record in each line of a log (`RecordLog`).

A record that cannot be read is left out and reported, and costs only itself. What a writer would drop is copied beside
it first, to FILE.damaged.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from kept.base.json_values import read_value, to_tree
from kept.base.limits import strict_json
from kept.errors import DocumentNotFound, KeptError, StorageConflict
from kept.storage.contract import (
    ABSENT,
    START,
    Append,
    Change,
    Document,
    Lease,
    LogPosition,
    Rewrite,
    Storage,
    Write,
    retried,
)

T = TypeVar("T")

DAMAGED_ENDING = ".damaged"
VERSION = 1


class RecordLog(Generic[T]):
    """Records in the lines of a log. ``parse`` raises ValueError with the reason why it refuses a line."""

    def __init__(self, storage: Storage, name: str, parse: Callable[[bytes], T], *, lease: Lease | None = None) -> None:
        self.name = name
        self.faults: list[str] = []
        """What the last reading left out, and why."""
        self.end: LogPosition = START
        """Where the log ended when it was read or changed last."""
        self._storage, self._parse, self._lease = storage, parse, lease
        self._damaged: list[bytes] = []

    def read(self) -> Iterator[T]:
        """Yield every record that can be read. Changes nothing."""
        self.faults, self._damaged = [], []
        self.end = self._storage.logs.end(self.name)
        for number, line in enumerate(self._storage.logs.read(self.name), 1):
            if not line.data.strip():
                continue  # it was blanked
            try:
                record = self._parse(line.data)
            except ValueError as exc:
                self.faults.append(f"{self.name}, line {number}: {exc}")
                self._damaged.append(line.data)
            else:
                yield record

    def find_faults(self) -> list[str]:
        """Read all, and return what is left out."""
        for _ in self.read():
            pass
        return self.faults

    def append(self, lines: Sequence[bytes], *, expected_end: LogPosition | None = None) -> None:
        self.end = self._storage.commit([Append(self.name, lines, expected_end)], lease=self._lease)[self.name]

    def rewrite(self, lines: Sequence[bytes], *, erase: bool = False) -> None:
        """Replace all lines, unless another process was faster. Those that `read` left out are set aside, each once."""
        # In one commit, so that a line is never in neither of the two logs.
        changes: list[Change] = [Rewrite(self.name, lines, self.end, erase)]
        if self._damaged:
            aside = self.name + DAMAGED_ENDING
            # A rewrite may have failed before, or another process may have done the same.
            known = {line.data for line in self._storage.logs.read(aside)}
            changes.append(Append(aside, [line for line in dict.fromkeys(self._damaged) if line not in known]))
        self.end = self._storage.commit(changes, lease=self._lease)[self.name]
        self._damaged = []


class Book(Generic[T]):
    """A value of the class ``kind`` in a document, which several processes read and change. Safe between threads.

    Records in it are read one by one, so one that is damaged costs only itself. A record may refuse itself in a method
    ``check``, which raises ValueError or a KeptError.
    """

    def __init__(self, storage: Storage, name: str, kind: type[T]) -> None:
        self.name = name
        self.damaged_copies = 0
        """How often a change copied the document, because something in it was damaged."""
        self._storage, self._kind = storage, kind
        # One value, so that no thread ever sees the state of one reading with the value of another.
        self._seen: tuple[str, T, list[str]] = ABSENT, kind(), []

    @property
    def faults(self) -> list[str]:
        """What the last reading left out, and why."""
        return self._seen[2]

    def exists(self) -> bool:
        return self._storage.documents.find(self.name) is not None

    def read(self) -> T:
        """Return what can be read. Changes nothing, and does not read again what has not changed."""
        info = self._storage.documents.find(self.name)
        state, value, _ = self._seen
        if (ABSENT if info is None else info.state) != state:
            _, value, _ = self._load()
        return value

    def find_faults(self) -> list[str]:
        """Return what is left out."""
        self.read()
        return self.faults

    @retried
    def change(self, change: Callable[[T], T], *, erase: bool = False) -> T:
        """Change the value and return it. A damaged document is copied first. ``erase`` overwrites the old bytes."""
        document, before, faults = self._load()
        after = change(before)
        if after == before and not faults:
            return after
        version = ABSENT if document is None else document.version
        changes: list[Change] = [Write(self.name, dump_book(after), version, erase)]
        if document is not None and faults:
            aside = self._find(self.name + DAMAGED_ENDING)
            data, version = (b"", ABSENT) if aside is None else (aside.data, aside.version)
            changes.append(Write(self.name + DAMAGED_ENDING, data + document.data, version))
        self._storage.commit(changes)
        self.damaged_copies += bool(faults)
        return after

    def _load(self) -> tuple[Document | None, T, list[str]]:
        document, faults = self._find(self.name), list[str]()
        if document is None:
            value, state = self._kind(), ABSENT
        else:
            value = self._parse(document.data, lambda reason: faults.append(f"{self.name}: {reason}"))
            state = document.info.state
        self._seen = state, value, faults
        return document, value, faults

    def _find(self, name: str) -> Document | None:
        try:
            return self._storage.documents.read(name)
        except DocumentNotFound:
            return None

    def _parse(self, content: bytes, report: Callable[[str], None]) -> T:
        try:
            tree = strict_json.decode(content.decode("utf-8"))
        except (ValueError, RecursionError):
            tree = None
        if not isinstance(tree, dict) or tree.get("version") != VERSION:
            report("it is not JSON of this version")
            return self._kind()
        hints = get_type_hints(self._kind)
        names = [spec.name for spec in fields(self._kind)]  # type: ignore[arg-type]
        values = {name: _read_field(name, hints[name], tree, report) for name in names}
        return self._kind(**{name: value for name, value in values.items() if value is not None})


def _read_field(name: str, hint: Any, tree: dict[str, Any], report: Callable[[str], None]) -> Any:
    if get_origin(hint) is not tuple:
        return _read_part(name, hint, tree.get(name), report)
    listed = tree.get(name, [])
    if not isinstance(listed, list):
        report(f"its {name} are not a list")
        return None
    noun = name.removesuffix("s")
    parts = (_read_part(f"{noun} {at}", get_args(hint)[0], part, report) for at, part in enumerate(listed, 1))
    return tuple(part for part in parts if part is not None)


def _read_part(name: str, hint: Any, tree: Any, report: Callable[[str], None]) -> Any:
    try:
        value = read_value(hint, tree)
        if hasattr(value, "check"):
            value.check()
    except (ValueError, KeptError) as exc:
        report(f"{name} cannot be read" + (f": {exc.message}" if isinstance(exc, KeptError) else ""))
        return None
    return value


def dump_book(book: Any) -> bytes:
    """Return the content of a document with this value."""
    return json.dumps({"version": VERSION, **to_tree(book)}, ensure_ascii=False, indent=1).encode() + b"\n"


_KEY_BYTES = 32


def load_key(storage: Storage, name: str) -> bytes:
    """Return the secret key in a document, and create it if it is missing. If that fails, it is new in each process."""
    key = secrets.token_bytes(_KEY_BYTES)
    try:
        if not (info := storage.documents.find(name)) or info.size != _KEY_BYTES:
            with suppress(StorageConflict):
                storage.commit([Write(name, key, None if info else ABSENT)])
        return storage.documents.read(name).data
    except KeptError:
        return key
