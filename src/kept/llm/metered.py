"""A model that is counted, and that a daily budget stops.

Before a call its input is written down as an estimate, under the ledger's lock, and afterwards corrected: so two
processes cannot both spend what is left, and a process that is killed has paid for what it asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from kept.errors import BudgetExhausted, KeptError
from kept.ledger import Ledger, tokens_of_day
from kept.llm.base import ChatModel, ChatRequest, Finished, ModelEvent, ModelUsage, Purpose, TextDelta
from kept.llm.measure import count_tokens
from kept.records import ModelSpending
from kept.tokens import estimate_tokens

BACKGROUND_SHARE = 0.8
"""How much of a day's budget calls that nobody waits for may use up; the rest is kept for replies."""

log = logging.getLogger(__name__)


class MeteredChat:
    def __init__(self, model: ChatModel, ledger: Ledger[ModelSpending], *, budget_tokens: int | None = None) -> None:
        self.provider = model.provider
        self.name = model.name
        self.context_window = model.context_window
        self.runs_tools = model.runs_tools
        self._model = model
        self._ledger = ledger
        self._budget = budget_tokens

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        estimate = count_tokens(request)
        day = await asyncio.to_thread(self._begin, request.purpose, estimate)
        used: ModelUsage | None = None
        said = 0
        try:
            async with aclosing(_closable(self._model, request)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        used = event.usage
                    elif isinstance(event, TextDelta):
                        said += estimate_tokens(event.text)
                    yield event
        finally:
            failed = used is None
            # What broke off after some words has been read, and is paid for; what failed at once has not.
            actual = used or ModelUsage(estimate if said else 0, said)
            spent = self._line(request.purpose, day, actual, -estimate, failures=int(failed))
            await asyncio.shield(asyncio.to_thread(self._record, spent))

    async def close(self) -> None:
        await self._model.close()

    def _begin(self, purpose: Purpose, estimate: int) -> str:
        """The day that the call belongs to, also when it ends on the next."""
        day = self._ledger.today()
        line = ModelSpending(self.provider, self.name, purpose, day, calls=1, input=estimate)
        try:
            with self._ledger.locked():
                if self._budget is not None:
                    self._check(purpose, tokens_of_day(self._ledger.by_day(), day), estimate)
                self._ledger.add(line)
        except BudgetExhausted:
            raise
        except (KeptError, OSError) as exc:
            log.warning("The ledger of models could not be written: %s", exc)
        return day

    def _check(self, purpose: Purpose, spent: int, estimate: int) -> None:
        budget = self._budget or 0
        if spent + estimate > budget:
            raise BudgetExhausted(
                f"Today's budget of {budget:,} tokens does not allow it: {spent:,} are used, and about {estimate:,} "
                "would be added. Nothing was sent."
            )
        if purpose != "reply" and spent + estimate > budget * BACKGROUND_SHARE:
            raise BudgetExhausted(
                f"{spent:,} of today's {budget:,} tokens are used; what is left is kept for replies, so no {purpose} "
                "was asked of the model."
            )

    def _line(self, purpose: Purpose, day: str, used: ModelUsage, correction: int, *, failures: int) -> ModelSpending:
        read = used.input + correction
        return ModelSpending(
            self.provider,
            self.name,
            purpose,
            day,
            input=read,
            output=used.output,
            cached=used.cached,
            failures=failures,
        )

    def _record(self, spent: ModelSpending) -> None:
        problem = self._ledger.record(spent)
        if problem:
            log.warning("%s", problem)


async def _closable(model: ChatModel, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
    """A stream may be any iterator of events; this one can be closed, and closes that."""
    events = model.stream(request)
    try:
        async for event in events:
            yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
