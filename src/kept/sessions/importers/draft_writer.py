"""Drafts → transcripts: each session is written completely or not at all, and none twice.

A session that exists is compared by the ids of its entries. If the source has only grown, the new entries are appended.
If both have continued, or the source was changed before its end, nothing is written and the outcome has the reason.
Entries of a chat service have ids that are the same in every export, so there a new entry is one whose id is new.
A session that the user deleted is left out, and so is text that the user has forgotten: its entry comes without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from kept.errors import KeptError, SessionDeleted, SessionExists, SessionNotFound
from kept.records import Problem
from kept.sessions.entries import USER_TITLE, AnyEntry, Entry, Message, SessionStart, StateEntry, UnknownEntry
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.importers.draft import ADDED_TITLE, Draft
from kept.sessions.importers.source import fingerprint
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage
from kept.values import frozen

Outcome = Literal["imported", "updated", "unchanged", "deleted", "failed"]
"""A conversation that the user deleted here is left out: ``deleted``."""


@frozen
class SessionOutcome:
    id: str
    source: str
    outcome: Outcome
    messages: int
    """Messages in the source, on all branches."""
    added: int
    """Entries that were written, or would be in a run without ``dry_run``."""
    reason: str | None = None
    """Reason of a failure."""
    title: str | None = None
    """Title of the conversation in the source."""


@frozen
class ForeignFile:
    """A file of another format than the one that was named."""

    path: str
    looks_like: str | None
    """Name of its format, or None if it is none that can be imported."""


@frozen
class ImportReport:
    format: str
    dry_run: bool
    files: int
    """Number of files that were read."""
    sessions: tuple[SessionOutcome, ...]
    ignored: tuple[Problem, ...]
    """Files without a conversation of this format in them."""
    problems: tuple[Problem, ...]
    """Files and lines that could not be read or are damaged. The path of a line ends with ``:NUMBER``."""
    foreign: tuple[ForeignFile, ...] = ()
    """Files of another format. They are ignored."""

    def count(self, outcome: Outcome) -> int:
        return sum(session.outcome == outcome for session in self.sessions)

    @property
    def messages(self) -> int:
        """Messages in the sessions that were imported now or before."""
        return sum(session.messages for session in self.sessions if session.outcome not in ("failed", "deleted"))


def combine_reports(reports: Sequence[ImportReport]) -> ImportReport:
    """Return one report of several imports of a format, from different folders."""
    return ImportReport(
        format=reports[0].format,
        dry_run=reports[0].dry_run,
        files=sum(report.files for report in reports),
        sessions=tuple(session for report in reports for session in report.sessions),
        ignored=tuple(problem for report in reports for problem in report.ignored),
        problems=tuple(problem for report in reports for problem in report.problems),
        foreign=tuple(file for report in reports for file in report.foreign),
    )


class DraftWriter:
    """Writes drafts to a store. A dry run only reports what would be written."""

    def __init__(self, store: SessionStore, *, dry_run: bool) -> None:
        self.store = store
        self.dry_run = dry_run
        self._forgotten = ForgottenText(store.config.paths.forgotten_hashes)
        self._session_ids: set[str] | None = None
        """Sessions that exist, read once: a session that another process creates meanwhile is found by `adopt`."""
        self._planned: dict[str, ExistingSession] = {}
        """Sessions that a dry run would have created, by id."""

    def write(self, draft: Draft) -> SessionOutcome:
        """Write a session, or what is new of it. A failure is an outcome too, so that the others are still written."""
        self._forgotten.refresh()  # an import may take long, and something may be forgotten meanwhile
        try:
            for candidate in (draft,) if draft.has_global_ids else (draft, _with_own_id(draft)):
                outcome = self._write(candidate)
                if outcome is not None:
                    return outcome
        except SessionDeleted:
            return outcome_of(draft, "deleted")
        except KeptError as exc:
            return outcome_of(draft, "failed", reason=exc.message)
        return outcome_of(draft, "failed", reason="there is another session of this id")

    def _write(self, draft: Draft) -> SessionOutcome | None:
        """Write a session. Return None if a conversation from another file has its id."""
        existing = self._find_existing(draft.id)
        if existing is None:
            return self._create(draft)
        if draft.has_global_ids:
            return self._merge(draft, existing)
        offered = [entry.id for entry in draft.entries if isinstance(entry, Entry)]
        known = existing.comparable_ids(draft, offered)
        if known and known == offered[: len(known)] and (new := _find_new(draft, known, existing.ids)):
            return self._extend(draft, new, after=existing.ids[-1])
        if offered == known[: len(offered)]:
            return outcome_of(draft, "unchanged")
        if _origin(existing.record, draft) != draft.source:
            return None
        return outcome_of(draft, "failed", reason=_describe_difference(known, offered))

    def _create(self, draft: Draft) -> SessionOutcome | None:
        entries = tuple(map(self._forgotten.clean, (*draft.entries, *draft.added)))
        try:
            if self.dry_run:
                self.store.require_not_deleted(draft.id, draft.entries)
                self._planned[draft.id] = ExistingSession.of(None, draft.entries)
            else:
                start = self._forgotten.clean_start(draft.start)
                self.store.adopt(start, entries, session_id=draft.id, created=draft.created)
        except SessionExists:
            if self.store.find_deleted(draft.id) is not None and self.store.find_by_id(draft.id) is None:
                return outcome_of(draft, "deleted") if draft.has_global_ids else None
            if draft.id in self._existing_ids():
                raise
            self._existing_ids().add(draft.id)
            return self._write(draft)
        self._existing_ids().add(draft.id)
        return outcome_of(draft, "imported", added=len(entries))

    def _merge(self, draft: Draft, existing: ExistingSession) -> SessionOutcome:
        """Append the entries that are not here yet. Each names its parent, so their order does not matter."""
        offered, known = {entry.id for entry in draft.entries}, {*existing.ids}
        new = tuple(entry for entry in draft.entries if entry.id not in known)
        if not new:
            return outcome_of(draft, "unchanged")
        if existing.last_message is not None and existing.last_message not in offered:
            return outcome_of(draft, "failed", reason="it continued both here and there; not merged")
        return self._extend(draft, new, after=existing.ids[-1] if existing.ids else draft.id)

    def _extend(self, draft: Draft, new: tuple[AnyEntry, ...], *, after: str) -> SessionOutcome:
        if not self.dry_run:
            try:
                self.store.extend(draft.id, tuple(map(self._forgotten.clean, new)), after=after)
            except SessionNotFound:
                if self.store.find_deleted(draft.id) is None:
                    raise
                return outcome_of(draft, "deleted")  # since this looked for it
        return outcome_of(draft, "updated", added=len(new))

    def _find_existing(self, session_id: str) -> ExistingSession | None:
        if session_id in self._planned:
            return self._planned[session_id]
        if session_id not in self._existing_ids():
            return None
        record = self.store.find_by_id(session_id)
        if record is None:
            return None
        contents = (line.content for line in self.store.iter_lines(session_id))
        return ExistingSession.of(record, [entry for entry in contents if not isinstance(entry, Damage)])

    def _existing_ids(self) -> set[str]:
        if self._session_ids is None:
            self._session_ids = self.store.session_ids()
        return self._session_ids


@frozen
class ExistingSession:
    """State of a session that was imported before, or would have been in a dry run."""

    record: SessionRecord | None
    ids: list[str]
    """Ids of its entries, without the first."""
    last_message: str | None
    """Id of its last message."""
    foreign: frozenset[str]
    """Ids of records that were kept as they were."""
    titles: frozenset[str]
    """Ids of titles that the user gave it here, or that another file of the source has."""

    @classmethod
    def of(cls, record: SessionRecord | None, entries: Sequence[AnyEntry]) -> ExistingSession:
        entries = [entry for entry in entries if entry.id and not _has_body(entry, SessionStart)]
        messages = (entry.id for entry in reversed(entries) if _has_body(entry, Message))
        return cls(
            record,
            [entry.id for entry in entries if entry.id],
            next(messages, None),
            foreign=frozenset(entry.id for entry in entries if entry.id and isinstance(entry, UnknownEntry)),
            titles=frozenset(entry.id for entry in entries if entry.id and _is_own_title(entry)),
        )

    def comparable_ids(self, draft: Draft, offered: Sequence[str]) -> list[str]:
        """Return the ids to compare with what the source offers. Versions of Kept differ in the records that they keep
        as they were, so these count only if they are messages now."""
        ignored = {entry.id for entry in draft.added} | self.titles | (self.foreign - set(offered))
        return [entry_id for entry_id in self.ids if entry_id not in ignored]


def _has_body(entry: AnyEntry, kind: type) -> bool:
    return isinstance(entry, Entry) and isinstance(entry.body, kind)


def _is_own_title(entry: AnyEntry) -> bool:
    if not isinstance(entry, Entry) or not isinstance(entry.body, StateEntry):
        return False
    return entry.body.name == USER_TITLE or ADDED_TITLE in entry.id


def _find_new(draft: Draft, known: Sequence[str], ids: Sequence[str]) -> tuple[AnyEntry, ...]:
    """Return the entries after the last one that is known, and a title that is not."""
    last = next(index for index, entry in enumerate(draft.entries) if entry.id == known[-1])
    here = set(ids)
    titles = (entry for entry in draft.added if ADDED_TITLE in entry.id)
    return tuple(entry for entry in (*draft.entries[last + 1 :], *titles) if entry.id not in here)


def outcome_of(draft: Draft, outcome: Outcome, *, added: int = 0, reason: str | None = None) -> SessionOutcome:
    return SessionOutcome(
        id=draft.id,
        source=draft.source,
        outcome=outcome,
        messages=draft.messages,
        added=added,
        reason=reason,
        title=draft.title,
    )


def _with_own_id(draft: Draft) -> Draft:
    """Return a draft under an id made from its source, the same every time: two files may have sessions of one id."""
    return replace(draft, id=f"{draft.id[:100]}.{fingerprint(draft.source.encode())[:8]}")


def _origin(record: SessionRecord | None, draft: Draft) -> object:
    if record is None:
        return None
    imported = record.metadata.get("imported")
    return imported.get("path") if isinstance(imported, dict) else draft.source


def _describe_difference(known: Sequence[str], offered: Sequence[str]) -> str:
    pairs = enumerate(zip(known, offered, strict=False))
    same = next((index for index, (known_id, offered_id) in pairs if known_id != offered_id), 0)
    if not same:
        return "there is a session of this id that did not come from this file"
    return (
        f"it differs from the session here after {same:,} entries: one of the two continued or was changed; not merged"
    )
