"""Bringing in what is at a path: every session whole or not at all, and nothing twice.

A session that is here already is compared by the ids of its entries. Where the source has only grown, what is new is
added; where both went on, or the source was changed before its end, nothing is touched and the report says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from kept.errors import KeptError, SessionAmbiguous, SessionNotFound, UsageError
from kept.records import Problem
from kept.sessions.importers import claude_code, codex, openclaw, pi
from kept.sessions.importers.draft import Draft
from kept.sessions.importers.openclaw_sqlite import ENDINGS, Database, NotReadable, is_database
from kept.sessions.importers.report import ImportReport, Outcome, SessionOutcome
from kept.sessions.importers.source import Source, fingerprint, shown
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage

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
    store: SessionStore, format_name: Format, path: str | os.PathLike[str], *, dry_run: bool = False
) -> ImportReport:
    """Every conversation in a file, or in the files below a folder. The source is only read."""
    importing = _Importing(store, format_name, os.path.abspath(os.path.expanduser(os.fspath(path))), dry_run)
    return importing.run()


class _Importing:
    def __init__(self, store: SessionStore, format_name: Format, root: str, dry_run: bool) -> None:
        self.store = store
        self.format = format_name
        self.root = root
        self.dry_run = dry_run
        self.files = 0
        self.sessions: list[SessionOutcome] = []
        self.ignored: list[Problem] = []
        self.problems: list[Problem] = []
        self._planned: dict[str, Draft] = {}

    def run(self) -> ImportReport:
        for path in self._find():
            self.files += 1
            if self.format == "openclaw" and path.endswith(ENDINGS):
                self._take_database(path)
            else:
                self._take_file(path)
        return ImportReport(
            format=self.format,
            dry_run=self.dry_run,
            files=self.files,
            sessions=tuple(self.sessions),
            ignored=tuple(self.ignored),
            problems=tuple(self.problems),
        )

    # finding

    def _find(self) -> list[str]:
        if os.path.isfile(self.root):
            return [self.root]
        if not os.path.isdir(self.root):
            raise UsageError(f"{self.root}: there is no such file or folder.", hint="Name a transcript or a folder.")
        others: Counter[str] = Counter()
        found = []
        for path in sorted(self._walk()):
            other = openclaw.other_agent(path, self.root, self.store.agent_id) if self.format == "openclaw" else None
            if other is None:
                found.append(path)
            else:
                others[other] += 1
        self.ignored += openclaw.describe_other_agents(others, self.root)
        return found

    def _walk(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.root, onerror=self._say_unreadable):
            for name in names:
                path = os.path.join(folder, name)
                if not self._is_transcript(name):
                    if _TRANSCRIPT in name and self.format == "openclaw":
                        self.ignored.append(Problem(shown(path), "is a deleted transcript or a copy of one"))
                elif os.path.islink(path):
                    self.ignored.append(Problem(shown(path), "is a symbolic link, which is not followed"))
                else:
                    yield path

    def _is_transcript(self, name: str) -> bool:
        if self.format == "openclaw" and (_ARCHIVED in name or name.endswith(ENDINGS)):
            return True
        return name.endswith(_TRANSCRIPT)

    def _say_unreadable(self, error: OSError) -> None:
        self.problems.append(Problem(shown(str(error.filename)), f"cannot be read ({error.strerror})"))

    # reading

    def _take_file(self, path: str) -> None:
        source = Source(path)
        drafts = READERS[self.format](source, self.store.agent_id)
        self.problems += source.problems
        self._take(source, drafts)

    def _take(self, source: Source, drafts: list[Draft]) -> None:
        talks = [draft for draft in drafts if draft.messages]
        if not talks and not source.is_foreign and not source.is_unreadable:
            self.ignored.append(Problem(source.shown_path, "has no messages" if drafts else _NO_SESSION))
        for draft in talks:
            self._settle(draft)

    def _take_database(self, path: str) -> None:
        if not is_database(path):
            self.ignored.append(Problem(shown(path), "is not an SQLite database"))
            return
        try:
            with Database(path) as database:
                if not database.has_transcripts:
                    self.ignored.append(Problem(shown(path), "is a database without transcripts"))
                    return
                if database.archived:
                    reason = f"{database.archived:,} archived transcripts in it are not read"
                    self.problems.append(Problem(shown(path), reason))
                for source, draft in openclaw.read_database(database, self.store.agent_id):
                    self.problems += source.problems
                    if draft is not None and not getattr(source, "is_whole", True):
                        self._note(draft, "failed", 0, "part of it cannot be read")
                    else:
                        self._take(source, [] if draft is None else [draft])
        except NotReadable as exc:
            self.problems.append(Problem(shown(path), str(exc)))

    # writing

    def _settle(self, draft: Draft) -> None:
        """One session that fails does not keep the others from being taken in."""
        try:
            for one in (draft, _renamed(draft)):
                if self._take_in(one):
                    return
            self._note(draft, "failed", 0, "there is another session of this id")
        except KeptError as exc:
            self._note(draft, "failed", 0, exc.message)

    def _take_in(self, draft: Draft) -> bool:
        """False where the id is taken by a conversation from another file."""
        here = self._ids_here(draft.id)
        if here is None:
            if self.dry_run:
                self._planned[draft.id] = draft
            else:
                entries = (*draft.entries, *draft.added)
                self.store.adopt(draft.start, entries, session_id=draft.id, created=draft.created)
            self._note(draft, "imported", len(draft.entries) + len(draft.added))
            return True
        record, ids = here
        added = {one.id for one in draft.added}
        known = [one for one in ids if one not in added]
        wanted = [one.id for one in draft.entries]
        if wanted == known[: len(wanted)]:
            self._note(draft, "unchanged", 0)
        elif known == wanted[: len(known)] and known:
            new = draft.entries[len(known) :]
            if not self.dry_run:
                self.store.extend(draft.id, new, after=ids[-1])
            self._note(draft, "updated", len(new))
        elif _origin(record, draft) != draft.source:
            return False
        else:
            self._note(draft, "failed", 0, _describe_parting(known, wanted))
        return True

    def _ids_here(self, session_id: str) -> tuple[SessionRecord | None, list[str]] | None:
        """The ids of the entries of a session that is here, without its first; None where there is none."""
        if session_id in self._planned:
            draft = self._planned[session_id]
            return None, [one.id for one in draft.entries if one.id]
        if not os.path.isdir(self.store.folder):
            return None
        try:
            record = self.store.get(session_id)
        except (SessionNotFound, SessionAmbiguous):
            return None
        if record.id != session_id:
            return None  # the beginning of another id
        contents = (line.content for line in self.store.iter_lines(session_id))
        ids = [one.id for one in contents if not isinstance(one, Damage) and one.id]
        return record, ids[1:]

    def _note(self, draft: Draft, outcome: Outcome, added: int, reason: str | None = None) -> None:
        self.sessions.append(
            SessionOutcome(draft.id, draft.source, outcome, draft.messages, added, draft.kinds, reason)
        )


def _renamed(draft: Draft) -> Draft:
    """Two files may hold conversations of the same id. The second gets a name of its own, the same every time."""
    return replace(draft, id=f"{draft.id[:100]}.{fingerprint(draft.source.encode())[:8]}")


def _origin(record: SessionRecord | None, draft: Draft) -> object:
    if record is None:
        return None
    imported = record.metadata.get("imported")
    return imported.get("path") if isinstance(imported, dict) else draft.source


def _describe_parting(known: list[str], wanted: list[str | None]) -> str:
    pairs = zip(known, wanted, strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), 0)
    if not same:
        return "a session of this id is here that did not come from this file"
    return f"it parts from what is here after {same:,} entries: one of the two went on or was changed; not merged"
