"""One run of an import: finds the files of a format below a path, reads each, and collects the report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

from kept.errors import UsageError
from kept.limits import utf8_path
from kept.records import Problem, Progress
from kept.sessions.importers import chatgpt, claude_ai, claude_code, codex, openclaw, pi
from kept.sessions.importers.draft import Draft
from kept.sessions.importers.draft_writer import DraftWriter, ForeignFile, ImportReport, SessionOutcome, outcome_of
from kept.sessions.importers.foreign_format import NOUNS, Format, are_alike, guess_folder, guess_format, guess_part
from kept.sessions.importers.openclaw import ENDINGS, DatabaseUnreadable, OpenClawDatabase, is_database
from kept.sessions.importers.source import (
    MAX_LINE_BYTES,
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
_NO_SESSION = "holds no conversation of this format"


def import_sessions(
    store: SessionStore,
    format_name: Format,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
    progress: Progress | None = None,
) -> ImportReport:
    """Import every conversation in a file, or in the files below a folder. The source is only read.

    A line longer than ``max_line_bytes``, or a conversation of an export, is reported and left out. ``progress`` is
    called with the bytes that were read, those to read, and the file.
    """
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    run = _ImportRun(store, format_name, root, dry_run=dry_run, max_line_bytes=max_line_bytes, progress=progress)
    return run.run()


class _ImportRun:
    """Imports what is below one path, and collects the report."""

    def __init__(
        self,
        store: SessionStore,
        format_name: Format,
        root: str,
        *,
        dry_run: bool,
        max_line_bytes: int,
        progress: Progress | None,
    ) -> None:
        self.agent_id = store.agent_id
        self.format = format_name
        self.root = root
        self.dry_run = dry_run
        self.max_line_bytes = max_line_bytes
        self.files = 0
        self.sessions: list[SessionOutcome] = []
        self.ignored: list[Problem] = []
        self.problems: list[Problem] = []
        self.foreign: list[ForeignFile] = []
        self._writer = DraftWriter(store, dry_run=dry_run)
        self._progress = progress
        self._bytes_read = self._bytes_total = 0

    def run(self) -> ImportReport:
        paths = self._find_files()
        if self.format in EXPORT_READERS:
            self._import_exports(paths)
        else:
            self._import_transcripts(paths)
        if not self.files:
            self._guess_folder()
        return ImportReport(
            format=self.format,
            dry_run=self.dry_run,
            files=self.files,
            sessions=tuple(self.sessions),
            ignored=tuple(self.ignored),
            problems=tuple(self.problems),
            foreign=tuple(self.foreign),
        )

    def _advance(self, size: int, path: str) -> None:
        self._bytes_read += size
        if self._progress is not None:
            self._progress(min(self._bytes_read, self._bytes_total), self._bytes_total, path)

    # finding

    def _find_files(self) -> list[str]:
        if os.path.isfile(self.root):
            return [self.root]
        if not os.path.isdir(self.root):
            raise UsageError(
                f"{utf8_path(self.root)}: there is no such file or folder.",
                hint="Name a transcript, an export, or a folder of them.",
            )
        others: Counter[str] = Counter()
        paths = []
        for path in sorted(self._walk()):
            other = openclaw.other_agent(path, self.root, self.agent_id) if self.format == "openclaw" else None
            if other is None:
                paths.append(path)
            else:
                others[other] += 1
        self.ignored += openclaw.describe_other_agents(others, self.root)
        return paths

    def _walk(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self.root, onerror=self._report_unreadable):
            for name in folders:
                if os.path.islink(os.path.join(folder, name)):
                    self._ignore(os.path.join(folder, name), "is a symbolic link, which is not followed")
            for name in names:
                path = os.path.join(folder, name)
                if not self._is_wanted(path, name):
                    if _TRANSCRIPT in name and self.format == "openclaw":
                        self._ignore(path, "is a deleted transcript or a copy of one")
                elif os.path.islink(path):
                    self._ignore(path, "is a symbolic link, which is not followed")
                else:
                    yield path

    def _is_wanted(self, path: str, name: str) -> bool:
        if self.format in EXPORT_READERS:
            return name.lower().endswith(".zip") or is_conversations_name(path)
        if self.format == "openclaw" and (_ARCHIVED in name or name.endswith(ENDINGS)):
            return True
        return name.endswith(_TRANSCRIPT)

    def _report_unreadable(self, error: OSError) -> None:
        self.problems.append(Problem(utf8_path(str(error.filename)), f"cannot be read ({error.strerror})"))

    def _ignore(self, path: str, reason: str) -> None:
        self.ignored.append(Problem(utf8_path(path), reason))

    def _add_foreign(self, path: str, looks_like: Format | None, reason: str) -> None:
        self.foreign.append(ForeignFile(utf8_path(path), looks_like))
        self._ignore(path, f"looks like {NOUNS[looks_like]}" if looks_like else reason)

    def _guess_folder(self) -> None:
        """Say what is in a folder without files of this format, if that can be imported."""
        guess = guess_folder(self.root)
        if guess is not None and not are_alike(guess[1], self.format):
            self._add_foreign(guess[0], guess[1], "")

    # reading transcripts

    def _import_transcripts(self, paths: list[str]) -> None:
        sizes = [file_size(path) for path in paths]
        self._bytes_total = sum(sizes)
        for path, size in zip(paths, sizes, strict=True):
            self.files += 1
            if self.format == "openclaw" and path.endswith(ENDINGS):
                self._import_database(path)
            else:
                self._import_file(path)
            self._advance(size, path)

    def _import_file(self, path: str) -> None:
        source = Source(path, max_line_bytes=self.max_line_bytes)
        drafts = READERS[self.format](source, self.agent_id)
        self._import_drafts(source, drafts)

    def _import_drafts(self, source: Source, drafts: list[Draft]) -> None:
        conversations = [draft for draft in drafts if draft.messages]
        if conversations or source.is_unreadable:
            self.problems += source.problems
        elif (guess := guess_format(source.path)) is not None and not are_alike(guess, self.format):
            self._add_foreign(source.path, guess, "")
        else:
            self.problems += source.problems
            self._ignore_empty(source, "has no messages" if drafts else _NO_SESSION)
        self.sessions += map(self._writer.write, conversations)

    def _ignore_empty(self, source: Source, reason: str) -> None:
        is_unknown = reason == _NO_SESSION and source.path == self.root
        if is_unknown:
            self.foreign.append(ForeignFile(source.shown_path, None))
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
                if database.archived:
                    reason = f"{database.archived:,} archived transcripts in it are not read"
                    self.problems.append(Problem(utf8_path(path), reason))
                for source, draft in openclaw.read_database(database, self.agent_id):
                    if draft is not None and not getattr(source, "is_whole", True):
                        self.problems += source.problems
                        self.sessions.append(outcome_of(draft, "failed", reason="part of it cannot be read"))
                    else:
                        self._import_drafts(source, [] if draft is None else [draft])
        except DatabaseUnreadable as exc:
            self.problems.append(Problem(utf8_path(path), str(exc)))

    # reading exports

    def _import_exports(self, paths: list[str]) -> None:
        parts = [part for path in paths for part in self._find_parts(path)]
        self._bytes_total = sum(part.size for part in parts)
        for part in parts:
            self.files += 1
            self._import_part(part)

    def _find_parts(self, path: str) -> list[ExportPart]:
        """Return the files with conversations in an export. One that is refused is an error if it was named."""
        try:
            parts = find_parts(path)
        except (ExportRefused, OSError) as exc:
            reason = str(exc) if isinstance(exc, ExportRefused) else f"cannot be read ({exc.strerror})"
            if path == self.root:
                raise UsageError(f"{utf8_path(path)} {reason}.", hint="Nothing was imported.") from None
            self.problems.append(Problem(utf8_path(path), reason))
            return []
        if not parts and path == self.root:
            raise UsageError(
                f"{utf8_path(path)} has no conversations.json, so it is not an export.",
                hint="Name the zip file as you downloaded it.",
            )
        return parts

    def _import_part(self, part: ExportPart) -> None:
        source = ExportSource(
            part, max_bytes=self.max_line_bytes, on_read=lambda size: self._advance(size, part.member or part.path)
        )
        is_known = False
        for record in source.records():
            draft = EXPORT_READERS[self.format](record, source, self.agent_id)
            is_known = is_known or draft is not None
            if draft is not None and draft.messages:
                self.sessions.append(self._writer.write(draft))
        guess = None if is_known else guess_part(part)
        if guess is not None and guess != self.format:
            self._add_foreign(part.path, guess, "")
            return
        self.problems += source.problems
        if not is_known and (source.records_read or part.path == self.root):
            self._add_foreign(part.path, None, _NO_SESSION)
