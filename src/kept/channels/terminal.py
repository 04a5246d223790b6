"""The terminal: a conversation line by line, and a single question from a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from kept.agent.events import AgentEvent, Inbound
from kept.clock import Clock, new_id
from kept.errors import SessionNotFound, UsageError
from kept.responder.answerer import Dispatcher
from kept.sessions.session_key import SessionKey, parse_key
from kept.sessions.store import SessionStore

NAME = "terminal"
DEFAULT_CONVERSATION = "main"


class TerminalScreen(Protocol):
    """Where the events of a turn are shown, in the order they happen."""

    def show(self, event: AgentEvent) -> None: ...

    def stopped(self) -> None:
        """The turn was cancelled."""
        ...

    def failed(self, error: Exception) -> None: ...


class TerminalConversation:
    """One conversation at a terminal. It follows its key from session to session, as /new and long silences have it;
    one that was named by its id stays there until /new."""

    def __init__(self, answerer: Dispatcher, sessions: SessionStore, clock: Clock, *, named: str | None) -> None:
        self._answerer = answerer
        self._clock = clock
        self._key, self._pinned = find_conversation(sessions, named or DEFAULT_CONVERSATION)
        self._sessions = sessions

    async def session_id(self) -> str:
        if self._pinned is not None:
            record = await asyncio.to_thread(self._sessions.get, self._pinned)
            if record.ended is None:
                return record.id
            self._pinned = None
        return await self._answerer.session_of(self._key)

    async def say(self, text: str) -> AsyncIterator[AgentEvent]:
        message = Inbound(new_id(), text, timestamp=self._clock.now())
        async for event in self._answerer.answer(await self.session_id(), [message]):
            yield event


def find_conversation(sessions: SessionStore, named: str) -> tuple[SessionKey, str | None]:
    """A conversation by the name it has at the terminal, by a session's key, or by the id of a session. Only an id says
    which session as well."""
    if ":" in named:
        return parse_key(named, agent_id=sessions.agent_id), None
    try:
        record = sessions.get(named)
    except SessionNotFound:
        return sessions.key(NAME, named), None
    if record.id != named or not record.key:
        return sessions.key(NAME, named), None
    if record.ended is not None:
        raise UsageError(
            f"Session {record.id} has ended.",
            hint=f"It went on in {record.successor}." if record.successor else "Leave out --session to begin anew.",
        )
    return parse_key(record.key, agent_id=sessions.agent_id), record.id


ReadLine = Callable[[], str]
"""Gives the next line; raises EOFError at the end, KeyboardInterrupt where the line was given up."""


def talk(
    conversation: TerminalConversation, screen: TerminalScreen, read_line: ReadLine, runner: asyncio.Runner
) -> None:
    """Reads and answers until there is nothing more to read. Ctrl-C stops an answer, not the conversation."""
    while True:
        try:
            text = read_line().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text:
            _take_turn(conversation, screen, text, runner)


def _take_turn(conversation: TerminalConversation, screen: TerminalScreen, text: str, runner: asyncio.Runner) -> None:
    async def turn() -> None:
        async for event in conversation.say(text):
            screen.show(event)

    try:
        runner.run(turn())
    except KeyboardInterrupt:
        screen.stopped()
    except Exception as exc:  # noqa: BLE001 - one answer that fails does not end the conversation
        screen.failed(exc)
