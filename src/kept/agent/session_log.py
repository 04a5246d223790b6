"""One session as an agent reads and writes it. Lines are read once and kept.

All methods block on disk, for up to half a minute while another process writes. Call them
in a thread: reads with `asyncio.to_thread`, writes with `run_to_end`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, ParamSpec, TypeVar

from kept.agent.conversation import ANSWERS, GROUP, INBOUND, NO_RESULT, ConversationView, build_view
from kept.agent.events import UNDECIDED, GroupLine, Inbound
from kept.base.digest import digest_bytes
from kept.errors import LockBusy
from kept.memory import Memory
from kept.sessions.attachments import ATTACHMENTS, read_attachments
from kept.sessions.entries import (
    CHANNEL,
    SENT,
    Block,
    Body,
    CompactionEntry,
    Entry,
    Message,
    Text,
    ToolCall,
    ToolResult,
    format_time,
)
from kept.sessions.store import SessionStore
from kept.sessions.transcript import TranscriptLine
from kept.storage.contract import LogInfo

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
        """Memory as the viewer of the last turn sees it, if it is not the agent's own."""
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
        open_calls = find_open_calls(view)
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

    def add_compaction(self, compaction: CompactionEntry, *, after: str | None) -> Entry | None:
        """Add a compaction, and return its entry. Return None if another compaction came after ``after``."""
        while True:
            view = self.view()
            if (view.compaction.id if view.compaction else None) != after:
                return None
            if entries := self.sessions.append_all(self.session_id, [compaction], end=view.end):
                return entries[0]


def find_open_calls(view: ConversationView) -> list[ToolCall]:
    """Return tool calls without a result: a process has died between the two."""
    blocks = [block for logged in view.messages for block in logged.message.content]
    results = Counter(block.call_id for block in blocks if isinstance(block, ToolResult))
    open_calls = []
    for block in blocks:
        if isinstance(block, ToolCall):
            if not results[block.id]:
                open_calls.append(block)
            results[block.id] = max(0, results[block.id] - 1)
    return open_calls
