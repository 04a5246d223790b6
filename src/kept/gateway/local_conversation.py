"""A conversation with the person at this machine, in this process: at the terminal, or on a page of `kept web`.

Both continue the same one. It needs no inbox: if the process ends, the person sees it and asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from kept.agent.events import NOBODY, AgentEvent, ApprovalAsked, Inbound, Reply
from kept.base.clock import Clock, new_id
from kept.errors import SessionNotFound, UsageError
from kept.gateway.dispatcher import Dispatcher, find_command
from kept.sessions.entries import CHANNEL
from kept.sessions.session_key import SessionKey, parse_key
from kept.sessions.store import SessionStore

NAME = "terminal"
"""Channel of these conversations."""
DEFAULT_CONVERSATION = "main"


class LocalConversation:
    """One conversation with the person at this machine.

    It follows its key from session to session, as /new and pauses begin new ones. A conversation that is named by the
    id of a session stays in that session until it ends.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sessions: SessionStore,
        clock: Clock,
        *,
        name: str | None,
        ask: Callable[[ApprovalAsked], Awaitable[bool]] | None = None,
    ) -> None:
        """``ask`` returns whether the person allows a tool call. Without it, nobody can be asked."""
        self._dispatcher = dispatcher
        self._ask = ask
        self._clock = clock
        self._key, self._pinned = find_conversation(sessions, name or DEFAULT_CONVERSATION)
        self._sessions = sessions
        self._last: tuple[str, str] | None = None
        """Session and id of the last message."""

    async def session_id(self) -> str:
        if self._pinned is not None:
            record = await asyncio.to_thread(self._sessions.get, self._pinned)
            if record.ended is None:
                return record.id
            self._pinned = None
        return await self._dispatcher.current_session_id(self._key)

    async def answer(self, text: str, show: Callable[[AgentEvent], None]) -> Reply | None:
        """Answer a message, and return the reply. Every event goes to ``show`` as it comes."""
        message = Inbound(new_id(), text, timestamp=self._clock.now(), metadata={CHANNEL: NAME})
        command = find_command(message)
        session_id = await self.session_id()
        self._last = (session_id, message.id)
        reply: Reply | None = None
        answer = self._dispatcher.answer(session_id, [message], command=command)
        async with aclosing(answer) as events:
            async for event in events:
                show(event)
                if isinstance(event, ApprovalAsked):
                    await self._decide(event)
                reply = event if isinstance(event, Reply) else reply
        if command is None:
            self._dispatcher.indexer.add(2)
        return reply

    async def _decide(self, asked: ApprovalAsked) -> None:
        allow = self._ask is not None and await self._ask(asked)
        self._dispatcher.agent.approvals.decide(asked.id, allow=allow, by=NAME if self._ask else NOBODY)

    async def stop(self) -> None:
        """Record that the last message is no longer to be answered."""
        if self._last is not None:
            session_id, message_id = self._last
            await self._dispatcher.agent.stop(session_id, [message_id])


def find_conversation(sessions: SessionStore, name: str) -> tuple[SessionKey, str | None]:
    """Return the key of a conversation, and the id of its session if ``name`` is one.

    Otherwise ``name`` is a full key, or a name that is used at this machine only.
    """
    if ":" in name:
        return parse_key(name, agent_id=sessions.agent_id), None
    try:
        record = sessions.get(name)
    except SessionNotFound:
        return sessions.key(NAME, name), None
    if record.id != name or not record.key:
        return sessions.key(NAME, name), None
    if record.ended is not None:
        raise UsageError(
            f"Session {record.id} has ended.",
            hint=f"It continues in {record.successor}." if record.successor else "Omit --session to start a new one.",
        )
    return SessionKey.parse_full(record.key), record.id
