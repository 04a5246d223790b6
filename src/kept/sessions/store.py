"""SessionStore: the sessions of an agent, to find, start, append to, read and delete."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from kept.base.clock import Clock, SystemClock, new_id
from kept.base.records import Problem
from kept.base.visibility import Viewer
from kept.config import Config, load_config
from kept.errors import (
    DocumentNotFound,
    SessionDeleted,
    SessionExists,
    SessionKeyInvalid,
    SessionNotFound,
    StorageConflict,
    TranscriptTooNew,
    UsageError,
)
from kept.sessions.catalogue import Catalogue
from kept.sessions.deleted import (
    DELETED_MARK,
    DeletedSession,
    find_free_name,
    get_deleted,
    list_deleted,
    only_one,
    plan_purge,
    plan_restore,
)
from kept.sessions.entries import (
    MODEL,
    USER_TITLE,
    VERSION,
    AnyEntry,
    Body,
    Entry,
    ResetEntry,
    SessionStart,
    StateEntry,
    require_body,
    whole_ms,
)
from kept.sessions.record import (
    LoadedSession,
    SessionRecord,
    active_branch,
    find_end,
    format_lines,
    make_append,
    policy_for,
)
from kept.sessions.session_key import (
    DEFAULT_ACCOUNT,
    DEFAULT_CHAT_TYPE,
    SessionKey,
    parse_key,
    require_id,
)
from kept.sessions.transcript import Damage, Position, Transcript, TranscriptLine, open_transcripts, plan_claim
from kept.sessions.transcript_paths import is_transcript_citation, parse_transcript_name, transcript_name
from kept.storage.contract import START, Append, Change, LogPosition, Move, retried

_LEASE = "sessions"
"""Held while a session is started that has no predecessor, so that two processes do not both start one."""
_WAIT_S = 30.0


class SessionStore:
    """The sessions of one agent.

    >>> with SessionStore.open() as sessions:
    ...     session = sessions.get_or_create("telegram", "5054")
    ...     sessions.append(session.id, Message.of("user", "Where did we put the spare key?"))
    ...     sessions.load(session.id, limit=20).messages

    Safe to share between threads and between processes that use the same home.
    """

    def __init__(self, config: Config, *, clock: Clock | None = None) -> None:
        if not isinstance(cast("object", config), Config):
            hint = "Open the sessions of an agent with SessionStore.open()."
            raise UsageError(f"SessionStore() takes a Config, not {config!r:.80}.", hint=hint)
        self.config = config
        self.agent_id = config.agent_id
        self.clock = clock or SystemClock()
        self.transcripts = open_transcripts(config)
        self._catalogue = Catalogue(config.paths.catalogue, self.transcripts)

    @classmethod
    def open(
        cls,
        *,
        home: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        config: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        create: bool = False,
    ) -> SessionStore:
        """Open the sessions of an agent. Folders are created with the first session. ``create`` allows a new agent."""
        loaded = load_config(
            home=os.fspath(home) if home else None,
            agent=agent,
            config_file=os.fspath(config) if config else None,
            settings=settings,
            new_agent=create,
        )
        return cls(loaded.config, clock=clock)

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the catalogue. Every later use raises UsageError, except another `close`."""
        self._catalogue.close()

    @property
    def folder(self) -> str:
        """Folder that the transcripts are below."""
        return self.config.paths.folder

    def take_problems(self) -> tuple[Problem, ...]:
        """Return what was repaired or is damaged. Each problem is returned once."""
        return self._catalogue.take_problems()

    # finding

    @property
    def has_any(self) -> bool:
        """Whether there are sessions. The catalogue is not opened."""
        return next(self.transcripts.list(), None) is not None

    def key(
        self, channel: str, user_id: str, *, account_id: str = DEFAULT_ACCOUNT, chat_type: str = DEFAULT_CHAT_TYPE
    ) -> SessionKey:
        return SessionKey(self.agent_id, channel, account_id, chat_type, user_id)

    def find(
        self, channel: str, user_id: str, *, account_id: str = DEFAULT_ACCOUNT, chat_type: str = DEFAULT_CHAT_TYPE
    ) -> SessionRecord | None:
        """Return the current session of a conversation, stale or not. None if there is none or it was reset."""
        newest = self._find_newest(self.key(channel, user_id, account_id=account_id, chat_type=chat_type))
        return None if newest is None or newest.ended else newest

    def get(self, reference: str, viewer: Viewer | None = None) -> SessionRecord:
        """Return a session by its id, the beginning of its id, or the key of its conversation, full or short.

        The citation of a transcript is taken too. For a viewer, a session of somebody else is one that does not exist.
        """
        cited = (
            parse_transcript_name(os.path.basename(reference))[0] if is_transcript_citation(reference) else reference
        )
        records = self._look_up(lambda: self._fitting(cited))
        fitting = [record for record in records if viewer is None or viewer.sees_key(record.key)]
        if not fitting:
            raise SessionNotFound(f"There is no session '{reference}'.")
        return only_one(fitting, reference, "session")

    def _look_up(self, look: Callable[[], list[SessionRecord]]) -> list[SessionRecord]:
        """Return what a look into the catalogue finds, as the transcripts are now.

        Transcripts are only listed if nothing is found: whoever starts a session also writes its row.
        """
        self._catalogue.complete()
        records = [record for old in look() if (record := self._catalogue.read(old.log, old))]
        if not records:
            self._catalogue.refresh()
            records = look()
        return records

    def _fitting(self, reference: str) -> list[SessionRecord]:
        if exact := self._catalogue.find(reference):
            return [exact]
        if ":" in reference:
            newest = self._find_newest(parse_key(reference, agent_id=self.agent_id))
            return [newest] if newest else []
        return self._catalogue.find_by_prefix(reference) if reference else []

    def find_by_id(self, session_id: str, *, refresh: bool = True) -> SessionRecord | None:
        """Return the session with exactly this id, or None.

        Without ``refresh``, transcripts that others than Kept have put beside the others are not looked for: an import
        asks for each of thousands of conversations.
        """
        if not refresh:
            record = self._catalogue.find(session_id)
            return record and self._catalogue.read(record.log, record)
        records = self._look_up(lambda: [*filter(None, [self._catalogue.find(session_id)])]) if self.has_any else []
        return next(iter(records), None)

    def refresh(self) -> None:
        """Look for transcripts that others have put beside the others, or taken away."""
        if self.has_any:
            self._catalogue.refresh()

    def recent(self, *, channel: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        """Return the sessions, most recently used first. Of the transcripts, only additions are read."""
        self._catalogue.refresh()
        return self._catalogue.recent(channel=channel, limit=limit)

    def channels(self) -> list[str]:
        """Return the channels that sessions are on."""
        self._catalogue.refresh()
        return self._catalogue.channels()

    def _find_newest(self, key: SessionKey) -> SessionRecord | None:
        records = self._look_up(lambda: [*filter(None, [self._catalogue.find_newest(str(key))])])
        newest = next(iter(records), None)
        if newest is not None and newest.ended_ms is not None:  # its successor may have been put there by others
            self._catalogue.refresh()
            newest = self._catalogue.find_newest(str(key))
        return newest

    # starting

    def get_or_create(
        self,
        channel: str,
        user_id: str,
        *,
        account_id: str = DEFAULT_ACCOUNT,
        chat_type: str = DEFAULT_CHAT_TYPE,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        """Return the current session of a conversation. If it is stale, start a successor that names it."""
        key = SessionKey(self.agent_id, channel, account_id, chat_type, user_id)
        newest = self._find_newest(key)
        policy = policy_for(self.config.agent.session.reset, channel=channel, chat_type=chat_type)
        if newest is not None and find_end(newest, policy, self.clock) is None:
            return newest
        with self.transcripts.storage.lease(_LEASE, wait_s=_WAIT_S):
            newest = self._find_newest(key)  # another process may have been faster
            if newest is None:
                return self._create(SessionStart(str(key), metadata=dict(metadata or {})), new_id())
            end_reason = find_end(newest, policy, self.clock)
            return newest if end_reason is None else self._succeed(newest, end_reason, metadata)

    def reset(
        self, session_id: str, *, reason: str = "command", metadata: Mapping[str, Any] | None = None
    ) -> SessionRecord:
        """End a session and start its successor. The old transcript is kept. If the session has ended already, return
        the session that followed."""
        with self.transcripts.storage.lease(_LEASE, wait_s=_WAIT_S):
            record = self.get(session_id)
            if not record.key:
                raise SessionKeyInvalid(
                    f"Session {record.id} has lost its first line, which names its conversation.",
                    hint="It can still be read and exported; a new message starts a new session.",
                )
            newest = self._find_newest(SessionKey.parse_full(record.key)) or record
            if record.ended and not newest.ended:
                return newest
            return self._succeed(newest, reason, metadata)

    def _succeed(self, old: SessionRecord, reason: str, metadata: Mapping[str, Any] | None) -> SessionRecord:
        """End a session, if it has not ended, and create its successor. The caller holds the lease."""
        carried = {MODEL: old.state[MODEL]} if MODEL in old.state else {}
        data = dict(metadata or old.metadata)
        start = SessionStart(old.key, predecessor=old.id, compactions=old.compactions, state=carried, metadata=data)
        successor = new_id()

        @retried
        def end_and_create() -> SessionRecord:
            last = self.find_by_id(old.id, refresh=False) or old
            end = [] if last.ended else [make_append(last, [ResetEntry(reason, successor)], self.clock.now())[1]]
            return self._create(start, successor, and_also=end)

        return end_and_create()

    def _create(
        self,
        start: SessionStart,
        session_id: str,
        *,
        created: dt.datetime | None = None,
        entries: Iterable[AnyEntry] = (),
        and_also: Sequence[Change] = (),
    ) -> SessionRecord:
        """Create the transcript of a session. The caller holds the lease."""
        require_id(session_id)
        created = whole_ms(created or self.clock.now())
        log = self.transcripts.prefix + transcript_name(session_id, created)
        if self.transcripts.storage.logs.find(log) is not None:
            raise SessionExists(f"{log}: there is such a transcript already.")
        lines = format_lines([Entry(session_id, None, created, start), *entries])
        self.transcripts.storage.commit(
            [*and_also, *plan_claim(self.config, self.transcripts.storage), Append(log, lines, START)]
        )
        return self._catalogue.read(log) or self.get(session_id)

    def adopt(
        self,
        start: SessionStart,
        entries: Iterable[AnyEntry],
        *,
        session_id: str,
        created: dt.datetime,
    ) -> SessionRecord:
        """Create a session from a conversation of another program, with its own ids and times, all or nothing.

        Raise SessionDeleted if the user deleted it, and SessionExists if its id belongs to another session.
        """
        with self.transcripts.storage.lease(_LEASE, wait_s=_WAIT_S):
            known = self._catalogue.find(session_id)
            # Another program may have deleted the transcript since the catalogue was refreshed.
            if known is not None and self._catalogue.read(known.log, known) is not None:
                raise SessionExists(f"There is a session {session_id} already.")
            # By its name: to list all transcripts for each of thousands of conversations would take long.
            name = self.transcripts.prefix + transcript_name(session_id, whole_ms(created))
            if next(self.transcripts.storage.logs.list(name + DELETED_MARK), None) is not None:
                raise SessionDeleted(f"Session {session_id} was deleted.")
            return self._create(start, session_id, created=created, entries=entries)

    def extend(self, session_id: str, entries: Sequence[AnyEntry], *, after: str) -> SessionRecord:
        """Append entries that an adopted conversation got in the other program.

        ``after`` is the id of the last entry here. Raise SessionExists if that has changed; then nothing is appended.
        """
        record = self._locate(session_id)
        try:
            if record.last_id != after:
                raise StorageConflict(record.log)
            self.transcripts.storage.commit([Append(record.log, format_lines(entries), LogPosition(record.offset))])
        except StorageConflict as exc:
            self._locate(session_id)  # raises SessionNotFound if it was deleted
            raise SessionExists(f"Session {session_id} has continued here in the meantime.") from exc
        return self._catalogue.read(record.log) or self.get(session_id)

    def _locate(self, session_id: str) -> SessionRecord:
        """Return a session as it is now, to append to it."""
        record = self.find_by_id(session_id, refresh=False) or self.find_by_id(session_id)
        if record is None:
            raise SessionNotFound(f"There is no session '{session_id}'.")
        if record.version > VERSION:
            reason = f"Session {session_id} has version {record.version}; this Kept knows versions up to {VERSION}."
            raise TranscriptTooNew(reason)
        return record

    # appending

    def append(self, session_id: str, body: Body, *, timestamp: dt.datetime | None = None) -> Entry:
        """Append to a session. The entry is on disk when this returns."""
        return self.append_all(session_id, [body], timestamp=timestamp)[0]

    @retried
    def append_all(
        self,
        session_id: str,
        bodies: Sequence[Body],
        *,
        timestamp: dt.datetime | None = None,
        end: Position | None = None,
    ) -> tuple[Entry, ...]:
        """Append several entries. No other writer comes between them, and all are on disk when this returns.

        With ``end``, nothing is appended and none are returned if the transcript does not end there.
        """
        for body in bodies:
            require_body(body)
        if not bodies:
            return ()
        record = self._locate(session_id)
        if end is not None and record.offset != end.offset:
            return ()
        entries, append = make_append(record, bodies, timestamp or self.clock.now())
        self.transcripts.storage.commit([append])
        self._catalogue.read(record.log, record, has_only_grown=True)
        return entries

    def rename(self, session_id: str, title: str) -> SessionRecord:
        """Give a session a title. An empty one removes it, so that the session has its former title again."""
        record = self.get(session_id)
        self.append(record.id, StateEntry(USER_TITLE, title.strip() or None))
        return self.get(record.id)

    # reading

    def load(self, session_id: str, *, limit: int | None = None) -> LoadedSession:
        """Return the entries of a session, with ``limit`` those from the Nth-last message on.

        Imported sessions may branch; only the branch of the last entry is returned.
        """
        lines = list(self.iter_lines(session_id) if limit is None else self.tail(session_id, limit))
        return LoadedSession(
            active_branch([line.content for line in lines if not isinstance(line.content, Damage)]),
            tuple(line.content for line in lines if isinstance(line.content, Damage)),
        )

    def tail(self, session_id: str, messages: int) -> list[TranscriptLine]:
        """Return the lines from the Nth-last message on. The transcript is read from its end."""
        record = self.get(session_id)
        return self.transcript(record).tail(messages, record.end)

    def iter_lines(self, session_id: str, start: Position | None = None) -> Iterator[TranscriptLine]:
        """Yield the lines of a session, from its beginning or from a position on."""
        return self.transcript(self.get(session_id)).iter_lines(start)

    def transcript(self, record: SessionRecord) -> Transcript:
        return Transcript(self.transcripts.storage, record.log)

    # deleting

    def delete(self, session_id: str, *, purge: bool = False) -> str | None:
        """Delete a session. Its transcript is renamed, and the new name returned; with ``purge`` it is erased.

        It stays deleted: an import of the same conversation leaves it out until it is restored. ``purge`` also
        erases the transcript of a session that was deleted before.
        """
        try:
            record = self.get(session_id)
        except SessionNotFound:
            if not purge or self.find_deleted(session_id) is None:
                raise
            self.transcripts.storage.commit(plan_purge(self.transcripts, session_id, self.clock.now()))
            return None
        now = self.clock.now()
        name = find_free_name(self.transcripts, record.log, now)
        try:
            purging = plan_purge(self.transcripts, record.id, now, record.log) if purge else []
            self.transcripts.storage.commit(purging or [Move(record.log, name)])
        except DocumentNotFound as exc:
            raise SessionNotFound(f"There is no session '{session_id}'.") from exc
        self._catalogue.forget(record.log)
        return None if purge else name

    def restore(self, reference: str) -> tuple[DeletedSession, SessionRecord | None]:
        """Bring back a deleted session, by its id or the beginning of it. Return what it was and what it is now.

        The record is None if its transcript was purged. Then the next import brings it back, if the other program
        still has the conversation.
        """
        deleted = get_deleted(self.transcripts, reference)
        self._catalogue.refresh()
        try:
            if self._catalogue.find(deleted.id) is not None:
                raise StorageConflict(deleted.log)
            self.transcripts.storage.commit(plan_restore(self.transcripts, deleted))
        except StorageConflict as exc:
            raise SessionExists(f"There is a session {deleted.id} already.", hint="Delete that one first.") from exc
        return deleted, None if deleted.is_purged else self._catalogue.read(deleted.original)

    def deleted(self) -> list[DeletedSession]:
        """Return the deleted sessions, the last one first."""
        if deleted := list_deleted(self.transcripts):
            self._catalogue.refresh()
        return [session for session in deleted if self._catalogue.find(session.id) is None]

    def find_deleted(self, session_id: str) -> DeletedSession | None:
        """Return a session that was deleted, by its id. Does not check whether it exists again."""
        return next((session for session in list_deleted(self.transcripts) if session.id == session_id), None)
