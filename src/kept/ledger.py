"""Ledgers by day: what embedding and models have used, and what was healed. JSON lines in the agent's folder.

The text fields of an entry form its key, and the numbers of entries with the same key are added up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, Generic, TypeVar

from kept.clock import Clock
from kept.config import Config
from kept.durable import append_durably, make_private_folder, write_atomic
from kept.errors import KeptError
from kept.lock import locked
from kept.records import Heal, ModelSpending, Spending

COMPACT_ABOVE_BYTES = 256_000
_LOCK_WAIT_S = 5.0

LedgerEntry = TypeVar("LedgerEntry", Spending, ModelSpending, Heal)


class Ledger(Generic[LedgerEntry]):
    """A file of entries of one kind. ``compact_above_bytes`` is the size above which entries are summed up."""

    def __init__(
        self, path: str, clock: Clock, kind: type[LedgerEntry], *, compact_above_bytes: int = COMPACT_ABOVE_BYTES
    ) -> None:
        self.path = path
        self.clock = clock
        self._kind: type[LedgerEntry] = kind
        self._compact_above_bytes = compact_above_bytes

    def today(self) -> str:
        return f"{self.clock.now():%Y-%m-%d}"

    def record(self, entry: LedgerEntry) -> str | None:
        """Add an entry, for today unless it names a day. Return a message if it could not be written: a ledger stops
        no other work. An entry of zeros is not written."""
        if not any(isinstance(value, int) and value for value in asdict(entry).values()):
            return None
        try:
            with self.locked():
                self.add(entry)
        except (KeptError, OSError) as exc:
            return f"The ledger could not be written: {exc}"
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from adding entries, for a caller that has to read before it adds."""
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing the ledger"):
            yield

    def add(self, entry: LedgerEntry) -> None:
        """Append an entry. The caller holds the lock."""
        append_durably(self.path, _to_line(entry if entry.day else replace(entry, day=self.today())))
        if os.path.getsize(self.path) > self._compact_above_bytes:
            write_atomic(self.path, b"".join(map(_to_line, self.by_day())))

    def by_day(self) -> list[LedgerEntry]:
        """Return one entry for each day and key, oldest first."""
        sums: dict[tuple[str, ...], LedgerEntry] = {}
        for entry in self._iter_entries():
            key = _key(entry)
            sums[key] = _sum(sums[key], entry) if key in sums else entry
        return [sums[key] for key in sorted(sums)]

    def _iter_entries(self) -> Iterator[LedgerEntry]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    entry = self._parse(line)
                    if entry is not None:
                        yield entry
        except FileNotFoundError:
            return

    def _parse(self, line: str) -> LedgerEntry | None:
        """Return the entry of a line, or None for a line that a crash tore: it is not counted."""
        try:
            entry = self._kind(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            return None
        return entry if all(_fits(spec.default, getattr(entry, spec.name)) for spec in fields(entry)) else None


def open_embedding_ledger(config: Config, clock: Clock) -> Ledger[Spending]:
    return Ledger(config.paths.embedding_ledger, clock, Spending)


def open_model_ledger(config: Config, clock: Clock) -> Ledger[ModelSpending]:
    return Ledger(config.paths.model_ledger, clock, ModelSpending)


def open_heal_ledger(folder: str, clock: Clock) -> Ledger[Heal]:
    """Open the record of damaged files in an agent's folder."""
    return Ledger(os.path.join(folder, "heals.jsonl"), clock, Heal)


def tokens_of_day(entries: Iterable[ModelSpending], day: str) -> int:
    return sum(entry.tokens for entry in entries if entry.day == day)


def _fits(default: object, value: object) -> bool:
    """Return whether a value has the type of its field, as its default shows it."""
    if isinstance(default, int):
        return isinstance(value, int)
    if default is None:
        return value is None or isinstance(value, int | float)
    return isinstance(value, str)


def _to_line(entry: Spending | ModelSpending | Heal) -> bytes:
    return json.dumps(asdict(entry)).encode() + b"\n"


def _key(entry: Spending | ModelSpending | Heal) -> tuple[str, ...]:
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
