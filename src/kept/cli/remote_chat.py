"""A conversation with the agent of a server, for `kept chat`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from kept.agent.events import (
    AgentEvent,
    ApprovalAsked,
    ApprovalDecided,
    Notice,
    Reply,
    ReplyDelta,
    ToolEnded,
    ToolStarted,
)
from kept.base.clock import new_id
from kept.client.server_connection import ServerConnection
from kept.errors import KeptError, ServerUnreachable

_MESSAGES = "/v1/messages"


class RemoteConversation:
    """The part of `LocalConversation` that a terminal needs. The server answers, and has the conversation."""

    def __init__(
        self,
        connection: ServerConnection,
        *,
        name: str | None = None,
        ask: Callable[[ApprovalAsked], Awaitable[bool | None]] | None = None,
    ) -> None:
        self._connection, self._name, self._ask = connection, name, ask
        self._session_id = ""

    async def session_id(self) -> str:
        return self._session_id

    async def answer(self, text: str, show: Callable[[AgentEvent], None]) -> Reply | None:
        """Send a message, and return the reply. Every event goes to ``show`` as it comes."""
        reply: Reply | None = None
        events = self._send(text)
        while (event := await asyncio.to_thread(next, events, None)) is not None:
            show(event)
            if isinstance(event, ApprovalAsked):
                await self._decide(event)
            reply = event if isinstance(event, Reply) else reply
        return reply

    def _send(self, text: str) -> Iterator[AgentEvent]:
        body = {"text": text, "id": new_id(), "stream": True, **self._sender()}
        for name, value in self._connection.events(_MESSAGES, body):
            if name == "error":
                error = value.get("error") or {}
                raise KeptError(str(error.get("message") or "The server could not answer."))
            if name == "reply":
                self._session_id = value.get("sessionId") or self._session_id
            if (event := read_event(name, value)) is not None:
                yield event

    def _sender(self) -> dict[str, str]:
        """Return who sends, and to which conversation. The token of a person says the former itself."""
        user = os.environ.get("USER") or os.environ.get("LOGNAME") or "me"
        sender = {} if self._connection.login.person else {"user": user}
        return sender | ({"conversation": self._name} if self._name else {})

    async def _decide(self, asked: ApprovalAsked) -> None:
        allow = self._ask is not None and await self._ask(asked)
        if allow is not None:
            await asyncio.to_thread(self._connection.post, f"/v1/approvals/{asked.id}", {"allow": allow})

    async def stop(self) -> None:
        """Cancel what is not answered yet."""
        await asyncio.to_thread(self._connection.post, _MESSAGES, {"text": "/stop", "wait": True, **self._sender()})


def read_event(name: str, value: dict[str, Any]) -> AgentEvent | None:
    """Return an event of the HTTP channel as the agent's own, or None for one that a terminal does not show."""
    try:
        match name:
            case "delta":
                return ReplyDelta(value["text"])
            case "tool" if value["status"] == "started":
                return ToolStarted(value["name"], {})
            case "tool":
                return ToolEnded(value["name"], value["status"] == "done")
            case "notice":
                return Notice(value["text"])
            case "approval":
                return ApprovalAsked(value["id"], "", value["tool"], value["arguments"], value["timeoutS"])
            case "decision":
                return ApprovalDecided(value["id"], value["tool"], value["allowed"], value["by"])
            case "reply":
                return Reply(value.get("reply") or "", value.get("entryId") or "", silent=not value.get("reply"))
    except (KeyError, TypeError) as exc:
        raise ServerUnreachable("The server answered in another form.", hint="It may have another version.") from exc
    return None
