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
from kept.base.limits import int64, utf8_safe
from kept.base.records import Problem, SourceFile
from kept.base.values import frozen
from kept.config import Config, MemorySearchSettings
from kept.errors import KeptError, NoteNotFound, SessionNotFound
from kept.index.note_rows import PreparedFile, Recipe, file_row, prepare_file
from kept.index.sqlite.rows import FileRow
from kept.notes.scan import Scan, note_file, scan_workspace
from kept.notes.workspace import Workspace
from kept.sessions.transcript_paths import (
    CITED_FOLDER,
    cite_transcript,
    is_transcript,
    is_transcript_citation,
    iter_transcripts,
)

if TYPE_CHECKING:
    from kept.index.sqlite.generation import Generation

BATCH_FILES = 200
BATCH_CHARS = 400_000
STEP_BYTES = 400_000
"""Size of the pieces in which a long transcript is read. Each is stored whatever happens to the next."""


# listing


def scan_sources(workspace: Workspace, sessions_folder: str, settings: MemorySearchSettings) -> Scan:
    """Scan the sources that are enabled."""
    notes = transcripts = Scan((), (), ())
    if "memory" in settings.sources:
        notes = scan_workspace(workspace, max_bytes=settings.max_file_bytes)
    if "sessions" in settings.sources:
        transcripts = scan_transcripts(sessions_folder)
    return Scan(
        notes.files + transcripts.files,
        notes.problems + transcripts.problems,
        notes.folders + transcripts.folders,
    )


def look_at(
    last: Scan, paths: Iterable[str], workspace: Workspace, sessions_folder: str, settings: MemorySearchSettings
) -> Scan | None:
    """Return a scan of these files alone, or None if only a scan of all can tell what they are."""
    files: list[SourceFile] = []
    only: set[tuple[str, str]] = set()
    for absolute in paths:
        cited = cite_source(absolute, workspace, sessions_folder)
        if cited is None:
            continue
        try:
            if is_transcript_citation(cited):
                file = find_transcript(absolute, cited)
            else:
                info = workspace.find(cited)
                # Another name of the same file may be indexed already, and a large file is a problem to report.
                if info and (info.link_id or info.size > settings.max_file_bytes):
                    return None
                file = info and note_file(cited, absolute, info)
        except (KeptError, OSError):
            return None
        only.add(("sessions" if is_transcript_citation(cited) else "memory", cited))
        files += [file] if file else []
    return replace(last, files=tuple(files), only=frozenset(only))


def find_transcript(absolute: str, cited: str) -> SourceFile | None:
    try:
        state = os.stat(absolute, follow_symlinks=False)
    except FileNotFoundError:
        return None
    times = (int64(state.st_mtime_ns), int64(state.st_ctime_ns))
    return SourceFile(cited, absolute, "sessions", state.st_size, *times)


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


def scan_transcripts(folder: str) -> Scan:
    """List the transcripts, however large: one is read in pieces, and later only where it has grown."""
    files: list[SourceFile] = []
    problems: list[Problem] = []
    watched = [folder]
    try:
        for entry in sorted(iter_transcripts(folder), key=lambda entry: entry.path):
            cited = cite_transcript(entry.name)
            try:
                cited.encode("utf-8")
                state = entry.stat(follow_symlinks=False)
            except UnicodeEncodeError:
                problems.append(Problem(utf8_safe(cited), "its name is not valid UTF-8"))
            except FileNotFoundError:
                pass
            else:
                times = (int64(state.st_mtime_ns), int64(state.st_ctime_ns))
                files.append(SourceFile(cited, entry.path, "sessions", state.st_size, *times))
    except FileNotFoundError:
        while not os.path.isdir(watched[0]):  # a watch on the nearest parent notices that the folder is created
            watched = [os.path.dirname(watched[0])]
    except OSError as exc:
        problems.append(Problem(CITED_FOLDER, f"cannot be listed ({exc.strerror})"))
    return Scan(tuple(files), tuple(problems), tuple(watched))


