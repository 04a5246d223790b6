"""Drafts → transcripts: each session is written completely or not at all, and none twice.

A session that exists is compared by the ids of its messages. If the source has only grown, what is new is appended.
If both have continued, or the source was changed before its end, nothing is written and the outcome has the reason.
Entries of a chat service have ids that are the same in every export, so there a new entry is one whose id is new.
A session that the user deleted is left out, and so is text that the user has forgotten: its entry comes without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from kept.errors import KeptError, SessionDeleted, SessionExists, SessionNotFound
from kept.limits import as_dict
from kept.records import Problem
from kept.sessions.entries import AnyEntry, Entry, SessionStart, is_message
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.importers.draft import Draft, as_text
from kept.sessions.importers.source import fingerprint
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

    def count(self, outcome: Outcome) -> int:
        return sum(session.outcome == outcome for session in self.sessions)

    @property
    def messages(self) -> int:
        """Messages in the sessions that were imported now or before."""
        return sum(session.messages for session in self.sessions if session.outcome not in ("failed", "deleted"))


class DraftWriter:
    """Writes drafts to a store. A dry run only reports what would be written."""

    def __init__(self, store: SessionStore, *, dry_run: bool) -> None:
        self.store = store
        self.dry_run = dry_run
        self._forgotten = ForgottenText(store.config.paths.forgotten_hashes)
        self._planned: dict[str, _Existing] = {}
        """Sessions that a dry run would have created, by id."""
        store.refresh()

    def write(self, draft: Draft) -> SessionOutcome:
        """Write a session, or what is new of it. A failure is an outcome too, so that the others are still written."""
        self._forgotten.refresh()  # an import may take long, and something may be forgotten meanwhile
        try:
            for candidate in (draft,) if draft.has_global_ids else (draft, _with_own_id(draft)):
                outcome = self._write(candidate)
                if outcome is not None:
                    return outcome
        except (SessionDeleted, SessionNotFound):  # before, or meanwhile
            return outcome_of(draft, "deleted")
        except KeptError as exc:
            return outcome_of(draft, "failed", reason=exc.message)
        return outcome_of(draft, "failed", reason="there is another session of this id")

    def _write(self, draft: Draft) -> SessionOutcome | None:
        """Write a session. Return None if a conversation from another file has its id."""
        existing = self._planned.get(draft.id) or self._read_existing(draft.id)
        if existing is None:
            return self._create(draft)
        offered = [entry.id for entry in draft.entries if is_message(entry)]
        here, spoken = {*existing.ids}, existing.messages.union(offered)
        known = [entry_id for entry_id in existing.ids if entry_id in spoken]
        later: Sequence[AnyEntry] = ()
        if draft.has_global_ids:  # each entry names its parent, so their order does not matter
            has_grown, later = not known or known[-1] in offered, draft.entries
        elif has_grown := bool(known) and known == offered[: len(known)]:
            later = draft.entries[[entry.id for entry in draft.entries].index(known[-1]) + 1 :]
        new = tuple(entry for entry in later if entry.id not in here)
        if has_grown and new:
            return self._extend(draft, new, after=existing.ids[-1] if existing.ids else draft.id)
        if not new and (has_grown or draft.has_global_ids or offered == known[: len(offered)]):
            return outcome_of(draft, "unchanged")
        if existing.origin != draft.source and not draft.has_global_ids:
            return None
        reason = "it differs from the session here: one of the two continued or was changed; not merged"
        return outcome_of(draft, "failed", reason=reason)

    def _create(self, draft: Draft) -> SessionOutcome | None:
        if self.dry_run:
            self.store.require_not_deleted(draft.id)
            self._planned[draft.id] = _Existing.of(None, draft.entries)
        else:
            entries = map(self._forgotten.clean, draft.entries)
            try:
                self.store.adopt(
                    self._forgotten.clean_start(draft.start), entries, session_id=draft.id, created=draft.created
                )
            except SessionExists:  # another process was faster
                return self._write(draft)
        return outcome_of(draft, "imported", added=len(draft.entries))

    def _extend(self, draft: Draft, new: tuple[AnyEntry, ...], *, after: str) -> SessionOutcome:
        if not self.dry_run:
            self.store.extend(draft.id, tuple(map(self._forgotten.clean, new)), after=after)
        return outcome_of(draft, "updated", added=len(new))

    def _read_existing(self, session_id: str) -> _Existing | None:
        record = self.store.find_by_id(session_id, refresh=False)
        if record is None:
            return None
        origin = as_text(as_dict(record.metadata.get("imported")).get("path"))
        contents = (line.content for line in self.store.iter_lines(session_id))
        return _Existing.of(origin, (entry for entry in contents if not isinstance(entry, Damage)))


@frozen
class _Existing:
    """A session that was imported before, or would have been in a dry run."""

    origin: str | None
    """File that it came from."""
    ids: list[str]
    """Ids of its entries, without the first."""
    messages: frozenset[str]
    """Ids of its messages."""

    @classmethod
    def of(cls, origin: str | None, entries: Iterable[AnyEntry]) -> _Existing:
        named = [(entry.id, is_message(entry)) for entry in entries if entry.id and not _is_start(entry)]
        return cls(origin, [own for own, _ in named], frozenset(own for own, is_spoken in named if is_spoken))


def _is_start(entry: AnyEntry) -> bool:
    return isinstance(entry, Entry) and isinstance(entry.body, SessionStart)


def outcome_of(draft: Draft, outcome: Outcome, *, added: int = 0, reason: str | None = None) -> SessionOutcome:
    return SessionOutcome(draft.id, draft.source, outcome, draft.messages, added, reason)


def _with_own_id(draft: Draft) -> Draft:
    """Return a draft under an id made from its source, the same every time: two files may have sessions of one id."""
    return replace(draft, id=f"{draft.id[:100]}.{fingerprint(draft.source.encode())[:8]}")
