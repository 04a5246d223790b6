"""Record of a session: what the catalogue stores of it, and how that follows from the entries of its transcript.

Also two rules about sessions, both pure: which branch of the entries continues, and when a session is stale, so that
the next message starts a new one.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from types import SimpleNamespace
from typing import Any, assert_never

from kept.base.clock import Clock, new_id
from kept.base.limits import ms_from_time, time_from_ms
from kept.base.values import frozen
from kept.config.schema import ResetOverrideSettings, ResetSettings
from kept.sessions.entries import (
    FLUSH,
    MODEL,
    VERSION,
    AnyEntry,
    Body,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    StateEntry,
    UnknownEntry,
    format_entry,
    whole_ms,
)
from kept.sessions.session_key import find_key
from kept.sessions.title import TitleParts, next_opening
from kept.sessions.transcript import Damage, Position, ReadEnd, TranscriptLine, digest_line
from kept.sessions.transcript_paths import cite_transcript, parse_transcript_name
from kept.storage.contract import Append, LogInfo, LogPosition


@frozen
class SessionRecord:
    """One session, as far as it is known without reading its transcript. The fields are columns of the table
    `sessions`."""

    log: str
    """Name of the transcript in the storage of the agent."""
    id: str = ""
    version: int = VERSION
    key: str = ""
    """Empty if the first line of the transcript, which has the key, is lost."""
    channel: str = ""
    account_id: str = ""
    chat_type: str = ""
    user_id: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    active_ms: int = 0
    """Time of the last message. Other entries do not keep a session fresh."""
    messages: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_context: int = 0
    """Tokens in the context window after the last answer or compaction."""
    compactions: int = 0
    """Including those of its predecessors."""
    flushes: int = 0
    flushed_ms: int | None = None
    flush_compactions: int | None = None
    """Number of compactions at the last flush: one flush before each compaction is enough."""
    predecessor: str | None = None
    successor: str | None = None
    ended_ms: int | None = None
    end_reason: str | None = None
    state: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    opening: str = ""
    """The first words asked (`next_opening`)."""
    damaged_lines: int = 0
    last_id: str | None = None
    """Id of the last entry that has one: the parent of the next entry."""
    lines: int = 0
    offset: int = 0
    """Position up to which the transcript was read for this record."""
    last_line: str = ""
    """Digest of the line before it."""
    size: int = 0
    generation: int = 0
    log_state: str = ""
    """What the log was like then (`LogInfo`)."""

    @property
    def created(self) -> dt.datetime:
        return time_from_ms(self.created_ms)

    @property
    def updated(self) -> dt.datetime:
        return time_from_ms(self.updated_ms)

    @property
    def active(self) -> dt.datetime:
        return time_from_ms(self.active_ms)

    @property
    def flushed(self) -> dt.datetime | None:
        return None if self.flushed_ms is None else time_from_ms(self.flushed_ms)

    @property
    def ended(self) -> dt.datetime | None:
        return None if self.ended_ms is None else time_from_ms(self.ended_ms)

    @property
    def end(self) -> Position:
        return Position(self.offset, self.lines)

    @property
    def read_end(self) -> ReadEnd:
        return ReadEnd(self.generation, self.offset, self.last_line)

    @property
    def title(self) -> str:
        """The user's title, or that of the program it was imported from, or the first words asked. Without secrets."""
        return TitleParts(self.opening).with_states(self.state).text

    @property
    def folder(self) -> str:
        """Folder that an imported conversation was held in. Empty if there is none."""
        folder = self.metadata.get("cwd")
        return folder if isinstance(folder, str) else ""

    @property
    def citation(self) -> str:
        """Name of the transcript as a search cites it."""
        return cite_transcript(self.log)

    @property
    def tokens_total(self) -> int:
        return self.tokens_in + self.tokens_out

    @property
    def model_override(self) -> str | None:
        model = self.state.get(MODEL)
        return None if model is None else str(model)


FIELDS = tuple(spec.name for spec in dataclasses.fields(SessionRecord))


