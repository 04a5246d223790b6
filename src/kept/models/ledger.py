"""Ledgers by day: usage of embedders and models, in logs of the agent, and the daily budget of a model.

The text fields of an entry form its key, and the numbers of entries with the same key are added up. A line that
cannot be read, or whose numbers are impossible, is not counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, fields, replace
from typing import Any, Generic, TypeVar

from kept.base.clock import Clock
from kept.base.json_values import from_tree
from kept.base.limits import MAX_COUNT, estimate_tokens
from kept.base.remote_errors import BudgetExhausted
from kept.base.reports import ModelSpending, Spending
from kept.base.timings import timed
from kept.config import Config
from kept.errors import StorageConflict, WorkspaceError
from kept.models.base import (
    ChatModel,
    ChatRequest,
    Finished,
    ModelEvent,
    ModelUsage,
    ModelWrapper,
    Purpose,
    TextDelta,
    count_tokens,
)
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

    def record(self, entry: LedgerEntry, check: Callable[[Sequence[LedgerEntry]], None] | None = None) -> str | None:
        """Add an entry, for today unless it names a day. An entry of zeros is not written.

        ``check`` gets the entries by day that it is added to, and may raise an error of its own. Return a message if it
        could not be written: a ledger must not stop other work.
        """
        if not any(isinstance(value, int) and value for value in asdict(entry).values()):
            return None
        line = json.dumps(asdict(entry if entry.day else replace(entry, day=str(self.clock.now().date())))).encode()

        @retried
        def add() -> None:
            log = self.open_log()
            if check is not None:
                check(_by_day(log.read()))
            log.append([line], expected_end=log.end if check else None)

        try:
            add()
            info = self._storage.logs.find(self._name)
            if info is not None and info.size > COMPACT_ABOVE_BYTES:
                log = self.open_log()
                with suppress(StorageConflict):  # whoever was faster sums it up
                    log.rewrite([json.dumps(asdict(summed)).encode() for summed in _by_day(log.read())])
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


# the budget

BACKGROUND_SHARE = 0.8
"""Share of a day's budget that flushes and summaries may use; the rest is for replies."""


class MeteredChat(ModelWrapper):
    """Chat model that records its spending and refuses calls above the budget.

    An estimate of the input is recorded before a call, if nobody else recorded one since the budget was checked, and
    corrected afterwards. So two processes cannot both spend the rest of a budget, and a process that is killed has paid
    for its request.
    """

    def __init__(self, model: ChatModel, ledger: Ledger[ModelSpending], *, budget_tokens: int | None = None) -> None:
        super().__init__(model)
        self._model = model
        self._ledger = ledger
        self._budget = budget_tokens

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        estimate = count_tokens(request)
        usage: ModelUsage | None = None
        output_tokens = 0
        with timed("model_call", model=self.name):
            day = await asyncio.to_thread(self._begin, request.purpose, estimate)
            try:
                async with aclosing(self._model.stream(request)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            usage = event.usage
                        elif isinstance(event, TextDelta):
                            output_tokens += estimate_tokens(event.text)
                        yield event
            finally:
                # An answer that broke off after some text has been charged for; a call that failed at once has not.
                actual = usage or ModelUsage(estimate if output_tokens else 0, output_tokens)
                spending = ModelSpending(
                    self.provider,
                    self.name,
                    request.purpose,
                    day,
                    input=actual.input - estimate,
                    output=actual.output,
                    cached=actual.cached,
                    failures=int(usage is None),
                )
                await asyncio.shield(asyncio.to_thread(self._record, spending))

    async def close(self) -> None:
        await self._model.close()

    def _begin(self, purpose: Purpose, estimate: int) -> str:
        """Record the estimate and return the day that the call counts for, even if it ends on the next one."""
        day = str(self._ledger.clock.now().date())

        def check(entries: Sequence[ModelSpending]) -> None:
            budget = self._budget or 0
            spent, limit = tokens_of_day(entries, day), budget if purpose == "reply" else int(budget * BACKGROUND_SHARE)
            if spent + estimate > limit:
                rest = "" if purpose == "reply" else f" The last {budget - limit:,} are kept for replies."
                raise BudgetExhausted(
                    f"The {purpose} would exceed today's budget of {budget:,} tokens: {spent:,} are used, it needs "
                    f"about {estimate:,}. Nothing was sent.{rest}"
                )

        line = ModelSpending(self.provider, self.name, purpose, day, calls=1, input=estimate)
        self._record(line, None if self._budget is None else check)
        return day

    def _record(self, spending: ModelSpending, check: Callable[[Sequence[ModelSpending]], None] | None = None) -> None:
        if problem := self._ledger.record(spending, check):
            logging.getLogger(__name__).warning("%s", problem)
