"""A responder over real notes, real transcripts and a real agent, with a scripted model."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kept import SessionStore
from kept.agent.agent import Agent
from kept.agent.events import Inbound
from kept.base.clock import Clock, SystemClock
from kept.gateway.channel import Channel
from kept.gateway.dispatcher import Dispatcher
from kept.gateway.inbox import AnswerRun, Inbox
from kept.gateway.responder import Responder
from kept.models.base import ChatRequest
from kept.sessions.entries import Message
from kept.sessions.session_key import SessionKey
from kept.storage.files.file_storage import FileStorage
from kept.storage.open import INBOX_LEASE
from kept.testing import ScriptedChat
from tests.support.waiting import PATIENCE_S
from tests.support.workspaces import open_memory

TIME_LINE = re.compile(r"\[[A-Z][a-z]+day \d{4}-\d\d-\d\d \d\d:\d\d(?:, received [-\d: ]+)?\]")


def asked(request: ChatRequest) -> str:
    """Return the text of the last turn that the model was sent, without the times of its messages."""
    texts = (part.text for part in request.turns[-1].parts if hasattr(part, "text"))
    return "\n".join(text for text in texts if not TIME_LINE.fullmatch(text))


class RecordingChannel(Channel):
    """A channel that records what it was sent. Each entry in `faults` makes one send raise."""

    pushes = True

    def __init__(self, *, limit: int | None = None, debounce_ms: int = 0) -> None:
        super().__init__(debounce_ms=debounce_ms)
        self.limit = limit
        self.sent: list[tuple[Any, str]] = []
        self.typing = 0
        self.faults: list[Exception] = []
        self.arrived = asyncio.Event()

    def address(self, user_id: str) -> Mapping[str, Any]:
        return {"chat": user_id}

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.sent.append((to.get("chat"), text))
        self.arrived.set()

    async def show_progress(self, to: Mapping[str, Any], text: str) -> None:
        self.typing += 1

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.sent]


class ResponderHarness:
    """Everything that a responder needs. It outlives the responder, as files outlive a process."""

    def __init__(self, tmp_path: Path, model=None, *, agent_settings=None, **settings: Any) -> None:
        own = {f"gateway.auto_responder.{name}": value for name, value in settings.items()}
        self.memory = open_memory(tmp_path, settings={**own, **(agent_settings or {})})
        self.sessions = SessionStore(self.memory.config)
        self.model = model or ScriptedChat(lambda request: f"You said: {asked(request)}")
        self.journal = str(tmp_path / "home" / "agents" / "main" / "inbox.jsonl")

    def responder(self, channels: Mapping[str, Channel], *, dispatcher_class=Dispatcher, timing=None) -> Responder:
        agent = Agent(self.memory, self.sessions, self.model, retry_wait_s=0.0)
        settings = self.memory.config.gateway.auto_responder
        return Responder(dispatcher_class(agent), self.inbox(), settings, channels, timing=timing)

    def inbox(self) -> Inbox:
        return open_inbox(Path(self.journal).parent, self.memory.clock)

    def key(self, user: str = "ada", *, channel: str = "http", chat_type: str = "direct") -> SessionKey:
        return self.sessions.key(channel, user, chat_type=chat_type)

    def said(self, user: str = "ada", *, channel: str = "http") -> list[Message]:
        record = self.sessions.find(channel, user)
        return list(self.sessions.load(record.id).messages) if record else []

    def close(self) -> None:
        self.memory.close()
        self.sessions.close()


_holders: WeakValueDictionary[str, Inbox] = WeakValueDictionary()


def open_inbox(folder: Path, clock: Clock | None = None) -> Inbox:
    """Open the inbox in an agent's folder to write, as a gateway does that follows one which was killed."""
    storage, held = FileStorage(str(folder)), ExitStack()
    if before := _holders.get(storage.root):
        before.held.close()
    lease = held.enter_context(storage.lease(INBOX_LEASE, wait_s=0.0))
    inbox = _holders[storage.root] = Inbox(storage, clock=clock or SystemClock(), lease=lease)
    inbox.held = held  # as long as the inbox
    return inbox


@asynccontextmanager
async def running_responder(
    harness: ResponderHarness, *, dispatcher_class=Dispatcher, timing=None, **channels: Channel
) -> AsyncIterator[Responder]:
    """Run a responder. On exit it finishes the messages that it accepted."""
    channels = channels or {"http": Channel()}
    responder = harness.responder(channels, dispatcher_class=dispatcher_class, timing=timing)
    await responder.start()
    try:
        yield responder
    finally:
        await responder.drain(PATIENCE_S)


async def crash(responder: Responder) -> None:
    """Stop a responder as a kill would: cancel its work and write nothing more."""
    await responder.drain(0.0)


async def tell(responder: Responder, key: SessionKey, text: str, message_id: str, **metadata: Any) -> Any:
    return await responder.accept(key, Inbound(message_id, text, metadata=metadata))


async def reply_to(responder: Responder, message_id: str, channel: str = "http") -> AnswerRun:
    async with asyncio.timeout(PATIENCE_S):
        _, run = await responder.wait(channel, message_id)
    return run
