"""One session as an agent reads and writes it: the state of the conversation, from its transcript, and the transcript.

Lines are read once and kept. All methods block on disk, for up to half a minute while another process writes. Call them
in a thread: reads with `asyncio.to_thread`, writes with `run_to_end`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, ParamSpec, TypeVar

from kept.agent.events import UNDECIDED, GroupLine, Inbound
from kept.base.digest import digest_bytes
from kept.base.values import frozen
from kept.errors import LockBusy
from kept.memory import Memory
from kept.sessions.attachments import ATTACHMENTS, read_attachments
from kept.sessions.entries import (
    CHANNEL,
    FLUSH,
    SENT,
    Block,
    Body,
    CompactionEntry,
    Entry,
    Message,
    StateEntry,
    Text,
    ToolCall,
    ToolResult,
    format_time,
)
from kept.sessions.record import active_branch
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage, Position, TranscriptLine
from kept.storage.contract import LogInfo

INBOUND = "inbound"
"""Metadata of a message: its id in the channel."""
ANSWERS = "answers"
"""Metadata of an answer: channel ids of the messages that it answers."""
GROUP = "group"
"""Metadata of a message: messages of its group before it."""
APPROVAL, ASKED = "approval", "asked"
"""Name of the states about tool calls that need permission, and the decision before there is one."""


@frozen
class LoggedMessage:
    """Message of a transcript, with its line number."""

    line: int
    entry: Entry
    message: Message
    inbound_id: str | None = None
    """Id of the message in its channel."""
    answered_ids: tuple[str, ...] = ()
    """Channel ids of the messages that this one answers."""


@frozen
class ConversationView:
    """State of a conversation, as a transcript records it."""

    messages: tuple[LoggedMessage, ...]
    """Messages that the model sees verbatim, oldest first."""
    compaction: Entry | None
    """Last compaction. Its summary replaces everything before."""
    flush: str | None
    """Outcome of the last attempt at a flush since the last compaction."""
    flushed_line: int
    """Last line that a successful flush has read."""
    answers: tuple[LoggedMessage, ...]
    """Complete answers of the whole session that name the messages they answer."""
    answered_ids: frozenset[str]
    """Channel ids of the messages that have an answer."""
    inbound: tuple[LoggedMessage, ...]
    """Messages of the whole session that have a channel id."""
    summary: str = ""
    """Summary of the last compaction. Empty if there is none."""
    end: Position = Position()
    """Position up to which the transcript was read for this."""
    undecided: frozenset[str] = frozenset()
    """Ids of tool calls that a person was asked about and that were not decided."""


def build_view(lines: Sequence[TranscriptLine]) -> ConversationView:
    """Return the state of a conversation. If the transcript has branches, follow the one with the last entry."""
    numbers = {id(line.content): line.number for line in lines}
    branch = active_branch([line.content for line in lines if not isinstance(line.content, Damage)])
    messages: list[LoggedMessage] = []
    undecided: set[str] = set()
    compaction, flush, summary = None, None, ""
    kept_from = flushed_line = 0
    for at, entry in enumerate(branch):
        match entry:
            case Entry(body=Message() as message):
                # An imported transcript may store anything under these names.
                inbound, answers = message.metadata.get(INBOUND), message.metadata.get(ANSWERS)
                inbound_id = inbound if message.role == "user" and isinstance(inbound, str) else None
                items = answers if message.role == "assistant" and isinstance(answers, list) else ()
                answered = tuple(item for item in items if isinstance(item, str))
                messages.append(LoggedMessage(numbers[id(entry)], entry, message, inbound_id, answered))
            case Entry(body=CompactionEntry(summary=summary, first_kept_id=kept_id)):
                compaction, flush = entry, None
                first_kept = (other for other in branch[:at] if kept_id is not None and other.id == kept_id)
                kept_from = numbers[id(next(first_kept, entry))]
            case Entry(body=StateEntry(name, value)) if name == FLUSH:
                flush = str(value.get("outcome")) if isinstance(value, dict) else ""
                through = value.get("throughLine") if isinstance(value, dict) and flush != "failed" else None
                flushed_line = max(flushed_line, through) if isinstance(through, int) else flushed_line
            case Entry(body=StateEntry(name, dict() as value)) if name == APPROVAL:
                (undecided.add if value.get("decision") == ASKED else undecided.discard)(str(value.get("call")))
    return ConversationView(
        messages=tuple(logged for logged in messages if logged.line >= kept_from),
        compaction=compaction,
        flush=flush,
        flushed_line=flushed_line,
        answers=tuple(logged for logged in messages if logged.answered_ids),
        answered_ids=frozenset(answered_id for logged in messages for answered_id in logged.answered_ids),
        inbound=tuple(logged for logged in messages if logged.inbound_id is not None),
        undecided=frozenset(undecided),
        summary=summary,
        end=Position(lines[-1].end, lines[-1].number) if lines else Position(),
    )


Call = tuple[int, ToolCall, tuple[int, ToolResult] | None]
"""A tool call with the index of its message, and its result with that of its own message, if there is one."""


def pair_calls(messages: Sequence[LoggedMessage]) -> Iterator[Call]:
    """Yield the tool calls with their results. Some transcripts reuse ids: a result belongs to one call, and a call
    has the first one after it that no other call has."""
    blocks = [(at, block) for at, logged in enumerate(messages) for block in logged.message.content]
    results = [(at, block) for at, block in blocks if isinstance(block, ToolResult)]
    for at, call in blocks:
        if isinstance(call, ToolCall):
            result = next((item for item in results if item[1].call_id == call.id and item[0] >= at), None)
            if result is not None:
                results.remove(result)
            yield at, call, result


NO_RESULT = "Interrupted: it is not known whether this was carried out."

_RESERVED_METADATA = (INBOUND, ANSWERS, GROUP)
"""Names with a meaning in transcripts. A channel cannot set them."""

P = ParamSpec("P")
T = TypeVar("T")


async def run_to_end(write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a write in a thread, and wait for its end even if the task is cancelled.

    A thread cannot be cancelled. Without the wait, the next turn of the session could read the transcript before a
    write of the cancelled turn has reached it.
    """
    task = asyncio.create_task(asyncio.to_thread(write, *args, **kwargs))
    try:
        await asyncio.wait([task])  # does not cancel the task
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()  # the next turn deals with a write that failed
        raise
    return task.result()


