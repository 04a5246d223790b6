"""Ledgers by day: usage of embedders and models. JSON lines in the agent's folder.

The text fields of an entry form its key, and the numbers of entries with the same key are added up. A line that
cannot be read, or whose numbers are impossible, is not counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, Generic, TypeVar

from kept.base.clock import Clock
from kept.base.damaged_records import Fault, repair_end
from kept.base.durable import append_durably, make_private_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.json_values import from_tree
from kept.base.limits import MAX_COUNT
from kept.base.reports import ModelSpending, Spending
from kept.config import Config
from kept.errors import KeptError, WorkspaceError

COMPACT_ABOVE_BYTES = 256_000
_LOCK_WAIT_S = 5.0
_NOT_AN_ENTRY = "it is not a ledger entry, or its numbers cannot be true; it is not counted"

LedgerEntry = TypeVar("LedgerEntry", Spending, ModelSpending)


class Ledger(Generic[LedgerEntry]):
    """A file of entries of one kind. Those of a large file are summed up."""

    def __init__(self, path: str, clock: Clock, kind: type[LedgerEntry]) -> None:
        self.path = path
        self.clock = clock
        self._kind: type[LedgerEntry] = kind

    def today(self) -> str:
        return f"{self.clock.now():%Y-%m-%d}"

    def record(self, entry: LedgerEntry) -> str | None:
        """Add an entry, for today unless it names a day. An entry of zeros is not written.

        Return a message if it could not be written: a ledger must not stop other work.
        """
        if not any(isinstance(value, int) and value for value in asdict(entry).values()):
            return None
        try:
            with self.locked():
                self.add(entry)
        except (KeptError, OSError) as exc:
            reason = exc.message if isinstance(exc, KeptError) else exc
            return f"The ledger could not be written: {reason}"
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the ledger, for a caller that has to read before it adds."""
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing the ledger"):
            yield

    def add(self, entry: LedgerEntry) -> None:
        """Append an entry. The caller holds the lock."""
        repair_end(self.path, lambda raw: self._parse(raw) is not None)
        append_durably(self.path, _to_line(entry if entry.day else replace(entry, day=self.today())))
        if os.path.getsize(self.path) > COMPACT_ABOVE_BYTES:
            write_atomic(self.path, b"".join(map(_to_line, self.by_day())))

    def by_day(self) -> list[LedgerEntry]:
        """Return one entry for each day and key, oldest first."""
        sums: dict[tuple[str, ...], LedgerEntry] = {}
        for entry in filter(None, map(self._parse, self._raw_lines())):
            key = _key(entry)
            sums[key] = _sum(sums[key], entry) if key in sums else entry
        return [sums[key] for key in sorted(sums)]

    # damage

    def faults(self) -> list[Fault]:
        """Return the lines that are not counted. Change nothing."""
        lines = enumerate(self._raw_lines(), 1)
        return [Fault(self.path, number, _NOT_AN_ENTRY) for number, raw in lines if self._parse(raw) is None]

    def _raw_lines(self) -> Sequence[bytes]:
        try:
            with open(self.path, "rb") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return ()
        except OSError as exc:
            raise WorkspaceError(f"{self.path}: cannot be read ({exc.strerror}).") from exc

    def _parse(self, raw: bytes) -> LedgerEntry | None:
        """Return the entry of a line, or None for a damaged line, which is not counted."""
        try:
            entry = from_tree(self._kind, json.loads(raw))
        except (ValueError, RecursionError):
            return None
        numbers = (value for value in asdict(entry).values() if isinstance(value, int | float))
        return entry if all(abs(value) <= MAX_COUNT for value in numbers) else None


def open_embedding_ledger(config: Config, clock: Clock) -> Ledger[Spending]:
    return Ledger(config.paths.embedding_ledger, clock, Spending)


def open_model_ledger(config: Config, clock: Clock) -> Ledger[ModelSpending]:
    return Ledger(config.paths.model_ledger, clock, ModelSpending)


def tokens_of_day(entries: Iterable[ModelSpending], day: str) -> int:
    return sum(entry.tokens for entry in entries if entry.day == day)


def _to_line(entry: Spending | ModelSpending) -> bytes:
    return json.dumps(asdict(entry)).encode() + b"\n"


def _key(entry: Spending | ModelSpending) -> tuple[str, ...]:
    """Return the day and the other texts of an entry."""
    texts = {name: value for name, value in asdict(entry).items() if isinstance(value, str)}
    return (texts.pop("day"), *texts.values())


def _sum(left: LedgerEntry, right: LedgerEntry) -> LedgerEntry:
    sums: dict[str, Any] = {}
    for spec in fields(left):
        value, other = getattr(left, spec.name), getattr(right, spec.name)
        if not isinstance(value, str):
            sums[spec.name] = None if value is None or other is None else value + other
    return replace(left, **sums)