# reading


@frozen
class SyncTarget:
    """Files to bring into a generation of the index."""

    generation: Generation
    files: tuple[SourceFile, ...]
    removed: tuple[tuple[str, str], ...]
    known: dict[tuple[str, str], FileRow]
    """Rows of the generation by source and path. A file whose hash is the same is not indexed again."""
    recipe: Recipe
    needs_vectors: bool = False
    """Give up if the embedder fails. Otherwise chunks are stored without vectors, which a later sync adds."""


@dataclass
class FileBatch:
    """Files that are embedded and written together: enough to share a call and a transaction, few enough to hold
    in memory. A long transcript may be spread over several."""

    prepared: list[PreparedFile] = field(default_factory=list)
    touched: list[FileRow] = field(default_factory=list)
    """Files whose bytes are as indexed while their times differ."""
    removed: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    indexed: int = 0
    """Files whose text is new or changed."""
    chars: int = 0
    completed: int = 0
    """Files of the whole sync that were read when the batch was full."""
    label: str = ""

    def add(self, piece: _Piece) -> None:
        match piece:
            case PreparedFile():
                self.prepared.append(piece)
                self.chars += sum(map(len, piece.embed_texts.values()))
            case FileRow():
                self.touched.append(piece)
            case Problem():
                self.problems.append(piece)
            case _:
                self.removed.append(piece)


_Piece = PreparedFile | FileRow | Problem | tuple[str, str]
"""Part of a file to index, a file whose times alone differ, a problem, or the key of a file that is gone."""


@frozen
class SourceReader:
    """Reads and chunks files. A file that cannot be read is reported in its batch and skipped."""

    workspace: Workspace
    config: Config
    clock: Clock
    max_file_bytes: int
    batch_files: int = BATCH_FILES
    batch_chars: int = BATCH_CHARS
    step_bytes: int = STEP_BYTES

    def iter_batches(self, target: SyncTarget) -> Iterator[FileBatch]:
        batch = FileBatch(removed=list(target.removed))
        for file in target.files:
            is_new = False
            for piece in self._iter_pieces(file, target):
                if piece is None:  # the file is read
                    batch.files += 1
                    batch.indexed += is_new
                    batch.completed += 1
                    batch.label = file.path
                else:
                    batch.add(piece)
                    is_new = is_new or isinstance(piece, PreparedFile)
                if batch.files >= self.batch_files or batch.chars > self.batch_chars:
                    yield batch
                    batch = FileBatch(completed=batch.completed, label=file.path)
        if batch.files or batch.removed:
            yield batch

    def _iter_pieces(self, file: SourceFile, target: SyncTarget) -> Iterator[_Piece | None]:
        """Yield the pieces of a file, and None after the last."""
        known = target.known.get((file.source, file.path))
        checked_ns = self.clock.time_ns()
        try:
            if file.source == "sessions":
                from kept.index.transcripts import read_chunks

                yield from read_chunks(
                    file, known, target.recipe, self.config, checked_ns=checked_ns, step_bytes=self.step_bytes
                )
            else:
                yield from self._read_note(file, known, target.recipe, checked_ns)
        except (NoteNotFound, SessionNotFound):
            yield file.source, file.path
        except KeptError as exc:
            yield Problem(file.path, exc.message)
        yield None

    def _read_note(self, file: SourceFile, known: FileRow | None, recipe: Recipe, checked_ns: int) -> Iterator[_Piece]:
        note = self.workspace.read(file.path, max_bytes=self.max_file_bytes)
        row = file_row(file, note, checked_ns=checked_ns)
        if known is not None and known.hash == row.hash:
            row = replace(row, warning=known.warning)
            yield row
        else:
            prepared = prepare_file(file, note, recipe, checked_ns=checked_ns)
            row = prepared.write.file
            yield prepared
        if row.warning:
            yield Problem(file.path, row.warning)
