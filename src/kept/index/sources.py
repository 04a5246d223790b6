"""The files to index: the notes of a workspace and the transcripts of an agent, first listed, then read.

Scanning lists them with their sizes and times. A `SourceReader` reads those that a sync needs: they become batches of
rows and texts to embed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kept.base.clock import Clock
from kept.base.limits import int64, is_utf8, utf8_safe
from kept.base.records import Problem, SourceFile
from kept.base.values import frozen
from kept.config import Config
from kept.errors import KeptError, NoteNotFound, SessionNotFound, WorkspaceError
from kept.index.note_rows import Recipe, file_row, prepare_file
from kept.index.sqlite.rows import FileRow, FileWrite
from kept.notes.scan import Scan, note_file, scan_workspace
from kept.notes.workspace import Workspace
from kept.sessions.transcript_paths import (
    CITED_FOLDER,
    cite_transcript,
    is_transcript,
    is_transcript_citation,
)
from kept.storage.open import open_agent

if TYPE_CHECKING:
    from kept.base.net import RetryPolicy
    from kept.index.sqlite.generation import Generation
    from kept.storage.contract import LogInfo

# Source and path.
FileKey = tuple[str, str]


@frozen
class IndexLimits:
    """Waiting times and sizes."""

    sync_wait_s: float = 60.0
    """Longest wait for another process that is indexing."""
    search_wait_s: float = 0.5
    """The same for a search, which then answers from the index as it is."""
    embedder_rest_s: float = 30.0
    """Time after a failure in which searches do not ask the embedder for missing vectors again."""
    batch_files: int = 200
    """Files that are written in one transaction."""
    batch_chars: int = 400_000
    step_bytes: int = 400_000
    """Size of the pieces in which a long transcript is read. Each is stored whatever happens to the next."""
    job_texts: int = 10_000
    """Texts in one job of a provider's batch API. Providers allow more; a smaller job ends sooner and loses less."""
    retry_policy: RetryPolicy | None = None
    """Retries of remote embedders; None is the default."""


# listing


def cite_source(absolute: str, workspace: Workspace, sessions_folder: str) -> str | None:
    """Return the name by which an indexed file is cited, or None if a sync would not index the file."""
    folder, name = os.path.split(absolute)
    if folder == sessions_folder and is_transcript(name):
        return cite_transcript(absolute)
    cited = workspace.cite(absolute)
    return cited if workspace.is_note_file(cited) and workspace.is_indexed(cited) else None


def find_copies(scan: Scan) -> list[Problem]:
    """Return the notes that are conflict copies of others."""
    from kept.notes.conflict_copies import find_conflicts

    return find_conflicts(scan.files)


def scan_transcripts(config: Config) -> Scan:
    """List the transcripts, however large: one is read in pieces, and later only where it has grown."""
    files: list[SourceFile] = []
    problems: list[Problem] = []
    folder = config.paths.sessions
    try:
        for info in open_agent(config).logs.list(config.paths.transcripts):
            name = info.name.removeprefix(config.paths.transcripts)
            if is_transcript(name) and is_utf8(name):
                files.append(_transcript_file(folder, info))
            elif is_transcript(name):
                problems.append(Problem(utf8_safe(cite_transcript(name)), "its name is not valid UTF-8"))
    except WorkspaceError as exc:
        problems.append(Problem(CITED_FOLDER, f"cannot be listed ({exc.message})"))
    while not config.database and not os.path.isdir(folder):
        folder = os.path.dirname(folder)  # a watch on the nearest parent notices that the folder is created
    return Scan(tuple(files), tuple(problems), (folder,))


def _transcript_file(folder: str, info: LogInfo) -> SourceFile:
    name = os.path.basename(info.name)
    absolute = os.path.join(folder, name)
    times = int64(info.modified_ns), int64(info.changed_ns)
    return SourceFile(cite_transcript(name), absolute, "sessions", info.size, *times)


# reading


@frozen
class SyncTarget:
    """Files to bring into a generation of the index."""

    generation: Generation
    files: tuple[SourceFile, ...]
    removed: tuple[FileKey, ...]
    known: dict[FileKey, FileRow]
    """Rows of the generation by source and path. A file whose hash is the same is not indexed again."""
    recipe: Recipe
    needs_vectors: bool = False
    """Give up if the embedder fails. Otherwise chunks are stored without vectors, which a later sync adds."""


