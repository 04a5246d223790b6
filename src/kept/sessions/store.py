"""SessionStore: the sessions of an agent, to find, start, append to, read and delete."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from kept.base.clock import Clock, SystemClock, new_id
from kept.base.durable import make_private_folder, write_atomic
from kept.base.file_lock import locked
from kept.base.records import Problem
from kept.base.visibility import Viewer
from kept.config import Config, load_config
from kept.errors import (
    SessionDeleted,
    SessionExists,
    SessionKeyInvalid,
    SessionNotFound,
    StoreError,
    TranscriptTooNew,
    TranscriptUnwritable,
    UsageError,
)
from kept.sessions.catalogue import Catalogue
from kept.sessions.deleted import DeletedSession, DeletedSessions
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
    policy_for,
    staleness,
)
from kept.sessions.session_key import DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, SessionKey, parse_key
from kept.sessions.transcript import LOCK_WAIT_S, Damage, Position, Transcript, TranscriptLine
from kept.sessions.transcript_paths import is_transcript_citation, parse_transcript_name, transcript_name

_SHOWN_CANDIDATES = 4
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

log = logging.getLogger(__name__)


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
        self.folder = config.paths.sessions
        self._catalogue = Catalogue(config.paths.catalogue, self.folder)
        self._deleted = DeletedSessions(self.folder)

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

    def take_problems(self) -> tuple[Problem, ...]:
        """Return what was repaired or is damaged. Each problem is returned once."""
        return self._catalogue.take_problems()

    # finding

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
        self._catalogue.refresh_names()
        fitting = [record for record in self._fitting(cited) if viewer is None or viewer.sees_key(record.key)]
        if not fitting:
            raise SessionNotFound(f"There is no session '{reference}'.")
        if len(fitting) > 1:
            ids = ", ".join(record.id for record in fitting[:_SHOWN_CANDIDATES])
            raise UsageError(f"'{reference}' fits more than one session: {ids}.", hint="Give more of the id.")
        return self._catalogue.refresh_one(fitting[0].transcript_path) or fitting[0]

    def _fitting(self, reference: str) -> list[SessionRecord]:
        exact = self._catalogue.find(reference)
        if exact is not None:
            return [exact]
        if ":" in reference:
            key = parse_key(reference, agent_id=self.agent_id)
            newest = self._find_newest(key)
            return [newest] if newest else []
        return self._catalogue.find_by_prefix(reference) if reference else []

    def find_by_id(self, session_id: str, *, refresh: bool = True) -> SessionRecord | None:
        """Return the session with exactly this id, or None.

        Without ``refresh``, transcripts that others than Kept have put into the folder are not looked for: an import
        asks for each of thousands of conversations.
        """
        if not os.path.isdir(self.folder):
            return None
        if refresh:
            self.refresh()
        record = self._catalogue.find(session_id)
        return record and self._catalogue.refresh_one(record.transcript_path)

    def refresh(self) -> None:
        """Look for transcripts that others have put into the folder, or taken out of it."""
        if os.path.isdir(self.folder):
            self._catalogue.refresh_names()

    def recent(self, *, channel: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        """Return the sessions, most recently used first. Of the transcripts, only additions are read."""
        self._catalogue.refresh()
        return self._catalogue.recent(channel=channel, limit=limit)

    def channels(self) -> list[str]:
        """Return the channels that sessions are on."""
        self._catalogue.refresh_names()
        return self._catalogue.channels()

    def _find_newest(self, key: SessionKey) -> SessionRecord | None:
        self._catalogue.refresh_names()
        newest = self._catalogue.find_newest(str(key))
        return newest and (self._catalogue.refresh_one(newest.transcript_path) or newest)

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
        key = self.key(channel, user_id, account_id=account_id, chat_type=chat_type)
        newest = self._find_newest(key)
        if newest is not None and self._find_end(newest) is None:
            return newest
        with self._locked():
            newest = self._find_newest(key)  # another process may have been faster
            if newest is None:
                return self._create(SessionStart(str(key), metadata=dict(metadata or {})), new_id())
            end_reason = self._find_end(newest)
            return newest if end_reason is None else self._succeed(newest, end_reason, metadata)

    def _find_end(self, record: SessionRecord) -> str | None:
        """Return why the next message cannot continue a session: it has ended, or it is stale. None if it can."""
        if record.ended is not None:
            return record.end_reason or "ended"
        policy = policy_for(self.config.agent.session.reset, channel=record.channel, chat_type=record.chat_type)
        return staleness(record.active, policy, self.clock)

    def reset(
        self, session_id: str, *, reason: str = "command", metadata: Mapping[str, Any] | None = None
    ) -> SessionRecord:
        """End a session and start its successor. The old transcript is kept. If the session has ended already, return
        the session that followed."""
        with self._locked():
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
        """End a session, if it has not ended, and create its successor. The caller holds the folder's lock.

        After a crash between the two steps, the next call creates the successor that the reset has named.
        """
        successor = new_id()
        if not old.ended:
            self.append(old.id, ResetEntry(reason, successor))
        elif old.successor and _ID.fullmatch(old.successor) and not self._was_created(old.successor):
            successor = old.successor
        carried = {MODEL: old.state[MODEL]} if MODEL in old.state else {}
        start = SessionStart(
            old.key,
            predecessor=old.id,
            compactions=old.compactions,
            state=carried,
            metadata=dict(metadata or old.metadata),
        )
        return self._create(start, successor)

    def _was_created(self, session_id: str) -> bool:
        """Return whether there is or was such a session. A deleted one is not replaced: it could not be restored."""
        return self._catalogue.find(session_id) is not None or self._deleted.find(session_id) is not None

    def _locked(self) -> AbstractContextManager[int]:
        """Hold the lock of the folder, so that no other process starts or ends a session."""
        try:
            make_private_folder(self.folder)
            if self.config.conversations == "claimed" and not os.path.exists(self.config.paths.claim):
                write_atomic(self.config.paths.claim, os.fsencode(os.path.realpath(self.config.workspace)))
        except OSError as exc:
            raise TranscriptUnwritable(f"{self.folder}: could not be created ({exc.strerror}).") from exc
        return locked(self.folder, wait_s=LOCK_WAIT_S, purpose="starting or ending a session")

    def _create(
        self,
        start: SessionStart,
        session_id: str,
        *,
        created: dt.datetime | None = None,
        entries: Iterable[AnyEntry] = (),
    ) -> SessionRecord:
        """Create the transcript of a session. The caller holds the folder's lock."""
        if not _ID.fullmatch(session_id):
            raise UsageError(
                f"'{session_id}' cannot be the id of a session.",
                hint="Use up to 128 letters, digits, '-', '_' and '.', starting with a letter or digit.",
            )
        created = whole_ms(created or self.clock.now())
        path = os.path.join(self.folder, transcript_name(session_id, created))
        Transcript.create(path, [Entry(session_id, None, created, start), *entries])
        record = self._catalogue.refresh_one(path)
        if record is None:
            raise SessionNotFound(f"{path}: was deleted.")
        return record

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
        with self._locked():
            known = self._catalogue.find(session_id)
            # Another program may have deleted the transcript since the catalogue was refreshed.
            if known is not None and self._catalogue.refresh_one(known.transcript_path) is not None:
                raise SessionExists(f"There is a session {session_id} already.")
            if self._deleted.find(session_id) is not None:
                raise SessionDeleted(f"Session {session_id} was deleted.")
            return self._create(start, session_id, created=created, entries=entries)

    def extend(self, session_id: str, entries: Sequence[AnyEntry], *, after: str) -> SessionRecord:
        """Append entries that an adopted conversation got in the other program.

        ``after`` is the id of the last entry here. Raise SessionExists if that has changed; then nothing is appended.
        """
        path = self._locate(session_id)
        with Transcript(path).appending() as append:
            if append.transcript.find_last_id() != after:
                raise SessionExists(f"Session {session_id} has continued here in the meantime.")
            append.add(entries)
        return self._catalogue.refresh_one(path) or self.get(session_id)

    def _locate(self, session_id: str) -> str:
        """Return the path of a session's transcript, to append to it."""
        record = self._catalogue.find(session_id)
        if record is None:
            self._catalogue.refresh_names()
            record = self._catalogue.find(session_id)
        if record is None:
            raise SessionNotFound(f"There is no session '{session_id}'.")
        if record.version > VERSION:
            reason = f"Session {session_id} has version {record.version}; this Kept knows versions up to {VERSION}."
            raise TranscriptTooNew(reason)
        return record.transcript_path

    # appending

    def append(self, session_id: str, body: Body, *, timestamp: dt.datetime | None = None) -> Entry:
        """Append to a session. The entry is on disk when this returns."""
        return self.append_all(session_id, [body], timestamp=timestamp)[0]

    def append_all(
        self,
        session_id: str,
        bodies: Sequence[Body],
        *,
        timestamp: dt.datetime | None = None,
        only_if: Callable[[Transcript], bool] | None = None,
    ) -> tuple[Entry, ...]:
        """Append several entries. No other writer comes between them, and all are on disk when this returns.

        ``only_if`` is called under the transcript's lock. If it returns False, nothing is appended.
        """
        if not bodies:
            return ()
        for body in bodies:
            require_body(body)
        path = self._locate(session_id)
        file = os.path.basename(path)
        with Transcript(path).appending() as append:
            if append.torn:
                self._catalogue.report(file, append.torn)
            if only_if is not None and not only_if(append.transcript):
                return ()
            when = whole_ms(timestamp or self.clock.now())
            parent = append.transcript.find_last_id()
            entries: list[Entry] = []
            for body in bodies:
                entries.append(Entry(new_id(), parent, when, body))
                parent = entries[-1].id
            append.add(entries)
            try:
                self._catalogue.catch_up(file)
            except StoreError as exc:
                # The entries are on disk. The catalogue catches up when it is next used.
                log.warning("session %s: the catalogue could not be brought up to date (%s)", session_id, exc.code)
        return tuple(entries)

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
        """Return the lines from the Nth-last message on. The file is read from its end."""
        record = self.get(session_id)
        return Transcript(record.transcript_path).tail(messages, record.end)

    def iter_lines(self, session_id: str, start: Position | None = None) -> Iterator[TranscriptLine]:
        """Yield the lines of a session, from its beginning or from a position on."""
        record = self.get(session_id)
        return Transcript(record.transcript_path).iter_lines(start)

    # deleting

    def delete(self, session_id: str, *, purge: bool = False) -> str | None:
        """Delete a session. Its transcript is renamed, and the new path returned; with ``purge`` it is removed.

        It stays deleted: an import of the same conversation leaves it out until it is restored. ``purge`` also
        removes the transcript of a session that was deleted before.
        """
        with self._locked():
            try:
                record = self.get(session_id)
            except SessionNotFound:
                if not purge or self._deleted.find(session_id) is None:
                    raise
                self._deleted.purge(session_id)
                return None
            path = record.transcript_path
            with Transcript(path).appending():
                new_path = self._deleted.add(path, self.clock.now())
                if purge:
                    self._deleted.purge(record.id)
            self._catalogue.forget(os.path.basename(path))
            return None if purge else new_path

    def restore(self, reference: str) -> tuple[DeletedSession, SessionRecord | None]:
        """Bring back a deleted session, by its id or the beginning of it. Return what it was and what it is now.

        The record is None if its transcript was purged. Then the next import brings it back, if the other program
        still has the conversation.
        """
        with self._locked():
            deleted = self._deleted.get(reference)
            self._catalogue.refresh_names()
            if self._catalogue.find(deleted.id) is not None or os.path.lexists(deleted.original_path):
                hint = "Nothing was changed. Delete that one first."
                raise SessionExists(f"There is a session {deleted.id} already.", hint=hint)
            self._deleted.restore(deleted)
            return deleted, None if deleted.is_purged else self._catalogue.refresh_one(deleted.original_path)

    def deleted(self) -> list[DeletedSession]:
        """Return the deleted sessions, the last one first."""
        if not os.path.isdir(self.folder):
            return []
        self._catalogue.refresh_names()
        return [session for session in self._deleted.all() if self._catalogue.find(session.id) is None]

    def find_deleted(self, session_id: str) -> DeletedSession | None:
        """Return a session that was deleted and not restored, by its id."""
        return self._deleted.find(session_id)