class SessionLog:
    """Transcript of a session, with what the agent remembers about it between two turns. Safe between threads."""

    def __init__(self, sessions: SessionStore, session_id: str) -> None:
        self.sessions = sessions
        self.record = sessions.get(session_id)
        self.session_id = self.record.id
        self.key = self.record.key
        self.transcript = sessions.transcript(self.record)
        self.path = self.record.citation
        """Path by which a search cites it."""
        self.futile_tokens = 0
        """Size of the context when a summary turned out not to be shorter. It is not tried again soon."""
        self.memory: Memory | None = None
        """Memory as those in the conversation see it, once a turn has needed it."""
        self.notices: set[str] = set()
        """Texts of the notices that were given in this session."""
        self._lock = threading.Lock()
        self._lines: list[TranscriptLine] = []
        self._view = build_view(())
        self._info: LogInfo | None = None

    def view(self) -> ConversationView:
        """Return the state of the conversation, with what other processes have added."""
        with self._lock:
            before, info = self._info, self.transcript.find()
            if before is not None and before.state == info.state:
                return self._view
            if before is not None and (before.generation != info.generation or info.size <= before.size):
                self._lines, self._view = [], build_view(())  # lines may have lost their text
            self._info = info
            new = list(self.transcript.iter_lines(self._view.end))
            if new:
                self._lines += new
                self._view = build_view(self._lines)
            return self._view

    # writing

    def add(self, *bodies: Body) -> tuple[Entry, ...]:
        return self.sessions.append_all(self.session_id, bodies)

    @contextmanager
    def claimed(self, purpose: Literal["calls", "compaction"]) -> Iterator[bool]:
        """Claim the session for tool calls or for a compaction. Yield whether no other process has. Never waits."""
        # By a digest: a lease leaves a file, and an id may have any characters.
        name = f"{purpose}-{digest_bytes(self.session_id.encode('utf-8', 'replace'))[:32]}"
        with ExitStack() as stack:
            is_ours = True
            try:
                stack.enter_context(self.transcript.storage.lease(name, wait_s=0))
            except LockBusy:
                is_ours = False
            yield is_ours

    def receive(self, inbound: Sequence[Inbound], group: Sequence[GroupLine] = ()) -> None:
        """Add messages of a channel, except those whose channel id is in the transcript.

        Tool calls without a result get one first, unless another process is carrying them out. The lines of the group
        are stored with the first message.
        """
        view = self.view()
        open_calls = [call for _, call, result in pair_calls(view.messages) if result is None]
        if open_calls:
            with self.claimed("calls") as is_free:
                open_calls = open_calls if is_free else []
        if open_calls:
            results = (
                ToolResult(call.id, UNDECIDED if call.id in view.undecided else NO_RESULT, call.name, is_error=True)
                for call in open_calls
            )
            self.add(Message("tool", tuple(results)))
        messages: list[Message] = []
        for message in inbound:
            own = (message.metadata or {}).items()
            metadata: dict[str, Any] = {name: value for name, value in own if name not in _RESERVED_METADATA}
            metadata[INBOUND] = message.id
            metadata.setdefault(CHANNEL, self.record.channel)
            if message.timestamp:
                metadata[SENT] = format_time(message.timestamp)
            if group and not messages:
                metadata[GROUP] = [
                    {"sender": line.sender, "text": line.text, "timestamp": format_time(line.timestamp)}
                    for line in group
                ]
            content: tuple[Block, ...] = (Text(message.text),)
            if ATTACHMENTS in metadata:
                content += tuple(read_attachments(metadata.pop(ATTACHMENTS)))
            messages.append(Message("user", content, sender=message.sender, metadata=metadata))
        # Another process may add the same messages between the read and the append, so append only to what was read.
        while True:
            view = self.view()
            known = {logged.inbound_id for logged in view.inbound}
            missing = [message for message in messages if message.metadata[INBOUND] not in known]
            if not missing or self.sessions.append_all(self.session_id, missing, end=view.end):
                return

    def add_compaction(self, compaction: CompactionEntry, *, after: str | None) -> bool:
        """Add a compaction. Return False if another one came after ``after``."""
        while True:
            view = self.view()
            if (view.compaction.id if view.compaction else None) != after:
                return False
            if self.sessions.append_all(self.session_id, [compaction], end=view.end):
                return True
