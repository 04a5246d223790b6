"""What the models that are asked through their provider's own library have in common."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from kept.llm.account import Account
from kept.llm.base import ChatRequest, ModelEvent
from kept.llm.bounded import AnswerLimits
from kept.llm.listen import patiently

MAX_RETRIES = 2
"""By the library, before an answer has begun. Whether one that broke off is asked for again, the agent decides."""
CONNECT_TIMEOUT_S = 10.0


class SdkChat(ABC):
    provider: str
    runs_tools = True
    answer_limits = AnswerLimits()

    def __init__(
        self, account: Account, *, context_window: int, timeout_s: float, max_output_tokens: int | None = None
    ) -> None:
        self.name = account.name
        self.context_window = context_window
        self.account = account
        self.timeout_s = timeout_s
        self.max_output_tokens = max_output_tokens
        self._client: Any = None
        self._lock = threading.Lock()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        # The libraries take a second or two to import: that keeps nobody else waiting, and is no silence of the model.
        client = await asyncio.to_thread(self._open)
        events = patiently(self.ask(client, request), timeout_s=self.timeout_s, label=self.account.label)
        async with aclosing(events):
            async for event in events:
                yield event

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self.connect()
                # The libraries add headers from the environment, whatever the address is. Settings alone decide that.
                self._client._custom_headers = self.account.headers()
            return self._client

    def http_client(self) -> Any:
        """A redirect would take the key elsewhere; a proxy of the environment is for the world outside."""
        import httpx2

        from kept.llm.bounded_stream import bounding

        return httpx2.AsyncClient(
            follow_redirects=False,
            trust_env=not self.account.endpoint.is_loopback,
            timeout=httpx2.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [bounding(self.account.label, self.answer_limits)]},
        )

    @abstractmethod
    def connect(self) -> Any:
        """The library's client. Everything that it would look for in the environment is given."""

    @abstractmethod
    def ask(self, client: Any, request: ChatRequest) -> AsyncGenerator[ModelEvent | None, None]:
        """One answer; None is a sign of life."""