@dataclass
class FileBatch:
    """Files that are embedded and written together: enough to share a call and a transaction, few enough to hold
    in memory. A long transcript may be spread over several."""

    writes: list[FileWrite] = field(default_factory=list)
    touched: list[FileRow] = field(default_factory=list)
    """Files whose bytes are as indexed while their times differ."""
    removed: list[FileKey] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    indexed: int = 0
    """Files whose text is new or changed."""
    chars: int = 0
    completed: int = 0
    """Files of the whole sync that were read when the batch was full."""
    label: str = ""


_Piece = FileWrite | FileRow | Problem | FileKey


@frozen
class SourceReader:
    """Lists, reads and chunks files. A file that cannot be read is reported in its batch and skipped."""

    workspace: Workspace
    config: Config
    clock: Clock
    limits: IndexLimits

    def scan(self) -> Scan:
        """Scan the sources that are enabled."""
        settings = self.config.memory_search
        notes = transcripts = Scan((), (), ())
        if "memory" in settings.sources:
            notes = scan_workspace(self.workspace, max_bytes=settings.max_file_bytes)
        if "sessions" in settings.sources:
            transcripts = scan_transcripts(self.config)
        return Scan(
            notes.files + transcripts.files,
            notes.problems + transcripts.problems,
            notes.folders + transcripts.folders,
        )

    def look(self, last: Scan, paths: Iterable[str]) -> Scan | None:
        """Return a scan of these files alone, or None if only a scan of all can tell what they are."""
        files: list[SourceFile] = []
        only: set[FileKey] = set()
        for absolute in paths:
            cited = cite_source(absolute, self.workspace, self.config.paths.sessions)
            if cited is None:
                continue
            is_session = is_transcript_citation(cited)
            only.add(("sessions" if is_session else "memory", cited))
            try:
                if is_session:
                    log = open_agent(self.config).logs.find(self.config.paths.transcripts + os.path.basename(cited))
                    files += [_transcript_file(self.config.paths.sessions, log)] if log else []
                elif info := self.workspace.find(cited):
                    # A large file is a problem to report.
                    if info.size > self.config.memory_search.max_file_bytes:
                        return None
                    files.append(note_file(cited, absolute, info))
            except KeptError:  # such as a link in the path: a scan reports it
                return None
        return replace(last, files=tuple(files), only=frozenset(only))

    def iter_batches(self, target: SyncTarget) -> Iterator[FileBatch]:
        batch = FileBatch(removed=list(target.removed))
        for number, file in enumerate(target.files, 1):
            is_new = False
            for piece in self._iter_pieces(file, target):
                # Also within a file: a long transcript may be more than fits in memory.
                if batch.files >= self.limits.batch_files or batch.chars > self.limits.batch_chars:
                    yield batch
                    batch = FileBatch(completed=number - 1, label=file.path)
                match piece:
                    case FileWrite():
                        is_new = True
                        batch.writes.append(piece)
                        batch.chars += sum(len(chunk.embed_text) for chunk in piece.chunks)
                    case FileRow():
                        batch.touched.append(piece)
                    case Problem():
                        batch.problems.append(piece)
                    case _:
                        batch.removed.append(piece)
            batch.files += 1
            batch.indexed += is_new
            batch.completed, batch.label = number, file.path
        if batch.files or batch.removed:
            yield batch

    def _iter_pieces(self, file: SourceFile, target: SyncTarget) -> Iterator[_Piece]:
        known = target.known.get((file.source, file.path))
        checked_ns = self.clock.time_ns()
        try:
            if file.source == "sessions":
                from kept.index.transcripts import read_chunks

                step_bytes = self.limits.step_bytes
                yield from read_chunks(file, known, self.config, checked_ns=checked_ns, step_bytes=step_bytes)
                return
            note = self.workspace.read(file.path, max_bytes=self.config.memory_search.max_file_bytes)
            row = file_row(file, note, checked_ns=checked_ns)
            if known is not None and known.hash == row.hash:
                row = replace(row, warning=known.warning)
                yield row
            else:
                write = prepare_file(file, note, target.recipe, checked_ns=checked_ns)
                row = write.file
                yield write
            if row.warning:
                yield Problem(file.path, row.warning)
        except (NoteNotFound, SessionNotFound):  # deleted since the scan
            yield file.source, file.path
        except KeptError as exc:
            yield Problem(file.path, exc.message)
