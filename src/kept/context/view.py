"""Which lines of a transcript are in the context: those since the last compaction, and those that it kept. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kept.sessions.branches import active_branch
from kept.sessions.entries import FLUSH, CompactionEntry, Entry, Message, StateEntry, UnknownEntry
from kept.sessions.transcript import Damage, TranscriptLine
from kept.values import frozen

INBOUND = "inbound"
"""In the metadata of a message: the id that its channel gave it."""
ANSWERS = "answers"
"""In the metadata of an answer: the ids of the messages that it answers."""


@frozen
class LoggedMessage:
    """A message and where it stands."""

    line: int
    entry: Entry
    message: Message

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def inbound(self) -> str | None:
        """The id that its channel gave it. Transcripts from elsewhere may hold anything by that name."""
        found = self.message.metadata.get(INBOUND)
        return found if isinstance(found, str) else None

    @property
    def answers(self) -> tuple[str, ...]:
        """The ids of the messages that it answers."""
        found = self.message.metadata.get(ANSWERS)
        return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


@frozen
class ConversationView:
    said: tuple[LoggedMessage, ...]
    """The messages that the model sees as they are, oldest first."""
    compaction: Entry | None
    """The last one. Its summary stands for everything before."""
    compactions: int
    """In this transcript."""
    flush: StateEntry | None
    """The last attempt at a flush since that compaction."""
    flushed_line: int
    """Up to here everything was looked through by a flush that worked."""
    answers: tuple[LoggedMessage, ...]
    """Whole answers of all the session, which say what they answer."""
    asked: tuple[LoggedMessage, ...]
    """Every message of all the session that a channel gave an id to."""

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


def view_of(lines: Sequence[TranscriptLine]) -> ConversationView:
    """What a model is to see of a transcript. Of several branches, the one that goes on."""
    numbers = {id(line.content): line.number for line in lines}
    entries = active_branch([line.content for line in lines if not isinstance(line.content, Damage)])
    known = [entry for entry in entries if not isinstance(entry, UnknownEntry)]
    at, compaction = _last_compaction(known)
    first = _first_kept(known, at, compaction)
    said = [LoggedMessage(numbers[id(entry)], entry, entry.body) for entry in known if isinstance(entry.body, Message)]
    from_line = numbers[id(known[first])] if first < len(known) else 0
    shown = [one for one in said if first < len(known) and one.line >= from_line]
    return ConversationView(
        said=tuple(shown),
        compaction=compaction,
        compactions=sum(isinstance(entry.body, CompactionEntry) for entry in known),
        flush=_last_flush(known[at + 1 :]),
        flushed_line=_flushed_line(known),
        answers=tuple(one for one in said if one.message.role == "assistant" and one.answers),
        asked=tuple(one for one in said if one.message.role == "user" and one.inbound is not None),
    )


def _last_compaction(entries: Sequence[Entry]) -> tuple[int, Entry | None]:
    for at in range(len(entries) - 1, -1, -1):
        if isinstance(entries[at].body, CompactionEntry):
            return at, entries[at]
    return -1, None


def _first_kept(entries: Sequence[Entry], at: int, compaction: Entry | None) -> int:
    if compaction is None or not isinstance(compaction.body, CompactionEntry):
        return 0
    kept = compaction.body.first_kept_id
    places = (place for place, entry in enumerate(entries[:at]) if kept is not None and entry.id == kept)
    return next(places, at + 1)


def _last_flush(entries: Sequence[Entry]) -> StateEntry | None:
    flushes = [entry.body for entry in entries if isinstance(entry.body, StateEntry) and entry.body.name == FLUSH]
    return flushes[-1] if flushes else None


def _flushed_line(entries: Sequence[Entry]) -> int:
    through = 0
    for entry in entries:
        if isinstance(entry.body, StateEntry) and entry.body.name == FLUSH and flush_succeeded(entry.body):
            line = entry.body.value.get("throughLine") if isinstance(entry.body.value, dict) else None
            through = max(through, line) if isinstance(line, int) else through
    return through


def flush_succeeded(flush: StateEntry) -> bool:
    return not (isinstance(flush.value, dict) and flush.value.get("outcome") == "failed")