class RecordBuilder:
    """Builds a record line by line, from that of the lines before."""

    def __init__(self, record: SessionRecord) -> None:
        self.row: Any = SimpleNamespace(**{name: getattr(record, name) for name in FIELDS})
        """The fields of the record."""
        self.row.state = dict(record.state)
        self._last: bytes | None = None

    @classmethod
    def begin(cls, log: str) -> RecordBuilder:
        """Start a record from the name of the log, which is all there is if the first line is lost."""
        session_id, created = parse_transcript_name(log.rpartition("/")[2])
        created_ms = ms_from_time(created) if created else 0
        record = SessionRecord(log, session_id, created_ms=created_ms)
        return cls(dataclasses.replace(record, updated_ms=created_ms, active_ms=created_ms))

    def finish(self, info: LogInfo) -> SessionRecord:
        """Return the record, of a log that was like this before it was read."""
        self.row.size, self.row.generation, self.row.log_state = info.size, info.generation, info.state
        if self._last is not None:
            self.row.last_line = digest_line(self._last)
        return SessionRecord(**vars(self.row))

    def add(self, line: TranscriptLine) -> Damage | None:
        """Add a line. Return what is wrong with it, if anything is."""
        row, entry = self.row, line.content
        row.lines, row.offset, self._last = line.number, line.end, line.raw
        if isinstance(entry, Damage):
            row.damaged_lines += 1
            return entry
        row.last_id = entry.id or row.last_id
        self._add(entry)
        return None

    def _add(self, entry: AnyEntry) -> None:
        row = self.row
        at = (ms_from_time(entry.timestamp) if entry.timestamp else 0) or row.updated_ms  # 0 if its time is unknown
        row.updated_ms = max(row.updated_ms, at)
        if isinstance(entry, UnknownEntry):
            return
        match entry.body:
            case Message(usage=usage):
                row.messages += 1
                row.opening = next_opening(row.opening, entry.body)
                row.active_ms = max(row.active_ms, at)
                if usage:
                    row.tokens_in += usage.input
                    row.tokens_out += usage.output
                    row.tokens_context = usage.context or row.tokens_context
            case CompactionEntry(tokens_after=after):
                row.compactions += 1
                row.tokens_context = row.tokens_context if after is None else after
            case StateEntry(name, value):
                self._set_state(name, value, at)
            case ResetEntry(reason, successor):
                row.ended_ms, row.end_reason, row.successor = at, reason, successor
            case SessionStart():
                self._start(entry, entry.body, at)
            case _:
                assert_never(entry.body)

    def _set_state(self, name: str, value: Any, at: int) -> None:
        row = self.row
        if name == FLUSH:
            if isinstance(value, dict) and value.get("outcome") == "failed":
                return  # a failed flush has written no notes; the next one has to
            row.flushes += 1
            row.flushed_ms, row.flush_compactions = at, row.compactions
        elif value is None:
            row.state.pop(name, None)
        else:
            row.state[name] = value

    def _start(self, entry: Entry, start: SessionStart, at: int) -> None:
        row = self.row
        row.id, row.version, row.key = entry.id, start.version, start.key
        row.created_ms = row.active_ms = at
        row.predecessor = start.predecessor
        row.compactions += start.compactions
        row.state, row.metadata = dict(start.state), dict(start.metadata)
        key = find_key(start.key)
        row.key = str(key) if key else ""
        if key is None:
            return
        for name in ("channel", "account_id", "chat_type", "user_id"):
            # As the catalogue stores them: half of a surrogate pair, which JSON allows, is an escape.
            setattr(row, name, getattr(key, name).encode("utf-8", "backslashreplace").decode())


# appending


def make_append(record: SessionRecord, bodies: Sequence[Body], now: dt.datetime) -> tuple[tuple[Entry, ...], Append]:
    """Return entries that follow the last one of a session, and the change that appends them."""
    when, parent, entries = whole_ms(now), record.last_id, []
    for body in bodies:
        entries.append(Entry(new_id(), parent, when, body))
        parent = entries[-1].id
    return tuple(entries), Append(record.log, format_lines(entries), LogPosition(record.offset))


def format_lines(entries: Iterable[AnyEntry]) -> list[bytes]:
    return [format_entry(entry)[:-1] for entry in entries]


# branches


@frozen
class LoadedSession:
    """Entries of a session in order, and the lines among them that cannot be read."""

    entries: tuple[AnyEntry, ...]
    damage: tuple[Damage, ...] = ()

    def __iter__(self) -> Iterator[AnyEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def messages(self) -> tuple[Message, ...]:
        bodies = (entry.body for entry in self.entries if isinstance(entry, Entry))
        return tuple(body for body in bodies if isinstance(body, Message))


def active_branch(entries: Sequence[AnyEntry]) -> tuple[AnyEntry, ...]:
    """Return the entries that lead to the last one, in order. Entries between an entry and its parent are on another
    branch.

    If the parent of an entry is missing (its line is damaged, or before the part that was read), the entry is taken to
    follow the previous one, so that nothing is lost.
    """
    positions = {entry.id: position for position, entry in enumerate(entries) if entry.id is not None}
    branch: list[AnyEntry] = []
    resume = len(entries)
    for position in range(len(entries) - 1, -1, -1):
        if position > resume:
            continue
        entry = entries[position]
        branch.append(entry)
        parent = positions.get(entry.parent_id, -1) if entry.parent_id is not None else -1
        resume = parent if 0 <= parent < position else position
    return tuple(reversed(branch))


# staleness

_CHANNEL_DEFAULTS = {"openai": ResetOverrideSettings(mode="none")}
"""Chat programs decide themselves where a conversation ends."""


def policy_for(reset: ResetSettings, *, channel: str, chat_type: str) -> ResetSettings:
    """Return the policy of a conversation. Its channel overrides its chat type, which overrides the general setting."""
    policy = reset
    by_channel = {**_CHANNEL_DEFAULTS, **reset.by_channel}
    for override in (reset.by_chat_type.get(chat_type), by_channel.get(channel)):
        if override is not None:
            fields = {name: value for name, value in dataclasses.asdict(override).items() if value is not None}
            policy = dataclasses.replace(policy, **fields)
    return policy


def find_end(record: SessionRecord, policy: ResetSettings, clock: Clock) -> str | None:
    """Return why the next message cannot continue a session: it has ended, or it is stale. None if it can."""
    if record.ended_ms is not None:
        return record.end_reason or "ended"
    active, now = time_from_ms(record.active_ms), clock.now()
    match policy.mode:
        case "none":
            return None
        case "idle":
            return "idle" if now - active >= dt.timedelta(minutes=policy.idle_minutes) else None
        case "daily":  # the most recent occurrence of the hour, in local time
            boundary = now.replace(hour=policy.daily_hour, minute=0, second=0, microsecond=0)
            if boundary > now:
                boundary -= dt.timedelta(days=1)
            return "daily" if active < boundary else None
        case _:
            assert_never(policy.mode)
