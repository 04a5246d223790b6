"""One run of an import: finds the files of a format, reads each, writes what is new, and collects the report.

Each session is written completely or not at all, and none twice. A session that exists is compared by the ids of its
messages. If the source has only grown, what is new is appended. If both have continued, or the source was changed
before its end, nothing is written and the outcome has the reason. Entries of a chat service have ids that are the same
in every export, so there a new entry is one whose id is new. A session that the user deleted is left out, and so is
text that the user has forgotten: its entry comes without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from kept.base.limits import as_dict, utf8_path
from kept.base.records import Problem, Progress
from kept.base.values import frozen
from kept.errors import KeptError, SessionDeleted, SessionExists, SessionNotFound, UsageError
from kept.sessions.entries import AnyEntry, Entry, SessionStart, is_message
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.importers import openclaw
from kept.sessions.importers.chat_services import read_chatgpt, read_claude_ai
from kept.sessions.importers.coding_agents import read_claude_code, read_codex
from kept.sessions.importers.draft import Draft, as_text
from kept.sessions.importers.openclaw import ENDINGS, DatabaseUnreadable, OpenClawDatabase, is_database
from kept.sessions.importers.source import (
    ExportPart,
    ExportRefused,
    ExportSource,
    Record,
    Source,
    file_size,
    find_parts,
    fingerprint,
    is_conversations_name,
)
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage

Format = Literal["openclaw", "claude-code", "codex", "pi", "chatgpt", "claude-ai"]
Program = Literal["claude-code", "codex", "openclaw", "pi"]
PROGRAMS: dict[Program, str] = {"claude-code": "Claude Code", "codex": "Codex", "openclaw": "OpenClaw", "pi": "pi"}


def program_folders(program: Program) -> list[str]:
    """Return where a program keeps its conversations, the usual folder first. They need not exist."""
    match program:
        case "claude-code":
            roots = _folders("CLAUDE_CONFIG_DIR", ".claude", os.path.join(".config", "claude"))
            return [os.path.join(root, "projects") for root in roots]
        case "codex":
            root = _folders("CODEX_HOME", ".codex")[0]
            return [os.path.join(root, "sessions"), os.path.join(root, "archived_sessions")]
        case "openclaw":
            return _folders("OPENCLAW_STATE_DIR", ".openclaw", ".clawdbot")
        case "pi":
            root = _folders("PI_CODING_AGENT_DIR", os.path.join(".pi", "agent"))[0]
            return [os.path.join(root, "sessions")]


def existing_folders(program: Program) -> list[str]:
    return [folder for folder in program_folders(program) if os.path.isdir(folder)]


def _folders(variable: str, *names: str) -> list[str]:
    """Return the folder that a variable names, or the usual ones below the home folder."""
    named = os.environ.get(variable, "").strip()
    if named:
        return [os.path.abspath(os.path.expanduser(named))]
    return [os.path.expanduser(os.path.join("~", name)) for name in names]


# the run

Reader = Callable[[Source, str], list[Draft]]
READERS: dict[Format, Reader] = {
    "openclaw": openclaw.read,
    "claude-code": read_claude_code,
    "codex": read_codex,
    "pi": openclaw.read_pi,
}
EXPORT_READERS: dict[Format, Callable[[Record, Source, str], Draft | None]] = {
    "chatgpt": read_chatgpt,
    "claude-ai": read_claude_ai,
}
_TRANSCRIPT = ".jsonl"
_ARCHIVED = ".jsonl.reset."
_SUBAGENT = "agent-"
_NO_SESSION = "holds no conversation of this format"


def import_sessions(
    store: SessionStore,
    format_name: Format,
    *paths: str | os.PathLike[str],
    progress: Progress | None = None,
) -> ImportReport:
    """Import every conversation in files, or in the files below folders. The sources are only read.

    ``progress`` is called with the bytes that were read, those to read, and the file.
    """
    run = _ImportRun(store, format_name)
    roots = [os.path.abspath(os.path.expanduser(os.fspath(path))) for path in paths]
    files = [(path, file_size(path)) for root in roots for path in run.find_files(root)]
    done, total = 0, sum(size for _, size in files)
    for path, size in files:
        run.import_file(path)
        done += size
        if progress is not None:
            progress(done, total, path)
    return run.report(len(files))


class _ImportRun:
    """Imports files of one format, and collects the report."""

    def __init__(self, store: SessionStore, format_name: Format) -> None:
        self.agent_id = store.agent_id
        self.format = format_name
        self.sessions: list[SessionOutcome] = []
        self.ignored: list[Problem] = []
        self.problems: list[Problem] = []
        self._writer = DraftWriter(store)

    def report(self, files: int) -> ImportReport:
        return ImportReport(
            format=self.format,
            files=files,
            sessions=tuple(self.sessions),
            ignored=tuple(self.ignored),
            problems=tuple(self.problems),
        )

    # finding

    def find_files(self, root: str) -> list[str]:
        if os.path.isfile(root):
            return [root]
        if not os.path.isdir(root):
            raise UsageError(
                f"{utf8_path(root)}: there is no such file or folder.",
                hint="Name a transcript, an export, or a folder of them.",
            )
        is_mine = partial(openclaw.is_of_agent, root=root, agent_id=self.agent_id)
        return sorted(path for path in self._walk(root) if self.format != "openclaw" or is_mine(path))

    def _walk(self, root: str) -> Iterator[str]:
        for folder, _, names in os.walk(root, onerror=self._report_unreadable):
            for name in names:
                path = os.path.join(folder, name)
                if not self._is_wanted(path, name):
                    continue
                if os.path.islink(path):
                    self._ignore(path, "is a symbolic link, which is not followed")
                else:
                    yield path

    def _is_wanted(self, path: str, name: str) -> bool:
        if self.format in EXPORT_READERS:
            return name.lower().endswith(".zip") or is_conversations_name(path)
        if self.format == "openclaw" and (_ARCHIVED in name or name.endswith(ENDINGS)):
            return True
        return name.endswith(_TRANSCRIPT) and not (self.format == "claude-code" and name.startswith(_SUBAGENT))

    def _report_unreadable(self, error: OSError) -> None:
        self.problems.append(Problem(utf8_path(str(error.filename)), f"cannot be read ({error.strerror})"))

    def _ignore(self, path: str, reason: str) -> None:
        self.ignored.append(Problem(utf8_path(path), reason))

    # reading

    def import_file(self, path: str) -> None:
        if self.format in EXPORT_READERS:
            for part in self._find_parts(path):
                self._import_part(part)
        elif self.format == "openclaw" and path.endswith(ENDINGS):
            self._import_database(path)
        else:
            source = Source(path)
            self._import_drafts(source, READERS[self.format](source, self.agent_id))

    def _import_drafts(self, source: Source, drafts: list[Draft]) -> None:
        conversations = [draft for draft in drafts if draft.messages]
        if conversations or source.is_unreadable:
            self.problems += source.problems
            self.sessions += map(self._writer.write, conversations)
        else:
            self._ignore_empty(source, "has no messages" if drafts else _NO_SESSION)

    def _ignore_empty(self, source: Source, reason: str) -> None:
        """Say why nothing of a file was imported."""
        self.problems += source.problems
        if not source.is_foreign:
            self._ignore(source.path, reason)

    def _import_database(self, path: str) -> None:
        if not is_database(path):
            self._ignore(path, "is not an SQLite database")
            return
        try:
            with OpenClawDatabase(path) as database:
                if not database.has_transcripts:
                    self._ignore(path, "is a database without transcripts")
                    return
                for source, draft in openclaw.read_database(database, self.agent_id):
                    if draft is not None and not getattr(source, "is_whole", True):
                        self.problems += source.problems
                        self.sessions.append(outcome_of(draft, "failed", reason="part of it cannot be read"))
                    else:
                        self._import_drafts(source, [] if draft is None else [draft])
        except DatabaseUnreadable as exc:
            self.problems.append(Problem(utf8_path(path), str(exc)))

    def _find_parts(self, path: str) -> list[ExportPart]:
        """Return the files with conversations in an export; none if it is refused."""
        try:
            return find_parts(path)
        except (ExportRefused, OSError) as exc:
            reason = str(exc) if isinstance(exc, ExportRefused) else f"cannot be read ({exc.strerror})"
            self.problems.append(Problem(utf8_path(path), reason))
            return []

    def _import_part(self, part: ExportPart) -> None:
        source = ExportSource(part)
        is_known = False
        for record in source.records():
            draft = EXPORT_READERS[self.format](record, source, self.agent_id)
            is_known = is_known or draft is not None
            if draft is not None and draft.messages:
                self.sessions.append(self._writer.write(draft))
        if is_known:
            self.problems += source.problems
        else:
            self._ignore_empty(source, _NO_SESSION)


# writing

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
    """Entries that were written."""
    reason: str | None = None
    """Reason of a failure."""


@frozen
class ImportReport:
    format: str
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
    """Writes drafts to a store."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._forgotten = ForgottenText(store.transcripts.storage)
        self._deleted = {session.id for session in store.deleted()}
        store.refresh()

    def write(self, draft: Draft) -> SessionOutcome:
        """Write a session, or what is new of it. A failure is an outcome too, so that the others are still written."""
        self._forgotten.refresh()  # an import may take long, and something may be forgotten meanwhile
        if draft.id in self._deleted:
            return outcome_of(draft, "deleted")
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
        existing = self._read_existing(draft.id)
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
            after = existing.ids[-1] if existing.ids else draft.id
            self.store.extend(draft.id, tuple(map(self._forgotten.clean, new)), after=after)
            return outcome_of(draft, "updated", added=len(new))
        if not new and (has_grown or draft.has_global_ids or offered == known[: len(offered)]):
            return outcome_of(draft, "unchanged")
        if existing.origin != draft.source and not draft.has_global_ids:
            return None
        reason = "it differs from the session here: one of the two continued or was changed; not merged"
        return outcome_of(draft, "failed", reason=reason)

    def _create(self, draft: Draft) -> SessionOutcome | None:
        entries, start = map(self._forgotten.clean, draft.entries), self._forgotten.clean_start(draft.start)
        try:
            self.store.adopt(start, entries, session_id=draft.id, created=draft.created)
        except SessionExists:  # another process was faster
            return self._write(draft)
        return outcome_of(draft, "imported", added=len(draft.entries))

    def _read_existing(self, session_id: str) -> _Existing | None:
        record = self.store.find_by_id(session_id, refresh=False)
        if record is None:
            return None
        origin = as_text(as_dict(record.metadata.get("imported")).get("path"))
        contents = (line.content for line in self.store.iter_lines(session_id))
        return _Existing.of(origin, (entry for entry in contents if not isinstance(entry, Damage)))


@frozen
class _Existing:
    """A session that was imported before."""

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
