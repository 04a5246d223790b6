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
from typing import Any

from kept.agent.agent import Agent
from kept.agent.events import NOBODY, AgentEvent, ApprovalAsked, CompactionResult, GroupLine, Inbound, Reply
from kept.base.clock import Clock, new_id
from kept.base.grants import Act
from kept.base.limits import clip
from kept.base.records import Hit
from kept.base.values import frozen
from kept.errors import EmptyNote, KeptError, SessionNotFound, UsageError
from kept.forgetting.forgetter import BlankInbox
from kept.forgetting.plan import ForgetPlan
from kept.gateway import forget_dialogue as forget
from kept.gateway.inbox import Inbox
from kept.gateway.inbox_records import AcceptedMessage
from kept.memory import Memory
from kept.notes.history.note_history import Author
from kept.sessions.entries import CHANNEL, FORWARDED
from kept.sessions.people import NO_OWNER
from kept.sessions.record import SessionRecord
from kept.sessions.session_key import SessionKey, parse_key
from kept.sessions.store import SessionStore

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
_ANSWERS = {"yes": "all", "all": "all", "no": "none", "none": "none"}
"""Answers to a proposal of /forget, as `ForgetPlan.choose` reads them."""
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

    command: Command
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
        self._more_status: Callable[[], list[str]] = list
        self._inbox: BlankInbox | None = None
        self._decided: dict[str, str] = {}
        """Replies to /approve and /deny that were carried out before their turn came, by the id of the message."""

    def use_inbox(self, inbox: Inbox, more_status: Callable[[], list[str]]) -> None:
        """Let /forget scrub the inbox of this process too, and /status show these lines about its queue."""
        self._inbox, self._more_status = inbox.blank, more_status

    async def run(self, call: CommandCall) -> str:
        """Return the reply to a command. Errors become replies."""
        handlers: dict[str, Callable[[CommandCall], str]] = {
            "new": self._new,
            "reset": self._new,
            "status": self._status,
            "model": self._choose_model,
            "memory": self._search,
            "remember": self._write_note,
            "share": self._write_note,
            "forget": self._forget,
            "approve": self._decide,
            "deny": self._decide,
        }
        name = call.command.name
        try:
            if name == "compact":
                focus = call.command.rest or None
                return _describe_compaction(await self._agent.compact(call.session_id, instructions=focus))
            if name in handlers:
                return await asyncio.to_thread(handlers[name], call)
        except KeptError as exc:
            return self._explain(exc)
        return _FIXED_REPLIES.get(name) or f"There is no command /{name}. /help lists all commands."

    def _explain(self, error: KeptError) -> str:
        """Return what the person is told. In a chat, errors that are not about the request name no path or setting."""
        if self._inbox is None or error.http < 500:
            return f"{error.message} {error.hint}".strip()
        log.warning("a command failed: %s %s", error.message, error.hint)
        return "That did not work. The log of the gateway has the details."

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
        """Return the memory as the person or group of a session sees it."""
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
            *self._more_status(),
        ]
        return "\n".join(lines)

    def _choose_model(self, call: CommandCall) -> str:
        return self._agent.models.choose(self._sessions, call.session_id, call.command.rest)

    def _search(self, call: CommandCall) -> str:
        if not call.command.rest:
            return "Say what to search for: /memory QUERY."
        results = self._memory_of(call.session_id).search(call.command.rest, max_results=_MAX_HITS)
        hits = [_describe_hit(number, hit) for number, hit in enumerate(results.hits, 1)]
        return "\n\n".join([*(hits or ["The memory has nothing about that."]), *results.degraded])

    def _write_note(self, call: CommandCall) -> str:
        """Add a text to the long-term memory, unless that has the line: it may have been written before a crash."""
        memory = self._memory if call.command.name == "share" else self._memory_of(call.session_id)
        author = Author(memory.config.agent_id, call.session_id, f"/{call.command.name}", person="chat")
        try:
            written = memory.add(call.command.rest, to="memory", author=author)
        except EmptyNote:
            return f"Say what to {call.command.name}: /{call.command.name} TEXT."
        if not written.is_new:
            return "That is in long-term memory already."
        return f"Kept in {written.citation}.{self._owner_remark(memory)}"

    def _owner_remark(self, memory: Memory) -> str:
        """Return why notes of a person do not go to the shared ones, if that has not been decided."""
        is_open = memory.viewer is not None and memory.config.agent.session.owner == "auto"
        return f" {NO_OWNER}" if is_open else ""

    def _forget(self, call: CommandCall) -> str:
        query = call.command.rest
        if not query:
            return "Say what to forget: /forget QUERY. You will see what would go before anything is removed."
        proposal = forget.find_proposal(self._sessions, call.session_id)
        if query.lower() in _ANSWERS or (proposal and forget.is_choice(query, proposal)):
            return self._answer_proposal(call.session_id, proposal, _ANSWERS.get(query.lower(), query))
        plan = forget.plan_in_chat(self._memory_of(call.session_id), query)
        return self._propose(call.session_id, query, plan)

    def _propose(self, session_id: str, query: str, plan: ForgetPlan) -> str:
        if plan.options:
            forget.save_proposal(self._sessions, session_id, query, plan)
        return forget.describe_plan(plan)

    def _answer_proposal(self, session_id: str, proposal: dict[str, Any] | None, answer: str) -> str:
        if proposal is None:
            return "There is nothing to confirm. Start with /forget QUERY."
        if answer == "none":
            forget.drop_proposal(self._sessions, session_id)
            return "Nothing was forgotten."
        memory = self._memory_of(session_id)
        plan = forget.plan_in_chat(memory, proposal["query"])
        if plan.token != proposal["token"]:
            proposed = self._propose(session_id, proposal["query"], plan)
            return f"It has changed since then, and nothing was forgotten.\n\n{proposed}"
        if answer == "all" and not plan.places:
            return f"Nothing was forgotten: name the numbers.\n\n{forget.describe_plan(plan)}"
        forget.drop_proposal(self._sessions, session_id)
        chosen = plan.choose(answer)
        receipt = memory.forgetting.apply(chosen, inbox=self._inbox)
        return forget.describe_receipt(receipt, len(chosen.places), is_private=memory.viewer is not None)

    def decide_now(self, call: CommandCall, *, by: str, approval_id: str | None = None) -> None:
        """Carry out /approve or /deny while an answer waits for it: the command itself waits behind that answer.

        ``approval_id`` names the question that was meant, if that is known.
        """
        waiting = [
            asked
            for asked in self._agent.approvals.waiting(call.session_id)
            if approval_id is None or asked.id == approval_id
        ]
        allow = call.command.name == "approve"
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


