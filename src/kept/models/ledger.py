"""Ledgers by day: usage of embedders and models, in logs of the agent.

The text fields of an entry form its key, and the numbers of entries with the same key are added up. A line that
cannot be read, or whose numbers are impossible, is not counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any, Generic, TypeVar

from kept.base.clock import Clock
from kept.base.json_values import from_tree
from kept.base.limits import MAX_COUNT
from kept.base.reports import ModelSpending, Spending
from kept.config import Config
from kept.errors import StorageConflict, WorkspaceError
from kept.storage.contract import Storage, retried
from kept.storage.open import open_agent
from kept.storage.record_store import RecordLog

EMBEDDING_LEDGER, MODEL_LEDGER = "ledger.jsonl", "models.jsonl"
COMPACT_ABOVE_BYTES = 256_000

LedgerEntry = TypeVar("LedgerEntry", Spending, ModelSpending)


class Ledger(Generic[LedgerEntry]):
    """Entries of one kind. Those of a long log are summed up."""

    def __init__(self, storage: Storage, name: str, clock: Clock, kind: type[LedgerEntry]) -> None:
        self.clock = clock
        self._storage, self._name = storage, name
        self._kind: type[LedgerEntry] = kind

    def today(self) -> str:
        return f"{self.clock.now():%Y-%m-%d}"

    def record(self, entry: LedgerEntry, check: Callable[[Sequence[LedgerEntry]], None] | None = None) -> str | None:
        """Add an entry, for today unless it names a day. An entry of zeros is not written.

        ``check`` gets the entries by day that it is added to, and may raise an error of its own. Return a message if it
        could not be written: a ledger must not stop other work.
        """
        if not any(isinstance(value, int) and value for value in asdict(entry).values()):
            return None
        line = _to_line(entry if entry.day else replace(entry, day=self.today()))

        def add() -> None:
            log = self.open_log()
            if check is not None:
                check(_by_day(log.read()))
            log.append([line], expected_end=log.end if check else None)

        try:
            retried(add)
            info = self._storage.logs.find(self._name)
            if info is not None and info.size > COMPACT_ABOVE_BYTES:
                log = self.open_log()
                with suppress(StorageConflict):  # whoever was faster sums it up
                    log.rewrite([_to_line(summed) for summed in _by_day(log.read())])
        except WorkspaceError as exc:
            return f"The ledger could not be written: {exc.message}"
        return None

    def by_day(self) -> list[LedgerEntry]:
        """Return one entry for each day and key, oldest first."""
        return _by_day(self.open_log().read())

    def open_log(self) -> RecordLog[LedgerEntry]:
        return RecordLog(self._storage, self._name, self._parse)

    def _parse(self, raw: bytes) -> LedgerEntry:
        try:
            entry = from_tree(self._kind, json.loads(raw))
            numbers = [value for value in asdict(entry).values() if isinstance(value, int | float)]
            if all(abs(value) <= MAX_COUNT for value in numbers):
                return entry
        except (ValueError, RecursionError):
            pass
        raise ValueError("it is not a ledger entry, or its numbers cannot be true; it is not counted")


def open_embedding_ledger(config: Config, clock: Clock) -> Ledger[Spending]:
    return Ledger(open_agent(config), EMBEDDING_LEDGER, clock, Spending)


def open_model_ledger(config: Config, clock: Clock) -> Ledger[ModelSpending]:
    return Ledger(open_agent(config), MODEL_LEDGER, clock, ModelSpending)


def _by_day(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    sums: dict[tuple[str, ...], LedgerEntry] = {}
    for entry in entries:
        key = _key(entry)
        sums[key] = _sum(sums[key], entry) if key in sums else entry
    return [sums[key] for key in sorted(sums)]


def tokens_of_day(entries: Iterable[ModelSpending], day: str) -> int:
    return sum(entry.tokens for entry in entries if entry.day == day)


def _to_line(entry: Spending | ModelSpending) -> bytes:
    return json.dumps(asdict(entry)).encode()


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
