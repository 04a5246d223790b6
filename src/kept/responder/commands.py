"""Messages that begin with a slash. They are answered without a model."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kept.agent.events import AnsweringAgent, CompactionResult, Inbound
from kept.errors import EmptyNote, KeptError, SessionNotFound
from kept.memory import Memory
from kept.records import Hit, Written
from kept.responder import forget
from kept.sessions.entries import FORWARDED
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore
from kept.text import clip
from kept.values import frozen
from kept.workspace.removal import Removed

T = TypeVar("T")

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:\s+(.*))?\Z", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}")
_FOUND = 5
_SNIPPET_CHARS = 300

HELP = """\
/new [TEXT] – begin a new conversation; the old one is kept
/reset – the same
/compact [WHAT MATTERS] – put a summary in the place of what was said so far
/status – this conversation, the model, the memory
/memory QUERY – what is remembered about it
/remember TEXT – write it into long-term memory
/forget QUERY – what the notes say about it, to be taken out once you confirm
/stop – stop answering
/help – this list"""
NAMES = tuple(line.split()[0].lstrip("/") for line in HELP.splitlines())


@frozen
class Command:
    name: str
    rest: str


@frozen
class CommandCall:
    """A command, with the conversation it was given in. ``message_id`` tells whether it was carried out before."""

    command: Command
    session_id: str
    message_id: str


def parse_command(text: str) -> Command | None:
    """A path such as /etc/hosts is no command, and neither is /help@somebody: a channel that knows names takes its own
    off."""
    found = _COMMAND.match(text.strip())
    return Command(found[1].lower(), (found[2] or "").strip()) if found else None


def find_command(message: Inbound) -> Command | None:
    """The command that a person gives. What somebody else wrote and the person only passed on is none."""
    return None if FORWARDED in (message.metadata or {}) else parse_command(message.text)


def is_stop(message: Inbound) -> bool:
    command = find_command(message)
    return command is not None and command.name == "stop"


class Commands:
    """``more_status`` adds lines about whatever runs this: the queue of a gateway."""

    def __init__(
        self,
        agent: AnsweringAgent,
        memory: Memory,
        sessions: SessionStore,
        *,
        more_status: Callable[[], list[str]] = list,
    ) -> None:
        self.agent = agent
        self.memory = memory
        self.sessions = sessions
        self.more_status = more_status

    async def run(self, asked: CommandCall) -> str:
        """The reply. What goes wrong is said in it."""
        known: dict[str, Callable[[CommandCall], Awaitable[str]]] = {
            "new": self._new,
            "reset": self._new,
            "compact": self._compact,
            "status": self._status,
            "memory": self._memory,
            "remember": self._remember,
            "forget": self._forget,
            "stop": self._stop,
            "help": self._help,
        }
        handle = known.get(asked.command.name)
        if handle is None:
            return _unknown(asked.command.name)
        try:
            return await handle(asked)
        except KeptError as exc:
            return f"{exc.message} {exc.hint}".strip()

    async def begin_anew(self, asked: CommandCall) -> SessionRecord:
        """The session that follows. Carried out before a crash, it is the one that was begun then."""
        return await asyncio.to_thread(self._begin_anew, asked)

    def _begin_anew(self, asked: CommandCall) -> SessionRecord:
        old = self.sessions.get(asked.session_id)
        if old.successor:
            try:
                newer = self.sessions.get(old.successor)
            except SessionNotFound:
                newer = None
            if newer is not None and newer.metadata.get("inbound") == asked.message_id:
                return newer
        return self.sessions.reset(old.id, metadata={**old.metadata, "inbound": asked.message_id})

    async def _new(self, asked: CommandCall) -> str:
        await self.begin_anew(asked)
        return f"A new conversation. The one before is kept: session {asked.session_id}."

    async def _compact(self, asked: CommandCall) -> str:
        return _describe_compaction(await self.agent.compact(asked.session_id, instructions=asked.command.rest or None))

    async def _status(self, asked: CommandCall) -> str:
        return "\n".join([*await asyncio.to_thread(self._status_lines, asked.session_id), *self.more_status()])

    def _status_lines(self, session_id: str) -> list[str]:
        record, status = self.sessions.get(session_id), self.memory.status()
        model = self.memory.config.agent.model
        return [
            f"Agent {status.agent}, model {model.name or 'default'} ({model.provider or 'none'}).",
            f"Session {record.id}: {record.messages} messages, {record.tokens_context:,} tokens in context, "
            f"{record.compactions} compactions.",
            f"Memory: {status.files} files, {status.chunks} passages.",
            *status.degraded,
        ]

    async def _memory(self, asked: CommandCall) -> str:
        query = asked.command.rest
        if not query:
            return "Say what to look for: /memory QUERY."
        found = await asyncio.to_thread(lambda: self.memory.search(query, max_results=_FOUND))
        lines = [_shown(number, hit) for number, hit in enumerate(found.hits, 1)]
        return "\n\n".join([*(lines or ["Nothing is remembered about that."]), *found.degraded])

    async def _remember(self, asked: CommandCall) -> str:
        try:
            written = await asyncio.to_thread(self._write_down, asked.command.rest)
        except EmptyNote:
            return "Say what to remember: /remember TEXT."
        return f"Kept in {written.citation}." if written else "That is in long-term memory already."

    def _write_down(self, text: str) -> Written | None:
        """None where the same stands there already: after a crash, it may have been us."""
        if text and "\n" not in text:
            try:
                note = self.memory.read("MEMORY.md", lines=1_000_000).text
            except KeptError:
                note = ""
            if any(line.removeprefix("- ") == text.removeprefix("- ") for line in note.split("\n")):
                return None
        return self.memory.add(text, to="memory")

    async def _forget(self, asked: CommandCall) -> str:
        rest = asked.command.rest
        answer = rest.lower().replace(",", " ").split()
        if not answer:
            return "Say what to forget: /forget QUERY. You will see what would go before anything does."
        if answer in (["no"], ["yes"]) or all(map(_NUMBER.fullmatch, answer)):
            return await asyncio.to_thread(self._settle, asked.session_id, answer)
        return await asyncio.to_thread(self._ask, asked.session_id, rest)

    def _ask(self, session_id: str, query: str) -> str:
        passages, said = forget.find_passages(self.memory, query)
        stays = _what_stays(said)
        if not passages:
            return "\n\n".join(["The notes say nothing about that.", *stays])
        forget.remember_question(self.sessions, session_id, passages)
        shown = [f"{number}. {one.citation}\n{one.text}" for number, one in enumerate(passages, 1)]
        which = "/forget yes takes all of it out" if len(passages) == 1 else _CHOOSE
        return "\n\n".join(["This would go:", *shown, f"{which}; /forget no leaves it.", *stays])

    def _settle(self, session_id: str, answer: list[str]) -> str:
        cuts = forget.pending_cuts(self.sessions, session_id)
        if not cuts:
            return "There is nothing waiting to be forgotten. Begin with /forget QUERY."
        if answer == ["no"]:
            forget.withdraw_question(self.sessions, session_id)
            return "Nothing was forgotten."
        chosen = range(1, len(cuts) + 1) if answer == ["yes"] else [int(word) for word in answer]
        if any(not 1 <= number <= len(cuts) for number in chosen):
            return f"Choose from 1 to {len(cuts)}. Nothing was forgotten."
        removed = forget.forget(self.memory, [cuts[number - 1] for number in dict.fromkeys(chosen)])
        if not removed.failures:
            forget.withdraw_question(self.sessions, session_id)
        return _describe_removal(removed, forget.tombstones_path(self.memory))

    async def _stop(self, asked: CommandCall) -> str:
        return "Stopped."

    async def _help(self, asked: CommandCall) -> str:
        return HELP


_CHOOSE = "/forget yes takes all of it out, /forget 1 2 only those"


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, NAMES, n=1)
    ask = f" Did you mean /{near[0]}?" if near else ""
    return f"There is no command /{name}.{ask} /help lists those there are."


def _shown(number: int, hit: Hit) -> str:
    text = hit.snippet.strip()
    return f"{number}. {hit.citation}\n{clip(text, _SNIPPET_CHARS)}"


def _what_stays(said: list[Hit]) -> list[str]:
    if not said:
        return []
    where = ", ".join(hit.citation for hit in said)
    return [
        f"Conversations stay as they are, and are still searched: it was also said in {where}. "
        "'kept sessions delete' takes a whole conversation away."
    ]


def _describe_removal(removed: Removed, kept_in: str) -> str:
    lines: list[Any] = []
    if removed.gone:
        count = len(removed.gone)
        lines.append(f"Forgotten: {count} {'passage' if count == 1 else 'passages'}. A copy is kept in {kept_in}.")
    lines += (f"{cut.path}: has changed since, and was left alone." for cut in removed.changed)
    lines += removed.failures
    return "\n".join(lines)


def _describe_compaction(done: CompactionResult) -> str:
    if not done.done:
        return f"Nothing was compacted: {done.reason}."
    by = " The summary was put together without a model." if done.source == "extractive" else ""
    return f"Compacted from {done.tokens_before:,} to {done.tokens_after:,} tokens.{by}"