def _describe_compaction(result: CompactionResult) -> str:
    if not result.done:
        return f"Nothing was compacted: {result.reason}."
    remark = " The summary was written without a model." if result.source == "extractive" else ""
    return f"Compacted from {result.tokens_before:,} to {result.tokens_after:,} tokens.{remark}"


# routing


class Dispatcher:
    """Chooses between commands and agent. The caller counts the messages that the agent answered (`index_later`)."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.sessions = agent.services.sessions
        self.commands = Commands(agent)
        self._memory = agent.services.memory
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
        if record.is_new and record.predecessor:
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
        call = CommandCall(command, session_id, messages[0].id)
        if command.name in ("new", "reset") and command.rest:
            return self._answer_in_new_session(call, messages[0], group)
        return self._run_command(call)

    async def _run_command(self, call: CommandCall) -> AsyncGenerator[AgentEvent, None]:
        yield Reply(await self.commands.run(call), "")
        if call.command.name in ("new", "reset"):
            self.flush_ended(call.session_id)

    async def _answer_in_new_session(
        self, call: CommandCall, message: Inbound, group: Sequence[GroupLine]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer the text after /new in the session that it begins."""
        session = await asyncio.to_thread(self.commands.start_session, call)
        self.flush_ended(call.session_id)
        text = replace(message, text=call.command.rest)
        async with aclosing(self.agent.respond(session.id, [text], group=group)) as events:
            async for event in events:
                yield event
        self.index_later(2)

    def index_later(self, messages: int) -> None:
        """Count messages that were added to a transcript, and index every few, so that no search has many to index."""
        self._unindexed += messages
        every = self._memory.config.gateway.auto_responder.memory_index_interval_messages
        if self._unindexed >= every and (self._indexing is None or self._indexing.done()):
            self._unindexed = 0
            self._indexing = asyncio.create_task(self._index())

    async def _index(self) -> None:
        try:
            await asyncio.to_thread(self._memory.sync)
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
        sessions: SessionStore,
        clock: Clock,
        *,
        name: str | None,
        ask: Callable[[ApprovalAsked], Awaitable[bool | None]] | None = None,
    ) -> None:
        """``ask`` returns whether the person allows a tool call, or None if that is decided elsewhere. Without it,
        nobody can be asked."""
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
        message = Inbound(new_id(), text, timestamp=self._clock.now(), metadata={CHANNEL: TERMINAL})
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
            self._dispatcher.index_later(2)
        return reply

    async def _decide(self, asked: ApprovalAsked) -> None:
        allow = self._ask is not None and await self._ask(asked)
        if allow is None:
            return
        self._dispatcher.agent.approvals.decide(asked.id, allow=allow, by=TERMINAL if self._ask else NOBODY)

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
        return sessions.key(TERMINAL, name), None
    if record.id != name or not record.key:
        return sessions.key(TERMINAL, name), None
    if record.ended is not None:
        raise UsageError(
            f"Session {record.id} has ended.",
            hint=f"It continues in {record.successor}." if record.successor else "Omit --session to start a new one.",
        )
    return SessionKey.parse_full(record.key), record.id
