"""Routes messages to a command or to the agent. The terminal and the gateway share it.

Messages that begin with a slash are commands. They are answered without a model.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from kept.agent.agent import Agent
from kept.agent.events import NOBODY, AgentEvent, ApprovalAsked, GroupLine, Inbound, Reply
from kept.base.clock import new_id
from kept.base.grants import Act
from kept.base.limits import clip
from kept.base.records import Hit
from kept.base.values import frozen
from kept.errors import EmptyNote, KeptError, SessionNotFound, UsageError
from kept.gateway.forget_dialogue import answer_forget
from kept.gateway.inbox import AcceptedMessage
from kept.memory import Memory
from kept.notes.history.note_history import Author
from kept.sessions.entries import CHANNEL, FORWARDED
from kept.sessions.people import NO_OWNER
from kept.sessions.record import SessionRecord
from kept.sessions.session_key import SessionKey, parse_key

log = logging.getLogger(__name__)


# commands

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:\s+(.*))?\Z", re.DOTALL)
_MAX_HITS = 5
_FLUSH_WAIT_S = 60.0
"""How long a program that ends waits for the flush of a session that has ended."""
_SNIPPET_CHARS = 300

HELP = """\
/new [TEXT] – start a new conversation; the old one is kept
/reset – the same
/compact [FOCUS] – replace the conversation so far with a summary
/status – this conversation, the model, the memory
/model [NAME] – show or choose the model of this conversation
/memory QUERY – search the memory
/remember TEXT – add it to long-term memory
/share TEXT – add it to the notes that everybody is answered from
/forget QUERY – show where notes and conversations have it, and forget what you choose
/approve – allow what the agent asks for
/deny – do not allow it
/stop – stop answering
/help – this list"""
APPROVAL = "approval"
"""Metadata of /approve and /deny: id of the question that was meant, if a page has sent it."""
GREETING = "Hello! Write to me as you would to a person: I remember what we talk about. /help lists the commands."
"""Reply to /start, which Telegram sends when a person opens the chat with a bot."""
_FIXED_REPLIES = {"help": HELP, "start": GREETING, "stop": "Stopped."}  # the responder cancels what came before /stop
_TALK: Act = "talk to the agent"
_ACTS: Mapping[str, Act] = {
    "remember": "write notes",
    "share": "write notes",
    "forget": "forget",
    "approve": "decide about calls of tools",
    "deny": "decide about calls of tools",
}
"""Commands by name. The others are part of talking to the agent."""


@frozen
class Command:
    name: str
    rest: str


@frozen
class CommandCall:
    """Command in a conversation. ``message_id`` recognises one that was executed before a crash."""

    name: str
    rest: str
    session_id: str
    message_id: str


def find_command(message: Inbound | AcceptedMessage) -> Command | None:
    """Return the command in a message. A forwarded text never is one: another person wrote it.

    A path such as /etc/hosts is not one. Neither is /help@name: a channel with such names removes its own before this.
    """
    match = _COMMAND.match(message.text.strip())
    if match is None or FORWARDED in (message.metadata or {}):
        return None
    return Command(match[1].lower(), (match[2] or "").strip())


def act_of(message: Inbound) -> Act:
    """Return what a message does: what its command does, or else it talks to the agent."""
    command = find_command(message)
    return _ACTS.get(command.name, _TALK) if command else _TALK


class Commands:
    """Executes commands."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._memory = agent.services.memory
        self._sessions = agent.services.sessions
        self._people = agent.services.people
        self.more_status: Callable[[], list[str]] | None = None
        """Returns the lines of a gateway about its queue, for /status. None outside of one."""
        self._decided: dict[str, str] = {}
        """Replies to /approve and /deny that were carried out before their turn came, by the id of the message."""

    async def run(self, call: CommandCall) -> str:
        """Return the reply to a command. Errors become replies."""
        handlers: dict[str, Callable[[CommandCall], str]] = {
            "new": self._new,
            "reset": self._new,
            "status": self._status,
            "model": lambda call: self._agent.models.choose(self._sessions, call.session_id, call.rest),
            "memory": self._search,
            "remember": self._write_note,
            "share": self._write_note,
            "forget": self._forget,
            "approve": self._decide,
            "deny": self._decide,
        }
        name = call.name
        try:
            if name == "compact":
                result = await self._agent.compact(call.session_id, instructions=call.rest or None)
                if not result.done:
                    return f"Nothing was compacted: {result.reason}."
                remark = " The summary was written without a model." if result.source == "extractive" else ""
                return f"Compacted from {result.tokens_before:,} to {result.tokens_after:,} tokens.{remark}"
            if name in handlers:
                return await asyncio.to_thread(handlers[name], call)
        except KeptError as exc:
            if self.more_status is None or exc.http < 500:
                return f"{exc.message} {exc.hint}".strip()
            # In a chat, others may read along: errors that are not about the request may name a path or a setting.
            log.warning("a command failed: %s %s", exc.message, exc.hint)
            return "That did not work. The log of the gateway has the details."
        return _FIXED_REPLIES.get(name) or f"There is no command /{name}. /help lists all commands."

    def start_session(self, call: CommandCall) -> SessionRecord:
        """End the session and return the next one. Called again after a crash, return the one that was begun then."""
        old = self._sessions.get(call.session_id)
        if old.successor:
            try:
                successor = self._sessions.get(old.successor)
            except SessionNotFound:
                successor = None
            if successor is not None and successor.metadata.get("inbound") == call.message_id:
                return successor
        return self._sessions.reset(old.id, metadata={**old.metadata, "inbound": call.message_id})

    def _new(self, call: CommandCall) -> str:
        self.start_session(call)
        return f"This is a new conversation. The old one is kept as session {call.session_id}."

    def _memory_of(self, session_id: str) -> Memory:
        viewer = self._people.viewer_of(self._sessions.get(session_id).key)
        return self._memory if viewer is None else self._memory.as_person(viewer)

    def _status(self, call: CommandCall) -> str:
        record, memory = self._sessions.get(call.session_id), self._memory_of(call.session_id)
        status = memory.status()
        lines = [
            f"Agent {status.agent}, {self._agent.models.describe(record)}.",
            f"Session {record.id}: {record.messages} messages, {record.tokens_context:,} tokens in context, "
            f"{record.compactions} compactions.",
            *([f"You are {memory.viewer.name} here.{self._owner_remark(memory)}"] if memory.viewer else []),
            f"Memory: {status.files} files, {status.chunks} passages.",
            *status.degraded,
            *(self.more_status() if self.more_status else ()),
        ]
        return "\n".join(lines)

    def _search(self, call: CommandCall) -> str:
        if not call.rest:
            return "Say what to search for: /memory QUERY."
        results = self._memory_of(call.session_id).search(call.rest, max_results=_MAX_HITS)
        hits = [_describe_hit(number, hit) for number, hit in enumerate(results.hits, 1)]
        return "\n\n".join([*(hits or ["The memory has nothing about that."]), *results.degraded])

    def _write_note(self, call: CommandCall) -> str:
        """Add a text to the long-term memory, unless that has the line: it may have been written before a crash."""
        memory = self._memory if call.name == "share" else self._memory_of(call.session_id)
        author = Author(memory.config.agent_id, call.session_id, f"/{call.name}", person="chat")
        try:
            written = memory.add(call.rest, to="memory", author=author)
        except EmptyNote:
            return f"Say what to {call.name}: /{call.name} TEXT."
        if not written.is_new:
            return "That is in long-term memory already."
        return f"Kept in {written.citation}.{self._owner_remark(memory)}"

    def _owner_remark(self, memory: Memory) -> str:
        """Return why notes of a person do not go to the shared ones, if that has not been decided."""
        is_open = memory.viewer is not None and memory.config.agent.session.owner == "auto"
        return f" {NO_OWNER}" if is_open else ""

    def _forget(self, call: CommandCall) -> str:
        memory = self._memory_of(call.session_id)
        return answer_forget(memory, self._sessions, call.session_id, call.rest)

    def decide_now(self, call: CommandCall, *, by: str, approval_id: str | None = None) -> None:
        """Carry out /approve or /deny while an answer waits for it: the command itself waits behind that answer.

        ``approval_id`` names the question that was meant, if that is known.
        """
        waiting = [
            asked
            for asked in self._agent.approvals.waiting(call.session_id)
            if approval_id is None or asked.id == approval_id
        ]
        allow = call.name == "approve"
        if waiting and self._agent.approvals.decide(waiting[0].id, allow=allow, by=by):
            self._decided[call.message_id] = f"{waiting[0].tool}: {'allowed' if allow else 'not allowed'}."

    def _decide(self, call: CommandCall) -> str:
        return self._decided.pop(call.message_id, "Nothing waits for your permission.")


