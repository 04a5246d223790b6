"""Select the messages in the context: those since the last compaction, and those that it kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kept.base.values import frozen
from kept.sessions.entries import FLUSH, CompactionEntry, Entry, Message, StateEntry, UnknownEntry
from kept.sessions.record import active_branch
from kept.sessions.transcript import Damage, Position, TranscriptLine

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
    summary: str = ""
    """Summary of the last compaction. Empty if there is none."""
    end: Position = Position()
    """Position up to which the transcript was read for this."""
    undecided: frozenset[str] = frozenset()
    """Ids of tool calls that a person was asked about and that were not decided."""

    @property
    def compaction_id(self) -> str | None:
        return self.compaction.id if self.compaction else None


def build_view(lines: Sequence[TranscriptLine]) -> ConversationView:
    """Return the state of a conversation. If the transcript has branches, follow the one with the last entry."""
    numbers = {id(line.content): line.number for line in lines}
    branch = active_branch([line.content for line in lines if not isinstance(line.content, Damage)])
    entries = [entry for entry in branch if not isinstance(entry, UnknownEntry)]
    compactions = [index for index, entry in enumerate(entries) if isinstance(entry.body, CompactionEntry)]
    last = compactions[-1] if compactions else -1
    compaction = entries[last] if compactions else None
    first = _first_kept(entries, last) if compactions else 0
    messages = [
        LoggedMessage(numbers[id(entry)], entry, entry.body) for entry in entries if isinstance(entry.body, Message)
    ]
    from_line = numbers[id(entries[first])] if first < len(entries) else 0
    states = [(index, entry.body) for index, entry in enumerate(entries) if isinstance(entry.body, StateEntry)]
    flushes = [(index, state) for index, state in states if state.name == FLUSH]
    return ConversationView(
        messages=tuple(logged for logged in messages if first < len(entries) and logged.line >= from_line),
        compaction=compaction,
        compactions=len(compactions),
        flush=flushes[-1][1] if flushes and flushes[-1][0] > last else None,
        flushed_line=max((_flushed_line(flush) for _, flush in flushes), default=0),
        answers=tuple(logged for logged in messages if logged.message.role == "assistant" and logged.answered_ids),
        inbound=tuple(logged for logged in messages if logged.message.role == "user" and logged.inbound_id is not None),
        undecided=_find_undecided(state for _, state in states) if states else frozenset(),
        summary=compaction.body.summary if compaction and isinstance(compaction.body, CompactionEntry) else "",
        end=Position(lines[-1].end, lines[-1].number) if lines else Position(),
    )


def _find_undecided(states: Iterable[StateEntry]) -> frozenset[str]:
    decisions: dict[str, object] = {}
    for state in states:
        if state.name == APPROVAL and isinstance(state.value, dict):
            decisions[str(state.value.get("call"))] = state.value.get("decision")
    return frozenset(call for call, decision in decisions.items() if decision == ASKED)


def _first_kept(entries: Sequence[Entry], at: int) -> int:
    """Return the index of the first entry that the compaction at ``at`` kept, or the one after it if it kept none."""
    body = entries[at].body
    kept_id = body.first_kept_id if isinstance(body, CompactionEntry) else None
    indexes = (index for index, entry in enumerate(entries[:at]) if kept_id is not None and entry.id == kept_id)
    return next(indexes, at + 1)


def _flushed_line(flush: StateEntry) -> int:
    """Return the last line that a flush has read, 0 if it failed."""
    line = flush.value.get("throughLine") if isinstance(flush.value, dict) and flush_succeeded(flush) else None
    return max(0, line) if isinstance(line, int) else 0


def flush_succeeded(flush: StateEntry) -> bool:
    return not (isinstance(flush.value, dict) and flush.value.get("outcome") == "failed")
