"""SessionStore: an agent's conversations, as one object."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeGuard

from kept.clock import Clock, SystemClock, new_id
from kept.config import Config, load_config
from kept.durable import make_private_folder, sync_folder
from kept.errors import (
    SessionAmbiguous,
    SessionExists,
    SessionKeyInvalid,
    SessionNotFound,
    StoreError,
    TranscriptTooNew,
    TranscriptUnwritable,
    UsageError,
)
from kept.forking import register
from kept.lock import locked
from kept.quarantine import TORN_ENDING
from kept.records import Problem
from kept.sessions.branches import active_branch
from kept.sessions.catalogue import Catalogue
from kept.sessions.entries import (
    MODEL,
    THINKING,
    VERSION,
    AnyEntry,
    Body,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    believable,
    whole_ms,
)
from kept.sessions.freshness import policy_for, staleness
from kept.sessions.record import SessionRecord
from kept.sessions.session_key import DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, SessionKey, parse_key
from kept.sessions.transcript import LOCK_WAIT_S, Damage, Position, Transcript, TranscriptAppend, TranscriptLine
from kept.sessions.transcript_paths import transcript_name
from kept.values import frozen

_CARRIED_OVER = (MODEL, THINKING)
"""What a person has chosen for a conversation outlives a reset of it."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REMEMBERED = 1_000
_SHOWN_CANDIDATES = 4

log = logging.getLogger(__name__)


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


