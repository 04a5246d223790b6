"""A small JSON file that is derived from nothing, and that several processes read and change."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kept.damaged_records import Fault, set_file_aside
from kept.durable import make_private_folder, write_atomic
from kept.errors import WriteFailed
from kept.file_lock import locked
from kept.limits import is_time

T = TypeVar("T")

_LOCK_WAIT_S = 10.0


class BookFile(Generic[T]):
    """File of a value. Every change locks and reads it first.

    ``parse`` returns what can be read of a file, and the reasons why the rest cannot. ``dump`` returns the new content,
    ``empty`` the value of a file that does not exist. ``purpose`` completes "Another process is …".
    """

    def __init__(
        self,
        path: str,
        *,
        empty: Callable[[], T],
        parse: Callable[[bytes], tuple[T, list[str]]],
        dump: Callable[[T], bytes],
        purpose: str,
    ) -> None:
        self.path = path
        self.faults: list[Fault] = []
        """What the last reading left out, and why."""
        self._empty = empty
        self._parse = parse
        self._dump = dump
        self._purpose = purpose

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def read(self) -> T:
        """Return what can be read. Reading changes nothing, even if the file is damaged."""
        return self._read(self._content())

    def change(self, change: Callable[[T], T]) -> T:
        """Change the value and return it. A damaged file is copied first."""
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose=self._purpose):
            content = self._content()
            before = self._read(content)
            after = change(before)
            if self.faults:
                self.note_copy(set_file_aside(self.path, content or b""))
            if after != before or self.faults:
                write_atomic(self.path, self._dump(after))
            return after

    def note_copy(self, path: str) -> None:
        """Note that a damaged file was copied, so that a caller can report it. Does nothing here."""

    def _content(self) -> bytes | None:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise WriteFailed(f"{self.path}: cannot be read ({exc.strerror}).", hint="Check its permissions.") from exc

    def _read(self, content: bytes | None) -> T:
        self.faults = []
        if content is None:
            return self._empty()
        value, reasons = self._parse(content)
        self.faults = [Fault(self.path, None, reason) for reason in reasons]
        return value


def format_moment(moment: dt.datetime | None) -> str | None:
    """Return a time as it is written into such a file: in UTC, to the second."""
    return moment.astimezone(dt.UTC).isoformat(timespec="seconds") if moment else None


def parse_moment(value: Any) -> dt.datetime | None:
    """Return a time of such a file, or None for null. Raise TypeError or ValueError for anything else."""
    if value is None:
        return None
    moment = dt.datetime.fromisoformat(value)
    if moment.tzinfo is None or not is_time(moment):
        raise ValueError("not a time")
    return moment.astimezone(dt.UTC)
