"""One run of an import: finds the files of a format, reads each, writes what is new, and collects the report.

Each session is written completely or not at all, and none twice. A session that exists is compared by the ids of its
messages. If the source has only grown, what is new is appended. If both have continued, or the source was changed
before its end, nothing is written and the outcome has the reason. Entries of a chat service have ids that are the same
in every export, so there a new entry is one whose id is new. A session that the user deleted is left out, and so is
text that the user has forgotten: its entry comes without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

from kept.base.limits import as_dict, utf8_path
from kept.base.records import Problem, Progress
from kept.base.values import frozen
from kept.errors import KeptError, SessionDeleted, SessionExists, SessionNotFound, UsageError
from kept.sessions.entries import AnyEntry, is_message
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.importers.chat_services import ChatGptReader, ClaudeAiReader
from kept.sessions.importers.coding_agents import ClaudeCodeReader, CodexReader
from kept.sessions.importers.draft import Draft
from kept.sessions.importers.openclaw import OpenClawReader, PiReader
from kept.sessions.importers.reader import Reader
from kept.sessions.importers.source import Source, fingerprint
from kept.sessions.store import SessionStore

Format = Literal["openclaw", "claude-code", "codex", "pi", "chatgpt", "claude-ai"]
READERS: dict[Format, type[Reader]] = {
    "openclaw": OpenClawReader,
    "claude-code": ClaudeCodeReader,
    "codex": CodexReader,
    "pi": PiReader,
    "chatgpt": ChatGptReader,
    "claude-ai": ClaudeAiReader,
}
Program = Literal["claude-code", "codex", "openclaw", "pi"]
PROGRAMS: dict[Program, str] = {"claude-code": "Claude Code", "codex": "Codex", "openclaw": "OpenClaw", "pi": "pi"}
_FOLDERS: dict[Program, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ("~/.claude", "~/.config/claude"), ("projects",)),
    "codex": ("CODEX_HOME", ("~/.codex",), ("sessions", "archived_sessions")),
    "openclaw": ("OPENCLAW_STATE_DIR", ("~/.openclaw", "~/.clawdbot"), (".",)),
    "pi": ("PI_CODING_AGENT_DIR", ("~/.pi/agent",), ("sessions",)),
}
"""Variable that names the folder of a program, its usual folders, and those in it that have conversations."""


def program_folders(program: Program) -> list[str]:
    """Return where a program keeps its conversations, the usual folder first. They need not exist."""
    variable, usual, inner = _FOLDERS[program]
    named = os.environ.get(variable, "").strip()
    roots = (named,) if named else usual
    return [os.path.abspath(os.path.join(os.path.expanduser(root), name)) for root in roots for name in inner]


def existing_folders(program: Program) -> list[str]:
    return [folder for folder in program_folders(program) if os.path.isdir(folder)]


# the report

Outcome = Literal["imported", "updated", "unchanged", "deleted", "failed", "waiting"]
"""A conversation that the user deleted is left out: ``deleted``. One that could not be sent to a server waits here."""


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


# the run


@runtime_checkable
class DraftTarget(Protocol):
    """What writes sessions that were read from files of other programs: `DraftWriter`, or a server."""

    @property
    def agent_id(self) -> str: ...

    def write_draft(self, draft: Draft) -> SessionOutcome: ...


def import_sessions(
    store: SessionStore | DraftTarget,
    format_name: Format,
    *paths: str | os.PathLike[str],
    progress: Progress | None = None,
) -> ImportReport:
    """Import every conversation in files, or in the files below folders. The sources are only read.

    ``progress`` is called with the bytes that were read, those to read, and the file.
    """
    target = store if isinstance(store, DraftTarget) else DraftWriter(store)
    run = _ImportRun(target, READERS[format_name](target.agent_id))
    roots = [os.path.abspath(os.path.expanduser(os.fspath(path))) for path in paths]
    sizes = {path: os.path.getsize(path) for root in roots for path in run.find_files(root) if os.path.exists(path)}
    done = 0
    for path, size in sizes.items():
        run.import_file(path)
        done += size
        if progress is not None:
            progress(done, sum(sizes.values()), path)
    return ImportReport(format_name, len(sizes), tuple(run.sessions), tuple(run.ignored), tuple(run.problems))


class _ImportRun:
    """Imports files of one format, and collects the report."""

    def __init__(self, target: DraftTarget, reader: Reader) -> None:
        self.target = target
        self.reader = reader
        self.sessions: list[SessionOutcome] = []
        self.ignored: list[Problem] = []
        self.problems: list[Problem] = []

    def find_files(self, root: str) -> list[str]:
        if os.path.isfile(root):
            return [root]
        if not os.path.isdir(root):
            raise UsageError(
                f"{utf8_path(root)}: there is no such file or folder.",
                hint="Name a transcript, an export, or a folder of them.",
            )
        return sorted(self._walk(root))

    def _walk(self, root: str) -> Iterator[str]:
        for folder, _, names in os.walk(root, onerror=self._report_unreadable):
            for path in (os.path.join(folder, name) for name in names):
                if not self.reader.is_wanted(path, root):
                    continue
                if os.path.islink(path):
                    self.ignored.append(Problem(utf8_path(path), "is a symbolic link, which is not followed"))
                else:
                    yield path

    def _report_unreadable(self, error: OSError) -> None:
        self.problems.append(Problem(utf8_path(str(error.filename)), f"cannot be read ({error.strerror})"))

    def import_file(self, path: str) -> None:
        before, sources = len(self.sessions), dict[Source, None]()
        for source, draft in self.reader.read(path):
            sources[source] = None
            if draft is not None and not source.is_whole:
                self.sessions.append(outcome_of(draft, "failed", reason="part of it cannot be read"))
            elif draft is not None and draft.messages:
                self.sessions.append(self.target.write_draft(draft))
        for source in sources:
            self.problems += source.problems
        if len(self.sessions) == before and not any(source.is_unreadable or source.is_foreign for source in sources):
            self.ignored.append(Problem(utf8_path(path), "holds no conversation of this format"))


class DraftWriter:
    """Writes what is new of sessions to the store."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.agent_id = store.agent_id
        self._forgotten = ForgottenText(store.transcripts.storage)
        self._deleted = {session.id for session in store.deleted()}
        store.refresh()

    def write_draft(self, draft: Draft) -> SessionOutcome:
        """Write a session, or what is new of it. A failure is an outcome too, so that the others are still written."""
        self._forgotten.refresh()  # an import may take long, and something may be forgotten meanwhile
        if draft.id in self._deleted:
            return outcome_of(draft, "deleted")
        try:
            for candidate in (draft,) if draft.has_global_ids else (draft, _with_own_id(draft)):
                outcome = self._write_as(candidate)
                if outcome is not None:
                    return outcome
        except (SessionDeleted, SessionNotFound):  # before, or meanwhile
            return outcome_of(draft, "deleted")
        except KeptError as exc:
            return outcome_of(draft, "failed", reason=exc.message)
        return outcome_of(draft, "failed", reason="there is another session of this id")

    def _write_as(self, draft: Draft) -> SessionOutcome | None:
        """Write a session. Return None if a conversation from another file has its id."""
        record = self.store.find_by_id(draft.id, refresh=False)
        if record is None:
            return self._create(draft)
        offered = [entry.id for entry in draft.entries if is_message(entry)]
        lines = [line.content for line in self.store.iter_lines(draft.id)][1:]
        here = {entry_id: is_message(entry) for entry in lines if (entry_id := getattr(entry, "id", None))}
        known = [entry_id for entry_id, is_spoken in here.items() if is_spoken or entry_id in offered]
        later: Sequence[AnyEntry] = ()
        if draft.has_global_ids:  # each entry names its parent, so their order does not matter
            has_grown, later = not known or known[-1] in offered, draft.entries
        elif has_grown := bool(known) and known == offered[: len(known)]:
            later = draft.entries[[entry.id for entry in draft.entries].index(known[-1]) + 1 :]
        new = [self._forgotten.clean(entry) for entry in later if entry.id not in here]
        if has_grown and new:
            self.store.extend(draft.id, new, after=next(reversed(here), draft.id))
            return outcome_of(draft, "updated", added=len(new))
        if not new and (has_grown or draft.has_global_ids or offered == known[: len(offered)]):
            return outcome_of(draft, "unchanged")
        is_copy = as_dict(record.metadata.get("imported")).get("path") == draft.source
        if not is_copy and not draft.has_global_ids:
            return None
        reason = "it differs from the session here: one of the two continued or was changed; not merged"
        return outcome_of(draft, "failed", reason=reason)

    def _create(self, draft: Draft) -> SessionOutcome | None:
        entries, start = map(self._forgotten.clean, draft.entries), self._forgotten.clean_start(draft.start)
        try:
            self.store.adopt(start, entries, session_id=draft.id, created=draft.created)
        except SessionExists:  # another process was faster
            return self._write_as(draft)
        return outcome_of(draft, "imported", added=len(draft.entries))


def outcome_of(draft: Draft, outcome: Outcome, *, added: int = 0, reason: str | None = None) -> SessionOutcome:
    return SessionOutcome(draft.id, draft.source, outcome, draft.messages, added, reason)


def _with_own_id(draft: Draft) -> Draft:
    """Return a draft under an id made from its source, the same every time: two files may have sessions of one id."""
    return replace(draft, id=f"{draft.id[:100]}.{fingerprint(draft.source.encode())[:8]}")
