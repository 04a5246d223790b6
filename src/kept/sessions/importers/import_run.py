"""One run of an import: finds the files of a format, reads each, and collects the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

from kept.errors import UsageError
from kept.limits import utf8_path
from kept.records import Problem, Progress
from kept.sessions.importers import chatgpt, claude_ai, claude_code, codex, openclaw, pi
from kept.sessions.importers.draft import Draft
from kept.sessions.importers.draft_writer import DraftWriter, ImportReport, SessionOutcome, outcome_of
from kept.sessions.importers.foreign_format import Format
from kept.sessions.importers.openclaw import ENDINGS, DatabaseUnreadable, OpenClawDatabase, is_database
from kept.sessions.importers.source import (
    ExportPart,
    ExportRefused,
    ExportSource,
    Record,
    Source,
    file_size,
    find_parts,
    is_conversations_name,
)
from kept.sessions.store import SessionStore

Reader = Callable[[Source, str], list[Draft]]
READERS: dict[Format, Reader] = {
    "openclaw": openclaw.read,
    "claude-code": claude_code.read,
    "codex": codex.read,
    "pi": pi.read,
}
EXPORT_READERS: dict[Format, Callable[[Record, Source, str], Draft | None]] = {
    "chatgpt": chatgpt.read_conversation,
    "claude-ai": claude_ai.read_conversation,
}
_TRANSCRIPT = ".jsonl"
_ARCHIVED = ".jsonl.reset."
_SUBAGENT = "agent-"
_NO_SESSION = "holds no conversation of this format"


def import_sessions(
    store: SessionStore,
    format_name: Format,
    *paths: str | os.PathLike[str],
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import every conversation in files, or in the files below folders. The sources are only read.

    ``progress`` is called with the bytes that were read, those to read, and the file.
    """
    run = _ImportRun(store, format_name, dry_run=dry_run)
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

    def __init__(self, store: SessionStore, format_name: Format, *, dry_run: bool) -> None:
        self.agent_id = store.agent_id
        self.format = format_name
        self.dry_run = dry_run
        self.sessions: list[SessionOutcome] = []
        self.ignored: list[Problem] = []
        self.problems: list[Problem] = []
        self._writer = DraftWriter(store, dry_run=dry_run)

    def report(self, files: int) -> ImportReport:
        return ImportReport(
            format=self.format,
            dry_run=self.dry_run,
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
