"""Select the messages in the context: those since the last compaction, and those that it kept. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kept.sessions.branches import active_branch
from kept.sessions.entries import FLUSH, CompactionEntry, Entry, Message, StateEntry, UnknownEntry
from kept.sessions.transcript import Damage, TranscriptLine
from kept.values import frozen

INBOUND = "inbound"
"""Metadata of a message: its id in the channel."""
ANSWERS = "answers"
"""Metadata of an answer: channel ids of the messages that it answers."""


@frozen
class LoggedMessage:
    """Message of a transcript, with its line number."""

    line: int
    entry: Entry
    message: Message

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def inbound_id(self) -> str | None:
        """Id of the message in its channel. Imported transcripts may store anything under that name."""
        inbound_id = self.message.metadata.get(INBOUND)
        return inbound_id if isinstance(inbound_id, str) else None

    @property
    def answered_ids(self) -> tuple[str, ...]:
        """Channel ids of the messages that this one answers."""
        ids = self.message.metadata.get(ANSWERS)
        return tuple(item for item in ids if isinstance(item, str)) if isinstance(ids, list) else ()


@frozen
class ConversationView:
    """State of a conversation, as a transcript records it."""

    messages: tuple[LoggedMessage, ...]
    """Messages that the model sees verbatim, oldest first."""
    compaction: Entry | None
    """Last compaction. Its summary replaces everything before."""
    compactions: int
    """Number of compactions in this transcript."""
    flush: StateEntry | None
    """Last attempt at a flush since the last compaction."""
    flushed_line: int
    """Last line that a successful flush has read."""
    answers: tuple[LoggedMessage, ...]
    """Complete answers of the whole session that name the messages they answer."""
    inbound: tuple[LoggedMessage, ...]
    """Messages of the whole session that have a channel id."""

    @property
    def summary(self) -> str:
        return (
            self.compaction.body.summary
            if self.compaction and isinstance(self.compaction.body, CompactionEntry)
            else ""
        )

    @property
    def compaction_id(self) -> str | None:
        return self.compaction.id if self.compaction else None


def build_view(lines: Sequence[TranscriptLine]) -> ConversationView:
    """Return the state of a conversation. If the transcript has branches, follow the one with the last entry."""
    numbers = {id(line.content): line.number for line in lines}
    branch = active_branch([line.content for line in lines if not isinstance(line.content, Damage)])
    entries = [entry for entry in branch if not isinstance(entry, UnknownEntry)]
    at, compaction = _find_last_compaction(entries)
    first = _first_kept(entries, at, compaction)
    messages = [
        LoggedMessage(numbers[id(entry)], entry, entry.body) for entry in entries if isinstance(entry.body, Message)
    ]
    from_line = numbers[id(entries[first])] if first < len(entries) else 0
    return ConversationView(
        messages=tuple(logged for logged in messages if first < len(entries) and logged.line >= from_line),
        compaction=compaction,
        compactions=sum(isinstance(entry.body, CompactionEntry) for entry in entries),
        flush=_find_last_flush(entries[at + 1 :]),
        flushed_line=_last_flushed_line(entries),
        answers=tuple(logged for logged in messages if logged.message.role == "assistant" and logged.answered_ids),
        inbound=tuple(logged for logged in messages if logged.message.role == "user" and logged.inbound_id is not None),
    )


def _find_last_compaction(entries: Sequence[Entry]) -> tuple[int, Entry | None]:
    for at in range(len(entries) - 1, -1, -1):
        if isinstance(entries[at].body, CompactionEntry):
            return at, entries[at]
    return -1, None


def _first_kept(entries: Sequence[Entry], at: int, compaction: Entry | None) -> int:
    """Return the index of the first entry that the compaction at ``at`` kept, or the one after it if it kept none."""
    if compaction is None or not isinstance(compaction.body, CompactionEntry):
        return 0
    kept_id = compaction.body.first_kept_id
    indexes = (index for index, entry in enumerate(entries[:at]) if kept_id is not None and entry.id == kept_id)
    return next(indexes, at + 1)


def _find_last_flush(entries: Sequence[Entry]) -> StateEntry | None:
    flushes = [entry.body for entry in entries if isinstance(entry.body, StateEntry) and entry.body.name == FLUSH]
    return flushes[-1] if flushes else None


def _last_flushed_line(entries: Sequence[Entry]) -> int:
    last = 0
    for entry in entries:
        if isinstance(entry.body, StateEntry) and entry.body.name == FLUSH and flush_succeeded(entry.body):
            line = entry.body.value.get("throughLine") if isinstance(entry.body.value, dict) else None
            last = max(last, line) if isinstance(line, int) else last
    return last


def flush_succeeded(flush: StateEntry) -> bool:
    return not (isinstance(flush.value, dict) and flush.value.get("outcome") == "failed")
