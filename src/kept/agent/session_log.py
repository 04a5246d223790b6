"""One session as an agent reads and writes it. Lines are read once and kept.

All methods block on disk and on the transcript's lock, for up to half a minute while another process writes. Call them
in a thread: reads with `asyncio.to_thread`, writes with `run_to_end`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeVar

from kept.context.view import INBOUND, ConversationView, build_view
from kept.sessions.entries import Body, CompactionEntry, Entry, Message, ToolCall, ToolResult
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Position, Transcript, TranscriptLine

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
        self.absolute = self.record.transcript_path
        self.path = self.record.citation
        """Path by which a search cites it."""
        self.futile_tokens = 0
        """Size of the context when a summary turned out not to be shorter. It is not tried again soon."""
        self._notices: set[str] = set()
        self._lock = threading.Lock()
        self._lines: list[TranscriptLine] = []
        self._view: ConversationView | None = None
        self._end = Position()
        """Position up to which the transcript was read."""

    def view(self) -> ConversationView:
        """Return the state of the conversation, with what other processes have added."""
        return self._read()[0]

    def _read(self) -> tuple[ConversationView, Position]:
        """Return the state of the conversation, and the position up to which the transcript was read for it."""
        with self._lock:
            if self._lines and os.path.getsize(self.absolute) < self._end.offset:  # it was replaced by a shorter file
                self._lines, self._view, self._end = [], None, Position()
            new = list(Transcript(self.absolute).iter_lines(self._end))
            if new or self._view is None:
                self._lines += new
                self._view = build_view(self._lines)
            if new:
                self._end = Position(new[-1].end, new[-1].number)
            return self._view, self._end

    def is_new_notice(self, text: str) -> bool:
        """Return whether a notice has not been given in this session yet, and remember it."""
        is_new = text not in self._notices
        self._notices.add(text)
        return is_new

    # writing

    def add(self, *bodies: Body) -> tuple[Entry, ...]:
        return self.sessions.append_all(self.session_id, bodies)

    def add_inbound(self, messages: Sequence[Message]) -> None:
        """Add messages, except those whose channel id is in the transcript, even if another process added it."""
        while True:
            view, end = self._read()
            known = {logged.inbound_id for logged in view.inbound}
            missing = [message for message in messages if message.metadata[INBOUND] not in known]
            is_unchanged = partial(_ends_at, position=end)
            if not missing or self.sessions.append_all(self.session_id, missing, only_if=is_unchanged):
                return

    def add_compaction(self, compaction: CompactionEntry, *, after: str | None) -> Entry | None:
        """Add a compaction, and return its entry. Return None if another compaction came after ``after``."""
        view, end = self._read()
        if view.compaction_id != after:
            return None

        def is_next(transcript: Transcript) -> bool:
            newer = (line.content for line in transcript.iter_lines(end))
            return not any(isinstance(entry, Entry) and isinstance(entry.body, CompactionEntry) for entry in newer)

        entries = self.sessions.append_all(self.session_id, [compaction], only_if=is_next)
        return entries[0] if entries else None


def _ends_at(transcript: Transcript, position: Position) -> bool:
    return next(transcript.iter_lines(position), None) is None


def find_open_calls(view: ConversationView) -> list[ToolCall]:
    """Return tool calls without a result: a process has died between the two."""
    results: list[str] = [
        block.call_id for logged in view.messages for block in logged.message.content if isinstance(block, ToolResult)
    ]
    open_calls = []
    for logged in view.messages:
        for block in logged.message.content:
            if isinstance(block, ToolCall):
                if block.id in results:
                    results.remove(block.id)
                else:
                    open_calls.append(block)
    return open_calls
