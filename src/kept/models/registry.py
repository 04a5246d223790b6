"""Open the chat model that the settings name, and meter it: a ledger of tokens, and a daily budget.

An estimate of the input is recorded before a call, if nobody else recorded one since the budget was checked, and
corrected afterwards. So two processes cannot both spend the rest of a budget, and a process that is killed has paid for
its request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, assert_never

from kept.base.limits import estimate_tokens
from kept.base.remote_errors import BudgetExhausted, ModelUnavailable
from kept.base.reports import ModelSpending
from kept.base.timings import timed
from kept.config import ProviderKeys
from kept.config.schema import ModelSettings
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
from kept.models.ledger import Ledger, tokens_of_day

if TYPE_CHECKING:
    from kept.models.claude_cli import KeptServer


def make_model(settings: ModelSettings, keys: ProviderKeys, *, kept_server: KeptServer | None = None) -> ChatModel:
    """Return the configured model. Nothing is sent yet, and SDKs are imported by the first request.

    ``kept`` starts Kept's MCP server on the same memory, for a model that runs tools itself.
    """
    match settings.provider:
        case None:
            raise ModelUnavailable(
                "No model is set up.",
                hint="Set agents.defaults.model.provider in config.yaml, or KEPT_MODEL__PROVIDER, to claude_cli, "
                "anthropic or openai (Ollama and others with model.base_url), or to extractive, which needs no model.",
            )
        case "anthropic":
            from kept.models.anthropic import AnthropicChat

            return AnthropicChat(settings, keys)
        case "openai":
            from kept.models.openai import OpenAIChat

            return OpenAIChat(settings, keys)
        case "claude_cli":
            from kept.models.claude_cli import ClaudeCli

            return ClaudeCli(settings, keys, kept_server=kept_server)
        case "extractive":
            from kept.models.extractive import ExtractiveChat

            return ExtractiveChat(context_window=settings.context_window)
        case _:
            assert_never(settings.provider)


# the budget

BACKGROUND_SHARE = 0.8
"""Share of a day's budget that flushes and summaries may use; the rest is for replies."""

log = logging.getLogger(__name__)


class MeteredChat(ModelWrapper):
    """Chat model that records its spending and refuses calls above the budget."""

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
        day = self._ledger.today()

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
        problem = self._ledger.record(spending, check)
        if problem:
            log.warning("%s", problem)