def _describe_hit(number: int, hit: Hit) -> str:
    text = hit.snippet.strip()
    further = ", ".join(passage.citation for passage in hit.further)
    return f"{number}. {hit.citation}\n{clip(text, _SNIPPET_CHARS)}" + (
        f"\nFurther passages: {further}" if further else ""
    )


# routing


class Dispatcher:
    """Chooses between commands and agent. The caller counts the messages that the agent answered (`index_later`)."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.sessions = agent.services.sessions
        self.commands = Commands(agent)
        self.memory = agent.services.memory
        self._unindexed = 0
        self._indexing: asyncio.Task[None] | None = None
        self._ended: set[str] = set()
        """Sessions whose last flush was started here."""
        self._flushes: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Finish indexing and flushes, and end what the agent has started."""
        if self._indexing is not None:  # its thread cannot be interrupted
            await asyncio.wait([self._indexing])
        if self._flushes:
            _, left = await asyncio.wait(self._flushes, timeout=_FLUSH_WAIT_S)
            for task in left:
                task.cancel()
        await self.agent.close()

    async def current_session_id(self, key: SessionKey) -> str:
        """Return the id of the session that messages of a chat belong to now. Begin one if there is none."""
        key = self.agent.services.people.session_key(key)
        record = await asyncio.to_thread(
            self.sessions.get_or_create,
            key.channel,
            key.user_id,
            account_id=key.account_id,
            chat_type=key.chat_type,
        )
        if not record.messages and record.predecessor:
            self.flush_ended(record.predecessor)
        return record.id

    def flush_ended(self, session_id: str) -> None:
        """Start to write down what is new in a session that has ended, once."""
        if session_id not in self._ended:
            self._ended.add(session_id)
            task = asyncio.create_task(self.agent.flush_ended(session_id))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    def answer(
        self,
        session_id: str,
        messages: Sequence[Inbound],
        *,
        command: Command | None = None,
        group: Sequence[GroupLine] = (),
    ) -> AsyncGenerator[AgentEvent, None]:
        """Return the events of an answer; the last is a Reply. ``command`` is the one that the only message gives.

        The agent's own generator is returned, so that a streamed token passes nothing here.
        """
        if command is None:
            return self.agent.respond(session_id, messages, group=group)
        call = CommandCall(command.name, command.rest, session_id, messages[0].id)
        if command.name in ("new", "reset") and command.rest:
            return self._answer_in_new_session(call, messages[0], group)
        return self._run_command(call)

    async def _run_command(self, call: CommandCall) -> AsyncGenerator[AgentEvent, None]:
        yield Reply(await self.commands.run(call), "")
        if call.name in ("new", "reset"):
            self.flush_ended(call.session_id)

    async def _answer_in_new_session(
        self, call: CommandCall, message: Inbound, group: Sequence[GroupLine]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer the text after /new in the session that it begins."""
        session = await asyncio.to_thread(self.commands.start_session, call)
        self.flush_ended(call.session_id)
        text = replace(message, text=call.rest)
        async with aclosing(self.agent.respond(session.id, [text], group=group)) as events:
            async for event in events:
                yield event
        self.index_later(2)

    def index_later(self, messages: int) -> None:
        """Count messages that were added to a transcript, and index every few, so that no search has many to index."""
        self._unindexed += messages
        every = self.memory.config.gateway.auto_responder.memory_index_interval_messages
        if self._unindexed >= every and (self._indexing is None or self._indexing.done()):
            self._unindexed = 0
            self._indexing = asyncio.create_task(self._index())

    async def _index(self) -> None:
        try:
            await asyncio.to_thread(self.memory.sync)
        except KeptError as exc:
            log.warning("the index could not be brought up to date (%s)", exc.code)


# Conversations with the person at this machine, in this process: at the terminal, or on a page. Both continue the same
# one. It needs no inbox: if the process ends, the person sees it and asks again.

TERMINAL = "terminal"
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
        *,
        name: str | None = None,
        ask: Callable[[ApprovalAsked], Awaitable[bool | None]] | None = None,
    ) -> None:
        """``name`` is a full key, the id of a session, or a name that is used at this machine only. ``ask`` returns
        whether the person allows a tool call, or None if that is decided elsewhere. Without it, nobody can be asked."""
        self.dispatcher = dispatcher
        self._ask = ask
        self._sessions = dispatcher.sessions
        self._pinned: str | None = None
        """Id of the session, if it was named."""
        self._key = self._find_key(name or DEFAULT_CONVERSATION)
        self._last: tuple[str, str] | None = None
        """Session and id of the last message."""

    def _find_key(self, name: str) -> SessionKey:
        if ":" in name:
            return parse_key(name, agent_id=self._sessions.agent_id)
        record = self._sessions.find_by_id(name)
        if record is None or not record.key:
            return self._sessions.key(TERMINAL, name)
        if record.ended is not None:
            hint = f"It continues in {record.successor}." if record.successor else "Omit --session to start a new one."
            raise UsageError(f"Session {record.id} has ended.", hint=hint)
        self._pinned = record.id
        return SessionKey.parse_full(record.key)

    async def session_id(self) -> str:
        if self._pinned is not None:
            record = await asyncio.to_thread(self._sessions.get, self._pinned)
            if record.ended is None:
                return record.id
            self._pinned = None
        return await self.dispatcher.current_session_id(self._key)

    async def answer(self, text: str, show: Callable[[AgentEvent], None]) -> Reply | None:
        """Answer a message, and return the reply. Every event goes to ``show`` as it comes."""
        message = Inbound(new_id(), text, timestamp=self.dispatcher.memory.clock.now(), metadata={CHANNEL: TERMINAL})
        command = find_command(message)
        session_id = await self.session_id()
        self._last = (session_id, message.id)
        reply: Reply | None = None
        answer = self.dispatcher.answer(session_id, [message], command=command)
        async with aclosing(answer) as events:
            async for event in events:
                show(event)
                if isinstance(event, ApprovalAsked):
                    await self._decide(event)
                reply = event if isinstance(event, Reply) else reply
        if command is None:
            self.dispatcher.index_later(2)
        return reply

    async def _decide(self, asked: ApprovalAsked) -> None:
        allow = self._ask is not None and await self._ask(asked)
        if allow is None:
            return
        self.dispatcher.agent.approvals.decide(asked.id, allow=allow, by=TERMINAL if self._ask else NOBODY)

    async def stop(self) -> None:
        """Record that the last message is no longer to be answered."""
        if self._last is not None:
            session_id, message_id = self._last
            await self.dispatcher.agent.stop(session_id, [message_id])
