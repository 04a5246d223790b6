"""One run of an import: each session is imported completely or left out, and none twice.

A session that exists is compared by the ids of its entries. If the source has only grown, the new entries are appended.
If both have continued, or the source was changed before its end, nothing is written and the report has the reason.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from kept.errors import KeptError, SessionAmbiguous, SessionDeleted, SessionNotFound, UsageError
from kept.records import Problem
from kept.sessions.entries import USER_TITLE, AnyEntry, Entry, SessionStart, StateEntry, UnknownEntry
from kept.sessions.importers import claude_code, codex, openclaw, pi
from kept.sessions.importers.draft import ADDED_TITLE, Draft
from kept.sessions.importers.openclaw_sqlite import ENDINGS, DatabaseUnreadable, OpenClawDatabase, is_database
from kept.sessions.importers.report import ImportReport, Outcome, SessionOutcome
from kept.sessions.importers.source import MAX_LINE_BYTES, Source, fingerprint, show_path
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage
from kept.values import frozen

Format = Literal["openclaw", "claude-code", "codex", "pi"]
Reader = Callable[[Source, str], list[Draft]]
READERS: dict[Format, Reader] = {
    "openclaw": openclaw.read,
    "claude-code": claude_code.read,
    "codex": codex.read,
    "pi": pi.read,
}
_TRANSCRIPT = ".jsonl"
_ARCHIVED = ".jsonl.reset."
_NO_SESSION = "holds no conversation of this format"


def import_sessions(
    store: SessionStore,
    format_name: Format,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> ImportReport:
    """Import every conversation in a file, or in the files below a folder. The source is only read.

    A line longer than ``max_line_bytes`` is reported and left out.
    """
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    return _ImportRun(store, format_name, root, dry_run=dry_run, max_line_bytes=max_line_bytes).run()


class _ImportRun:
    """Imports what is below one path, and collects the report."""

    def __init__(
        self, store: SessionStore, format_name: Format, root: str, *, dry_run: bool, max_line_bytes: int
    ) -> None:
        self.store = store
        self.format = format_name
        self.root = root
        self.dry_run = dry_run
        self.max_line_bytes = max_line_bytes
        self.files = 0
        self.sessions: list[SessionOutcome] = []
        self.ignored: list[Problem] = []
        self.problems: list[Problem] = []
        self._titles: dict[str, str] = {}
        """Titles that other files than that of the conversation have, by the id of its last message."""
        self._planned: dict[str, Draft] = {}
        """Sessions that a dry run would have created, by id."""

    def run(self) -> ImportReport:
        paths = self._find_files()
        if self.format == claude_code.FORMAT and len(paths) > 1:
            self._titles = claude_code.read_summaries(paths)
        for path in paths:
            self.files += 1
            if self.format == "openclaw" and path.endswith(ENDINGS):
                self._import_database(path)
            else:
                self._import_file(path)
        return ImportReport(
            format=self.format,
            dry_run=self.dry_run,
            files=self.files,
            sessions=tuple(self.sessions),
            ignored=tuple(self.ignored),
            problems=tuple(self.problems),
        )

    # finding

    def _find_files(self) -> list[str]:
        if os.path.isfile(self.root):
            return [self.root]
        if not os.path.isdir(self.root):
            raise UsageError(f"{self.root}: there is no such file or folder.", hint="Name a transcript or a folder.")
        others: Counter[str] = Counter()
        paths = []
        for path in sorted(self._walk()):
            other = openclaw.other_agent(path, self.root, self.store.agent_id) if self.format == "openclaw" else None
            if other is None:
                paths.append(path)
            else:
                others[other] += 1
        self.ignored += openclaw.describe_other_agents(others, self.root)
        return paths

    def _walk(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.root, onerror=self._report_unreadable):
            for name in names:
                path = os.path.join(folder, name)
                if not self._is_transcript(name):
                    if _TRANSCRIPT in name and self.format == "openclaw":
                        self.ignored.append(Problem(show_path(path), "is a deleted transcript or a copy of one"))
                elif os.path.islink(path):
                    self.ignored.append(Problem(show_path(path), "is a symbolic link, which is not followed"))
                else:
                    yield path

    def _is_transcript(self, name: str) -> bool:
        if self.format == "openclaw" and (_ARCHIVED in name or name.endswith(ENDINGS)):
            return True
        return name.endswith(_TRANSCRIPT)

    def _report_unreadable(self, error: OSError) -> None:
        self.problems.append(Problem(show_path(str(error.filename)), f"cannot be read ({error.strerror})"))

    # reading

    def _import_file(self, path: str) -> None:
        source = Source(path, max_line_bytes=self.max_line_bytes)
        drafts = READERS[self.format](source, self.store.agent_id)
        self.problems += source.problems
        self._import_drafts(source, drafts)

    def _import_drafts(self, source: Source, drafts: list[Draft]) -> None:
        conversations = [draft for draft in drafts if draft.messages]
        if not conversations and not source.is_foreign and not source.is_unreadable:
            self.ignored.append(Problem(source.shown_path, "has no messages" if drafts else _NO_SESSION))
        for draft in conversations:
            self._import_draft(draft.with_title(self._titles) if self._titles else draft)

    def _import_database(self, path: str) -> None:
        if not is_database(path):
            self.ignored.append(Problem(show_path(path), "is not an SQLite database"))
            return
        try:
            with OpenClawDatabase(path) as database:
                if not database.has_transcripts:
                    self.ignored.append(Problem(show_path(path), "is a database without transcripts"))
                    return
                if database.archived:
                    reason = f"{database.archived:,} archived transcripts in it are not read"
                    self.problems.append(Problem(show_path(path), reason))
                for source, draft in openclaw.read_database(database, self.store.agent_id):
                    self.problems += source.problems
                    if draft is not None and not getattr(source, "is_whole", True):
                        self._add_outcome(draft, "failed", 0, "part of it cannot be read")
                    else:
                        self._import_drafts(source, [] if draft is None else [draft])
        except DatabaseUnreadable as exc:
            self.problems.append(Problem(show_path(path), str(exc)))

    # writing

    def _import_draft(self, draft: Draft) -> None:
        """Import one session. If that fails, report it, so that the others are still imported."""
        try:
            for candidate in (draft, _with_own_id(draft)):
                if self._write(candidate):
                    return
            self._add_outcome(draft, "failed", 0, "there is another session of this id")
        except SessionDeleted:
            self._add_outcome(draft, "deleted", 0)
        except KeptError as exc:
            self._add_outcome(draft, "failed", 0, exc.message)

    def _write(self, draft: Draft) -> bool:
        """Write a session, or what is new of it. Return False if a conversation from another file has its id."""
        existing = self._find_existing(draft.id)
        if existing is None:
            deleted = self.store.find_deleted(draft.id)
            if deleted is not None and not deleted.is_same(draft.entries):
                return False
            if deleted is not None:
                self._add_outcome(draft, "deleted", 0)
                return True
            if self.dry_run:
                self._planned[draft.id] = draft
            else:
                entries = (*draft.entries, *draft.added)
                self.store.adopt(draft.start, entries, session_id=draft.id, created=draft.created)
            self._add_outcome(draft, "imported", len(draft.entries) + len(draft.added))
            return True
        record, imported = existing
        offered = [entry.id for entry in draft.entries if isinstance(entry, Entry)]
        known = imported.comparable_ids(draft, offered)
        new = _find_new(draft, known, imported.ids) if known == offered[: len(known)] and known else ()
        if new:
            if not self.dry_run:
                self._extend(draft, new, after=imported.ids[-1])
            self._add_outcome(draft, "updated", len(new))
        elif offered == known[: len(offered)]:
            self._add_outcome(draft, "unchanged", 0)
        elif _origin(record, draft) != draft.source:
            return False
        else:
            self._add_outcome(draft, "failed", 0, _describe_difference(known, offered))
        return True

    def _extend(self, draft: Draft, entries: Sequence[AnyEntry], *, after: str) -> None:
        try:
            self.store.extend(draft.id, entries, after=after)
        except SessionNotFound:
            if self.store.find_deleted(draft.id) is None:
                raise
            raise SessionDeleted(f"Session {draft.id} was deleted.") from None  # since this run looked for it

    def _find_existing(self, session_id: str) -> tuple[SessionRecord | None, _ImportedEntries] | None:
        """Return the record of a session and its entries, without the first, or None if there is none."""
        if session_id in self._planned:
            return None, _ImportedEntries.of(self._planned[session_id].entries)
        if not os.path.isdir(self.store.folder):
            return None
        try:
            record = self.store.get(session_id)
        except (SessionNotFound, SessionAmbiguous):
            return None
        if record.id != session_id:
            return None  # found by the beginning of another id
        contents = (line.content for line in self.store.iter_lines(session_id))
        return record, _ImportedEntries.of(entry for entry in contents if not isinstance(entry, Damage))

    def _add_outcome(self, draft: Draft, outcome: Outcome, added: int, reason: str | None = None) -> None:
        self.sessions.append(
            SessionOutcome(draft.id, draft.source, outcome, draft.messages, added, draft.kinds, reason)
        )


@frozen
class _ImportedEntries:
    """Ids of the entries of a session that is here, without its first line."""

    ids: tuple[str, ...]
    foreign: frozenset[str]
    """Records that were kept as they were."""
    own: frozenset[str]
    """Titles that the user gave the conversation here, or that another file had."""

    @classmethod
    def of(cls, entries: Iterable[AnyEntry]) -> _ImportedEntries:
        ids, foreign, own = [], set(), set()
        for entry in entries:
            if not entry.id or (isinstance(entry, Entry) and isinstance(entry.body, SessionStart)):
                continue
            ids.append(entry.id)
            if isinstance(entry, UnknownEntry):
                foreign.add(entry.id)
            elif isinstance(entry.body, StateEntry) and (entry.body.name == USER_TITLE or ADDED_TITLE in entry.id):
                own.add(entry.id)
        return cls(tuple(ids), frozenset(foreign), frozenset(own))

    def comparable_ids(self, draft: Draft, offered: Sequence[str]) -> list[str]:
        """Return the ids to compare with what the source offers. Versions of Kept differ in the records that they keep
        as they were, so these count only if they are messages now."""
        ignored = {entry.id for entry in draft.added} | self.own | (self.foreign - set(offered))
        return [entry_id for entry_id in self.ids if entry_id not in ignored]


def _find_new(draft: Draft, known: Sequence[str], ids: Sequence[str]) -> tuple[AnyEntry, ...]:
    """Return the entries after the last one that is known, and a title that is not."""
    last = next(index for index, entry in enumerate(draft.entries) if entry.id == known[-1])
    here = set(ids)
    titles = (entry for entry in draft.added if ADDED_TITLE in entry.id)
    return tuple(entry for entry in (*draft.entries[last + 1 :], *titles) if entry.id not in here)


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
