"""Ends a request whose token is revoked or expires while it is being answered."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import anyio

from kept.net.serving import GRANT, App, Receive, Scope, Send, describe_refusal, refuse
from kept.tokens import KnownTokens

LOOK_S = 1.0
"""Time between two looks at the token of a stream that is silent."""


class StreamWatch:
    """ASGI application that sends nothing more of another's answer once its token does not hold."""

    def __init__(self, app: App, tokens: KnownTokens, *, look_s: float = LOOK_S) -> None:
        self.app = app
        self.tokens = tokens
        self.look_s = look_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _WatchedAnswer(self.tokens, scope, send, self.look_s)
        try:
            with answer.limits:
                await self.app(scope, receive, answer.send)
        finally:
            answer.stop_looking()
        await answer.finish()


def has_length(message: MutableMapping[str, Any]) -> bool:
    return any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))


class _WatchedAnswer:
    def __init__(self, tokens: KnownTokens, scope: Scope, send: Send, look_s: float) -> None:
        self.limits = anyio.CancelScope()
        self._tokens = tokens
        self._scope = scope
        self._send = send
        self._look_s = look_s
        self._looking: asyncio.Task[None] | None = None
        self._held: MutableMapping[str, Any] | None = None
        """Beginning of an answer of known length."""
        self._has_started = False
        self._is_complete = False
        self._is_over = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self._is_over or not self._holds():
            self._end()
            return
        is_body = message["type"] == "http.response.body"
        if message["type"] == "http.response.start":
            if has_length(message):
                self._held = message  # until its body comes, so that the answer is whole or a refusal
                return
            self._looking = asyncio.create_task(self._look())  # a stream, which may be silent for long
        if self._held is not None:
            held, self._held = self._held, None
            await self._send(held)
        await self._send(message)
        self._has_started = True
        self._is_complete = is_body and not message.get("more_body")

    async def finish(self) -> None:
        """Close an answer that was cut off."""
        if not self._is_over or self._is_complete:
            return
        if self._has_started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            message = "The token was revoked, or has expired."
            await refuse(self._send, 401, describe_refusal(self._scope["path"], 401, "token_missing", message))

    def stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        while self._holds():
            await asyncio.sleep(self._look_s)
        self._end()

    def _holds(self) -> bool:
        grant = self._scope.get(GRANT)
        return grant is None or self._tokens.holds(grant)

    def _end(self) -> None:
        self._is_over = True
        self.limits.cancel()
