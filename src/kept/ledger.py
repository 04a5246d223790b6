"""What embedding and models have used, and what was healed, by day: JSON lines beside the index, which may be deleted.

A line is a value whose texts say what it is about and whose numbers are added up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, Generic, TypeVar

from kept.clock import Clock
from kept.durable import append_durably, make_private_folder, write_atomic
from kept.errors import KeptError
from kept.lock import locked
from kept.records import Heal, ModelSpending, Spending

COMPACT_ABOVE_BYTES = 256_000
_LOCK_WAIT_S = 5.0

Line = TypeVar("Line", Spending, ModelSpending, Heal)


class Ledger(Generic[Line]):
    def __init__(self, path: str, clock: Clock, kind: type[Line]) -> None:
        self.path = path
        self.clock = clock
        self._kind: type[Line] = kind

    def today(self) -> str:
        return f"{self.clock.now():%Y-%m-%d}"

    def record(self, spent: Line) -> str | None:
        """Adds to an account, today's unless the line names a day. What cannot be written down is said, and stops
        nothing."""
        if not any(isinstance(value, int) and value for value in asdict(spent).values()):
            return None
        try:
            with self.held():
                self.add(spent)
        except (KeptError, OSError) as exc:
            return f"The ledger could not be written: {exc}"
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """While this lasts no other process adds anything: for whoever has to look before adding."""
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing the ledger"):
            yield

    def add(self, spent: Line) -> None:
        """The caller holds the ledger."""
        append_durably(self.path, _line(spent if spent.day else replace(spent, day=self.today())))
        if os.path.getsize(self.path) > COMPACT_ABOVE_BYTES:
            write_atomic(self.path, b"".join(map(_line, self.by_day())))

    def by_day(self) -> list[Line]:
        """One line for each day and what else it is about, oldest first."""
        sums: dict[tuple[str, ...], Line] = {}
        for one in self._lines():
            key = _about(one)
            sums[key] = _sum(sums[key], one) if key in sums else one
        return [sums[key] for key in sorted(sums)]

    def _lines(self) -> Iterable[Line]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    found = self._parse(line)
                    if found is not None:
                        yield found
        except FileNotFoundError:
            return

    def _parse(self, line: str) -> Line | None:
        """None for a line that was torn by a crash: it is counted nowhere, and stands in nobody's way."""
        try:
            spent = self._kind(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            return None
        return spent if all(_fits(spec.default, getattr(spent, spec.name)) for spec in fields(spent)) else None


def open_model_ledger(home: str, agent_id: str, clock: Clock) -> Ledger[ModelSpending]:
    return Ledger(os.path.join(home, "agents", agent_id, "models.jsonl"), clock, ModelSpending)


def open_heal_ledger(folder: str, clock: Clock) -> Ledger[Heal]:
    """The record of an agent's damaged files, in the agent's folder."""
    return Ledger(os.path.join(folder, "heals.jsonl"), clock, Heal)


def tokens_of_day(lines: Iterable[ModelSpending], day: str) -> int:
    return sum(line.tokens for line in lines if line.day == day)


def _fits(default: object, value: object) -> bool:
    if isinstance(default, int):
        return isinstance(value, int)
    if default is None:
        return value is None or isinstance(value, int | float)
    return isinstance(value, str)


def _line(spent: Spending | ModelSpending | Heal) -> bytes:
    return json.dumps(asdict(spent)).encode() + b"\n"


def _about(spent: Spending | ModelSpending | Heal) -> tuple[str, ...]:
    texts = {name: value for name, value in asdict(spent).items() if isinstance(value, str)}
    return (texts.pop("day"), *texts.values())


def _sum(left: Line, right: Line) -> Line:
    sums: dict[str, Any] = {}
    for spec in fields(left):
        one, other = getattr(left, spec.name), getattr(right, spec.name)
        if not isinstance(one, str):
            sums[spec.name] = None if one is None or other is None else one + other
    return replace(left, **sums)