class SessionStore:
    """The sessions of one agent.

    >>> with SessionStore.open() as sessions:
    ...     session = sessions.get_or_create("telegram", "5054")
    ...     sessions.append(session.id, Message.of("user", "Where did we put the spare key?"))
    ...     sessions.load(session.id, limit=20).messages

    Safe to share between threads; processes that use the same home respect each other.
    """

    def __init__(self, config: Config, *, clock: Clock | None = None) -> None:
        self.config = config
        self.agent_id = config.agent_id
        self.clock = clock or SystemClock()
        self.folder = config.paths.sessions
        self._catalogue = Catalogue(config.paths.catalogue, self.folder)
        self._transcripts: OrderedDict[str, Transcript] = OrderedDict()
        self._lock = threading.Lock()
        register(self)

    def after_fork(self) -> None:
        """In a forked child: a thread that is not there may have held it."""
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        *,
        home: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        config: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> SessionStore:
        """Opens the sessions of an agent. Nothing has to be there yet."""
        loaded = load_config(
            home=os.fspath(home) if home else None,
            agent=agent,
            config_file=os.fspath(config) if config else None,
            settings=settings,
        )
        return cls(loaded.config, clock=clock)

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._catalogue.close()

    def take_problems(self) -> tuple[Problem, ...]:
        """What was mended or found damaged since this was last asked, each once."""
        return self._catalogue.take_problems()

    # finding

    def key(
        self,
        channel: str,
        user_id: str,
        *,
        account_id: str = DEFAULT_ACCOUNT,
        chat_type: str = DEFAULT_CHAT_TYPE,
    ) -> SessionKey:
        return SessionKey(self.agent_id, channel, account_id, chat_type, user_id)

    def find(
        self,
        channel: str,
        user_id: str,
        *,
        account_id: str = DEFAULT_ACCOUNT,
        chat_type: str = DEFAULT_CHAT_TYPE,
    ) -> SessionRecord | None:
        """The session that a conversation is in, stale or not; None when there is none or it was reset."""
        newest = self._find_newest(self.key(channel, user_id, account_id=account_id, chat_type=chat_type))
        return None if newest is None or newest.ended else newest

    def get(self, reference: str) -> SessionRecord:
        """A session by its id, the beginning of it, or the key of its conversation, in full or short."""
        self._catalogue.refresh_names()
        exact = self._catalogue.find(reference)
        if exact is not None:
            return self._catalogue.refresh_one(exact)
        if ":" in reference:
            newest = self._find_newest(parse_key(reference, agent_id=self.agent_id))
            if newest is None:
                raise SessionNotFound(f"There is no session of {reference}.")
            return newest
        found = self._catalogue.find_by_prefix(reference, _SHOWN_CANDIDATES) if reference else []
        if not found:
            raise SessionNotFound(f"There is no session '{reference}'.")
        if len(found) > 1:
            names = ", ".join(one.id for one in found)
            raise SessionAmbiguous(f"'{reference}' fits more than one session: {names}.")
        return self._catalogue.refresh_one(found[0])

    def recent(self, *, channel: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        """Every session, the last used first. Reads nothing but what was written since the catalogue was."""
        self._catalogue.refresh()
        return self._catalogue.newest(channel=channel, limit=limit)

    def _find_newest(self, key: SessionKey) -> SessionRecord | None:
        self._catalogue.refresh_names()
        newest = self._catalogue.find_newest(str(key))
        return None if newest is None else self._catalogue.refresh_one(newest)

    # beginning

    def get_or_create(
        self,
        channel: str,
        user_id: str,
        *,
        account_id: str = DEFAULT_ACCOUNT,
        chat_type: str = DEFAULT_CHAT_TYPE,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        """The session that a conversation is in. A stale one is succeeded by a new one that knows it."""
        key = self.key(channel, user_id, account_id=account_id, chat_type=chat_type)
        newest = self._find_newest(key)
        if newest is not None and self._goes_on(newest):
            return newest
        with self._folder_locked():
            newest = self._find_newest(key)  # another process may have been faster
            if newest is None:
                return self._create(SessionStart(str(key), metadata=dict(metadata or {})), new_id())
            if self._goes_on(newest):
                return newest
            return self._succeed(newest, self._staleness(newest) or "idle", metadata)

    def _goes_on(self, record: SessionRecord) -> bool:
        return record.ended is None and self._staleness(record) is None

    def _staleness(self, record: SessionRecord) -> str | None:
        policy = policy_for(self.config.agent.session.reset, channel=record.channel, chat_type=record.chat_type)
        return staleness(record.active, policy, self.clock)

    def reset(
        self, session_id: str, *, reason: str = "command", metadata: Mapping[str, Any] | None = None
    ) -> SessionRecord:
        """Ends a session and begins the next. The old one is kept. Of one that has ended, the one that followed."""
        with self._folder_locked():
            record = self.get(session_id)
            if not record.key:
                raise SessionKeyInvalid(
                    f"Session {record.id} has lost its first line, which says whose it is.",
                    hint="It can still be read and exported; a new message begins a new session.",
                )
            newest = self._find_newest(parse_key(record.key, agent_id=self.agent_id)) or record
            if record.ended and not newest.ended:
                return newest
            return self._succeed(newest, reason, metadata)

    def _succeed(self, old: SessionRecord, reason: str, metadata: Mapping[str, Any] | None) -> SessionRecord:
        """The caller holds the folder's lock. After a crash between the two, the next call begins where this broke off,
        with the successor that the reset has named."""
        successor = new_id()
        if not old.ended:
            self.append(old.id, ResetEntry(reason, successor))
        elif self._can_be_made(old.successor):
            successor = old.successor
        carried = {name: old.state[name] for name in _CARRIED_OVER if name in old.state}
        start = SessionStart(
            old.key,
            predecessor=old.id,
            compactions=old.compactions,
            state=carried,
            metadata=dict(metadata or old.metadata),
        )
        return self._create(start, successor)

    def _can_be_made(self, successor: str | None) -> TypeGuard[str]:
        """Return whether a reset names a session that is not there yet, by an id that a session can have."""
        if not successor or not _ID.fullmatch(successor):
            return False
        return not any(successor in name for name in os.listdir(self.folder))

    def adopt(
        self,
        start: SessionStart,
        entries: Iterable[AnyEntry],
        *,
        session_id: str,
        created: dt.datetime,
    ) -> SessionRecord:
        """Takes in a whole conversation from elsewhere, with its own ids and times: all of it or nothing."""
        with self._folder_locked():
            self._catalogue.refresh_names()
            if self._catalogue.find(session_id) is not None:
                raise SessionExists(f"There is a session {session_id} already.")
            return self._create(start, session_id, created=created, entries=entries)

    def extend(self, session_id: str, entries: Sequence[AnyEntry], *, after: str) -> SessionRecord:
        """Takes in what was added elsewhere to a conversation that was adopted. ``after`` is the last entry here; where
        something was added in the meantime, nothing is done."""
        record = self.get(session_id)
        if record.version > VERSION:
            raise TranscriptTooNew(f"Session {session_id} is of version {record.version}; this Kept knows {VERSION}.")
        if not entries:
            return record
        with self._transcript(record.transcript_path).adding() as adding:
            if adding.transcript.find_last_id() != after:
                raise SessionExists(f"Session {session_id} has gone on here in the meantime.")
            adding.add(entries)
        return self._catalogue.refresh_one(record)

    def _create(
        self,
        start: SessionStart,
        session_id: str,
        *,
        created: dt.datetime | None = None,
        entries: Iterable[AnyEntry] = (),
    ) -> SessionRecord:
        if not _ID.fullmatch(session_id):
            raise UsageError(
                f"'{session_id}' cannot be the id of a session.",
                hint="Use up to 128 letters, digits, '-', '_' and '.', beginning with a letter or digit.",
            )
        created = whole_ms(created or self.clock.now())
        path = os.path.join(self.folder, transcript_name(session_id, created))
        transcript = Transcript.create(path, [Entry(session_id, None, created, start), *entries])
        self._remember(transcript)
        record = self._catalogue.read_new(os.path.basename(path))
        if record is None:
            raise SessionNotFound(f"{path}: was deleted.")
        return record

    # writing

    def append(self, session_id: str, body: Body, *, timestamp: dt.datetime | None = None) -> Entry:
        """Adds to the end of a session. It is on disk when this returns."""
        return self.append_all(session_id, [body], timestamp=timestamp)[0]

    def append_all(
        self,
        session_id: str,
        bodies: Sequence[Body],
        *,
        timestamp: dt.datetime | None = None,
        only_if: Callable[[Transcript], bool] | None = None,
    ) -> tuple[Entry, ...]:
        """Several at once: no other writer comes between them, and all are on disk when this returns.

        ``only_if`` is asked when nobody else can write any more; where it says no, nothing is added.
        """
        if not bodies:
            return ()
        file, version = self._locate(session_id)
        if version > VERSION:
            raise TranscriptTooNew(f"Session {session_id} is of version {version}; this Kept knows {VERSION}.")
        with self._transcript(os.path.join(self.folder, file)).adding() as adding:
            if adding.torn:
                self._catalogue.say(file, str(adding.torn))
            if only_if is not None and not only_if(adding.transcript):
                return ()
            entries = self._chain(bodies, adding, timestamp)
            before, state = adding.add(entries)
            try:
                self._catalogue.advance(file, entries, before, state)
            except StoreError as exc:
                # What matters is on disk; the catalogue is behind and catches up when it is next asked.
                log.warning("session %s: the catalogue could not be brought up to date (%s)", session_id, exc.code)
        return entries

    def _locate(self, session_id: str) -> tuple[str, int]:
        found = self._catalogue.locate(session_id)
        if found is None:
            self._catalogue.refresh_names()
            found = self._catalogue.locate(session_id)
        if found is None:
            raise SessionNotFound(f"There is no session '{session_id}'.")
        return found

    def _chain(
        self, bodies: Sequence[Body], adding: TranscriptAppend, timestamp: dt.datetime | None
    ) -> tuple[Entry, ...]:
        when = whole_ms(timestamp or self.clock.now())
        parent = adding.transcript.find_last_id()
        entries = []
        for body in bodies:
            entries.append(Entry(new_id(), parent, when, believable(body)))
            parent = entries[-1].id
        return tuple(entries)

    def compact(
        self,
        session_id: str,
        summary: str,
        *,
        first_kept_id: str | None = None,
        keep_messages: int | None = None,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
        source: str = "manual",
        receipt: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Writes down that a summary stands for what came before the first entry kept. Nothing is removed.

        ``keep_messages`` keeps the last so many, and a few more where that would part a question from its answer.
        """
        if not summary.strip():
            raise UsageError("A compaction needs a summary.", hint="Say what the summarised part was about.")
        record = self.get(session_id)
        if first_kept_id is None and keep_messages:
            first_kept_id = self._find_kept(record, keep_messages)
        body = CompactionEntry(
            summary,
            first_kept_id=first_kept_id,
            tokens_before=record.tokens_context or None if tokens_before is None else tokens_before,
            tokens_after=tokens_after,
            source=source,
            receipt=None if receipt is None else dict(receipt),
            metadata=dict(metadata or {}),
        )
        return self.append(record.id, body)

    def _find_kept(self, record: SessionRecord, keep_messages: int) -> str | None:
        """The nearest question at or before the last so many messages: tools and answers stay with theirs."""
        wanted = keep_messages
        while True:
            lines = Transcript(record.transcript_path).tail(wanted, record.end)
            entries = [line.content for line in lines if isinstance(line.content, Entry)]
            messages = [entry for entry in entries if isinstance(entry.body, Message)]
            older = messages[: max(0, len(messages) - keep_messages + 1)]
            for entry in reversed(older):
                if isinstance(entry.body, Message) and entry.body.role == "user":
                    return entry.id
            if len(messages) < wanted:
                return messages[0].id if messages else None
            wanted *= 2

    # reading

    def load(self, session_id: str, *, limit: int | None = None) -> LoadedSession:
        """The entries of a session, or those from the ``limit``-th message from the end on.

        Of a session with branches, which only those from elsewhere have, it is the one that its last entry is on.
        """
        lines = list(self.iter_lines(session_id) if limit is None else self.tail(session_id, limit))
        return LoadedSession(
            active_branch([line.content for line in lines if not isinstance(line.content, Damage)]),
            tuple(line.content for line in lines if isinstance(line.content, Damage)),
        )

    def tail(self, session_id: str, messages: int) -> Sequence[TranscriptLine]:
        """The end of a session with line numbers, read from the back of the file."""
        record = self.get(session_id)
        return self._transcript(record.transcript_path).tail(messages, record.end)

    def iter_lines(self, session_id: str, start: Position | None = None) -> Iterator[TranscriptLine]:
        """A session line by line, from its beginning or from a place on."""
        record = self.get(session_id)
        return self._transcript(record.transcript_path).iter_lines(start)

    # removing

    def delete(self, session_id: str, *, purge: bool = False) -> str | None:
        """Takes a session away: its transcript gets another name, which is returned, or is removed for good."""
        with self._folder_locked():
            record = self.get(session_id)
            path = record.transcript_path
            with self._transcript(path).adding():
                renamed = None if purge else _free_name(f"{path}.deleted-{self.clock.now():%Y%m%dT%H%M%S}")
                try:
                    if renamed is None:
                        _purge(path)
                    else:
                        os.rename(path, renamed)
                    sync_folder(self.folder)
                except OSError as exc:
                    raise TranscriptUnwritable(f"{path}: could not be removed ({exc.strerror}).") from exc
            self._catalogue.forget(os.path.basename(path))
        return renamed

    # files

    def _folder_locked(self) -> AbstractContextManager[int]:
        try:
            make_private_folder(self.folder)
        except OSError as exc:
            raise TranscriptUnwritable(f"{self.folder}: could not be made ({exc.strerror}).") from exc
        return locked(self.folder, wait_s=LOCK_WAIT_S, purpose="beginning or ending a session")

    def _transcript(self, path: str) -> Transcript:
        with self._lock:
            found = self._transcripts.get(path)
        return found or self._remember(Transcript(path))

    def _remember(self, transcript: Transcript) -> Transcript:
        """A transcript that was written to knows its last entry, which need not be read again."""
        with self._lock:
            kept = self._transcripts.setdefault(transcript.path, transcript)
            self._transcripts.move_to_end(transcript.path)
            while len(self._transcripts) > _REMEMBERED:
                self._transcripts.popitem(last=False)
        return kept


def _free_name(path: str) -> str:
    candidates = (path, *(f"{path}.{number}" for number in range(2, 1000)))
    return next(one for one in candidates if not os.path.lexists(one))


def _purge(path: str) -> None:
    os.unlink(path)
    try:
        os.unlink(path + TORN_ENDING)
    except FileNotFoundError:
        pass
