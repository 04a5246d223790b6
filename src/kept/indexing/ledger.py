"""What embedding has cost, by day. Kept as JSON lines beside the index, not in it: the index may be thrown away."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, replace

from kept.clock import Clock
from kept.durable import append_durably, write_atomic
from kept.errors import KeptError
from kept.lock import locked
from kept.records import Spending

COMPACT_ABOVE_BYTES = 256_000
_LOCK_WAIT_S = 5.0


class Ledger:
    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.clock = clock

    def record(self, spent: Spending) -> str | None:
        """Adds to today's account. What cannot be written down is said, and stops nothing."""
        if not (spent.calls or spent.texts or spent.cached):
            return None
        line = replace(spent, day=f"{self.clock.now():%Y-%m-%d}")
        try:
            with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing the ledger"):
                append_durably(self.path, _line(line))
                if os.path.getsize(self.path) > COMPACT_ABOVE_BYTES:
                    write_atomic(self.path, b"".join(map(_line, self.by_day())))
        except KeptError as exc:
            return f"The ledger could not be written: {exc.message}"
        return None

    def by_day(self) -> list[Spending]:
        """One line for each day, provider and model, oldest first."""
        sums: dict[tuple[str, str, str], Spending] = {}
        for one in self._lines():
            key = (one.day, one.provider, one.model)
            sums[key] = _add(sums[key], one) if key in sums else one
        return [sums[key] for key in sorted(sums)]

    def _lines(self) -> Iterable[Spending]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    found = _parse(line)
                    if found is not None:
                        yield found
        except FileNotFoundError:
            return


def _line(spent: Spending) -> bytes:
    return json.dumps(asdict(spent)).encode() + b"\n"


def _parse(line: str) -> Spending | None:
    """None for a line that was torn by a crash: it is counted nowhere, and stands in nobody's way."""
    try:
        told = json.loads(line)
        spent = Spending(**told)
        numbers = (spent.calls, spent.texts, spent.tokens, spent.cached, spent.retries)
        return spent if all(isinstance(number, int) for number in numbers) else None
    except (ValueError, TypeError):
        return None


def _add(left: Spending, right: Spending) -> Spending:
    cost = None if left.cost_usd is None or right.cost_usd is None else left.cost_usd + right.cost_usd
    return Spending(
        provider=left.provider,
        model=left.model,
        day=left.day,
        calls=left.calls + right.calls,
        texts=left.texts + right.texts,
        tokens=left.tokens + right.tokens,
        cached=left.cached + right.cached,
        retries=left.retries + right.retries,
        cost_usd=cost,
    )
