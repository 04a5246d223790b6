"""An agent over real notes, real transcripts and a real index, with a scripted model."""

import asyncio
import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kept import SessionStore
from kept.agent.agent import Agent
from kept.agent.events import AgentEvent, Inbound, Reply
from kept.models.base import ChatModel
from kept.sessions.entries import CompactionEntry, Entry, Message, StateEntry
from kept.sessions.record import SessionRecord
from kept.testing import FrozenClock, ScriptedChat
from tests.support.chat_requests import turn_text
from tests.support.workspaces import open_memory

NOW = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=dt.timezone(dt.timedelta(hours=1)))


class AgentHarness:
    """An agent and everything that it needs."""

    def __init__(self, tmp_path: Path, model: ChatModel, *, tools: Sequence[Any] = (), **settings: Any) -> None:
        self.clock = FrozenClock(NOW)
        self.workspace = tmp_path / "workspace"
        self.memory = open_memory(tmp_path, clock=self.clock, settings={"session.reset.mode": "none", **settings})
        self.sessions = SessionStore(self.memory.config, clock=self.clock)
        self.model = model
        self.agent = Agent(self.memory, self.sessions, model, tools=tools, retry_wait_s=0.0)

    def session(self, user: str = "me") -> SessionRecord:
        return self.sessions.get_or_create("terminal", user)

    def say(self, text: str, *, as_id: str | None = None, session: str | None = None, **more: Any) -> list[AgentEvent]:
        """Send one message and return all its events."""
        session_id = session or self.session().id
        inbound = Inbound(as_id or f"in-{self.sessions.get(session_id).messages}", text, **more.pop("inbound", {}))
        return asyncio.run(self.collect(session_id, [inbound], **more))

    async def collect(self, session_id: str, messages: list[Inbound], **more: Any) -> list[AgentEvent]:
        return [event async for event in self.agent.respond(session_id, messages, **more)]

    def compact(self, session: str | None = None, **more: Any) -> Any:
        return asyncio.run(self.agent.compact(session or self.session().id, **more))

    def bodies(self, session_id: str | None = None) -> list[Any]:
        loaded = self.sessions.load(session_id or self.session().id)
        return [entry.body for entry in loaded if isinstance(entry, Entry)]

    def messages(self, session_id: str | None = None) -> list[Message]:
        return [body for body in self.bodies(session_id) if isinstance(body, Message)]

    def compactions(self, session_id: str | None = None) -> list[CompactionEntry]:
        return [body for body in self.bodies(session_id) if isinstance(body, CompactionEntry)]

    def flushes(self, session_id: str | None = None) -> list[dict[str, Any]]:
        return [body.value for body in self.bodies(session_id) if isinstance(body, StateEntry) and body.name == "flush"]

    def today(self) -> str:
        note = self.workspace / "memory" / f"{self.clock.now():%Y-%m-%d}.md"
        return note.read_text() if note.exists() else ""

    def close(self) -> None:
        self.memory.close()
        self.sessions.close()


@contextmanager
def open_agent(tmp_path: Path, model=None, *, tools=(), **settings: Any) -> Iterator[AgentHarness]:
    opened = AgentHarness(tmp_path, model or ScriptedChat(lambda request: "All right."), tools=tools, **settings)
    try:
        yield opened
    finally:
        opened.close()


def reply(events: list[AgentEvent]) -> Reply:
    last = events[-1]
    assert isinstance(last, Reply), events
    return last


def shown(request: Any) -> str:
    """Return everything that a model was sent, as one text."""
    return "\n".join((request.system, *map(turn_text, request.turns)))
