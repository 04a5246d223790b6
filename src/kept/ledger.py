"""What embedding and models have used, by day: JSON lines beside the index, not in it, which may be thrown away.

A line is a value whose texts say what it is about and whose numbers are added up. A line that cannot be read, or whose
numbers cannot be true, counts nowhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, Generic, TypeVar

from kept.clock import Clock
from kept.durable import append_durably, make_private_folder, write_atomic
from kept.errors import KeptError, WorkspaceError
from kept.limits import MAX_COUNT, is_amount, is_storable
from kept.lock import locked
from kept.quarantine import Fault, mend_end, set_aside
from kept.records import ModelSpending, Spending

COMPACT_ABOVE_BYTES = 256_000
_LOCK_WAIT_S = 5.0
_NO_SPENDING = "it is no account of what was spent, or its numbers cannot be true; it is not counted"

Line = TypeVar("Line", Spending, ModelSpending)


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
        mend_end(self.path, lambda raw: self._parse(raw) is not None)
        append_durably(self.path, _line(spent if spent.day else replace(spent, day=self.today())))
        if os.path.getsize(self.path) > COMPACT_ABOVE_BYTES:
            set_aside(self.path, self._damaged())
            write_atomic(self.path, b"".join(map(_line, self.by_day())))

    def by_day(self) -> list[Line]:
        """One line for each day and what else it is about, oldest first."""
        sums: dict[tuple[str, ...], Line] = {}
        for one in filter(None, map(self._parse, self._raw_lines())):
            key = _about(one)
            sums[key] = _sum(sums[key], one) if key in sums else one
        return [sums[key] for key in sorted(sums)]

    # damage

    def faults(self) -> list[Fault]:
        """Return the lines that count nowhere. Change nothing."""
        lines = enumerate(self._raw_lines(), 1)
        return [Fault(self.path, number, _NO_SPENDING) for number, raw in lines if self._parse(raw) is None]

    def mend(self) -> None:
        """Move the lines that count nowhere into a file beside the ledger."""
        if not self._damaged():
            return
        with self.held():
            set_aside(self.path, self._damaged())
            write_atomic(self.path, b"".join(raw + b"\n" for raw in self._raw_lines() if self._parse(raw)))

    def _damaged(self) -> list[bytes]:
        return [raw for raw in self._raw_lines() if self._parse(raw) is None]

    def _raw_lines(self) -> Sequence[bytes]:
        try:
            with open(self.path, "rb") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return ()
        except OSError as exc:
            raise WorkspaceError(f"{self.path}: cannot be read ({exc.strerror}).") from exc

    def _parse(self, raw: bytes) -> Line | None:
        try:
            spent = self._kind(**json.loads(raw))
        except (ValueError, TypeError, RecursionError):
            return None
        return spent if all(_fits(spec.default, getattr(spent, spec.name)) for spec in fields(spent)) else None


def open_model_ledger(home: str, agent_id: str, clock: Clock) -> Ledger[ModelSpending]:
    return Ledger(os.path.join(home, "agents", agent_id, "models.jsonl"), clock, ModelSpending)


def tokens_of_day(lines: Iterable[ModelSpending], day: str) -> int:
    return sum(line.tokens for line in lines if line.day == day)


def _fits(default: object, value: object) -> bool:
    """Corrections of an estimate are negative, so a sign is no fault."""
    if isinstance(default, int):
        return type(value) is int and abs(value) <= MAX_COUNT
    if default is None:
        return value is None or is_amount(value)
    return isinstance(value, str) and is_storable(value)


def _line(spent: Spending | ModelSpending) -> bytes:
    return json.dumps(asdict(spent)).encode() + b"\n"


def _about(spent: Spending | ModelSpending) -> tuple[str, ...]:
    texts = {name: value for name, value in asdict(spent).items() if isinstance(value, str)}
    return (texts.pop("day"), *texts.values())


def _sum(left: Line, right: Line) -> Line:
    sums: dict[str, Any] = {}
    for spec in fields(left):
        one, other = getattr(left, spec.name), getattr(right, spec.name)
        if not isinstance(one, str):
            sums[spec.name] = None if one is None or other is None else one + other
    return replace(left, **sums)
