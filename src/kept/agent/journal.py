"""One session, as an agent reads and writes it: what was read once is not read again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import partial

from kept.context.view import INBOUND, ConversationView, LoggedMessage, view_of
from kept.indexing.sources import CITED_FOLDER
from kept.sessions.entries import Body, CompactionEntry, Entry, Message, ToolCall, ToolResult
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Position, Transcript, TranscriptLine


class SessionLog:
    def __init__(self, sessions: SessionStore, session_id: str) -> None:
        self.sessions = sessions
        self.record = sessions.get(session_id)
        self.session_id = self.record.id
        self.absolute = self.record.transcript_path
        self.path = CITED_FOLDER + os.path.basename(self.absolute)
        """As a search cites it."""
        self.futile_tokens = 0
        """How long the context was when a summary turned out to be no shorter: it is not tried again soon."""
        self._lines: list[TranscriptLine] = []
        self._view: ConversationView | None = None

    def view(self) -> ConversationView:
        """As the transcript now is, whoever has added to it."""
        if self._lines and os.path.getsize(self.absolute) < self._lines[-1].end:
            self._lines, self._view = [], None
        new = list(Transcript(self.absolute).iter_lines(self._end()))
        if new or self._view is None:
            self._lines += new
            self._view = view_of(self._lines)
        return self._view

    def _end(self) -> Position:
        return Position(self._lines[-1].end, self._lines[-1].number) if self._lines else Position()

    # writing

    def add(self, *bodies: Body) -> tuple[Entry, ...]:
        return self.sessions.append_all(self.session_id, bodies)

    def add_inbound(self, messages: Sequence[Message]) -> None:
        """Messages with the ids of their channel, without those that are there, whoever has added them."""
        while True:
            known = {one.inbound for one in self.view().asked}
            missing = [message for message in messages if message.metadata[INBOUND] not in known]
            still_so = partial(_ends_at, position=self._end())
            if not missing or self.sessions.append_all(self.session_id, missing, only_if=still_so):
                return

    def add_compaction(self, compaction: CompactionEntry, *, after: str | None) -> Entry | None:
        """Nothing, where there has been another compaction than ``after`` since."""
        if self.view().compaction_id != after:
            return None
        seen = self._end()

        def is_the_next(transcript: Transcript) -> bool:
            newer = (line.content for line in transcript.iter_lines(seen))
            return not any(isinstance(one, Entry) and isinstance(one.body, CompactionEntry) for one in newer)

        added = self.sessions.append_all(self.session_id, [compaction], only_if=is_the_next)
        return added[0] if added else None

    # hashes

    def hash_lines(self, ranges: Iterable[tuple[int, int]]) -> str:
        return hash_lines(self.absolute, ranges)


def hash_lines(path: str, ranges: Iterable[tuple[int, int]]) -> str:
    """SHA-256 of these lines of a file, byte for byte."""
    digest = hashlib.sha256()
    wanted = list(ranges)
    for line in Transcript(path).iter_raw():
        if any(first <= line.number <= last for first, last in wanted):
            digest.update(line.raw)
    return digest.hexdigest()


def _ends_at(transcript: Transcript, position: Position) -> bool:
    return next(transcript.iter_lines(position), None) is None


def find_answer(view: ConversationView, ids: Sequence[str]) -> LoggedMessage | None:
    """The answer to a message that has been given, by the id of the last message it answers."""
    for answer in reversed(view.answers):
        if set(ids) & set(answer.answers):
            return answer
    return None


def unanswered(view: ConversationView, ids: Sequence[str]) -> list[str]:
    done = {one for answer in view.answers for one in answer.answers}
    return [one for one in dict.fromkeys(ids) if one not in done]


def open_calls(view: ConversationView) -> list[ToolCall]:
    """Calls of tools that have no result: a process has died between the two."""
    answered: list[str] = [
        block.call_id for one in view.said for block in one.message.content if isinstance(block, ToolResult)
    ]
    found = []
    for one in view.said:
        for block in one.message.content:
            if isinstance(block, ToolCall):
                if block.id in answered:
                    answered.remove(block.id)
                else:
                    found.append(block)
    return found
