"""Reads the files of a sync: notes and transcripts become batches of rows and texts to embed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kept.clock import Clock
from kept.errors import KeptError, NoteNotFound, SessionNotFound
from kept.indexing.prepare import PreparedFile, Recipe, file_row, prepare_file
from kept.records import Problem, SourceFile
from kept.store.generation import FileRow, Generation
from kept.values import frozen
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import Workspace

BATCH_FILES = 200
BATCH_CHARS = 400_000
STEP_BYTES = 400_000
"""Size of the pieces in which a long transcript is read. Each is stored whatever happens to the next."""


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

    def __bool__(self) -> bool:
        return bool(self.prepared or self.touched or self.removed or self.files)


_Piece = PreparedFile | FileRow | Problem | tuple[str, str]
"""Part of a file to index, a file whose times alone differ, a problem, or the key of a file that is gone."""


class SourceReader:
    """Reads and chunks files. A file that cannot be read is reported in its batch and skipped."""

    def __init__(
        self,
        workspace: Workspace,
        clock: Clock,
        *,
        max_file_bytes: int,
        batch_files: int = BATCH_FILES,
        batch_chars: int = BATCH_CHARS,
        step_bytes: int = STEP_BYTES,
    ) -> None:
        self.workspace = workspace
        self.clock = clock
        self.max_file_bytes = max_file_bytes
        self.batch_files = batch_files
        self.batch_chars = batch_chars
        self.step_bytes = step_bytes

    def iter_batches(self, target: SyncTarget) -> Iterator[FileBatch]:
        batch = FileBatch(removed=list(target.removed))
        with OpenWorkspace(self.workspace) as opened:
            for number, file in enumerate(target.files):
                is_new = False
                for piece in self._iter_pieces(opened, file, target):
                    batch.add(piece)
                    is_new = is_new or isinstance(piece, PreparedFile)
                    if self._is_full(batch):
                        yield batch
                        opened.close()  # embedding takes a while, in which folders may be replaced
                        batch = FileBatch(completed=number, label=file.path)
                batch.files += 1
                batch.indexed += is_new
                batch.completed, batch.label = number + 1, file.path
                if self._is_full(batch):
                    yield batch
                    opened.close()
                    batch = FileBatch(completed=number + 1, label=file.path)
        if batch:
            yield batch

    def _is_full(self, batch: FileBatch) -> bool:
        return batch.files >= self.batch_files or batch.chars > self.batch_chars

    def _iter_pieces(self, opened: OpenWorkspace, file: SourceFile, target: SyncTarget) -> Iterator[_Piece]:
        try:
            if file.source == "sessions":
                yield from self._read_transcript(file, target)
            else:
                yield from self._read_note(opened, file, target)
        except (NoteNotFound, SessionNotFound):
            yield file.source, file.path
        except KeptError as exc:
            yield Problem(file.path, exc.message)

    def _read_note(self, opened: OpenWorkspace, file: SourceFile, target: SyncTarget) -> Iterator[_Piece]:
        checked_ns = self.clock.time_ns()
        note = opened.read_found(file.absolute, max_bytes=self.max_file_bytes)
        row = file_row(file, note, checked_ns=checked_ns)
        known = target.known.get(row.key)
        if known is not None and known.hash == row.hash:
            row = replace(row, warning=known.warning)
            yield row
        else:
            prepared = prepare_file(file, note, target.recipe, checked_ns=checked_ns)
            row = prepared.write.file
            yield prepared
        if row.warning:
            yield Problem(file.path, row.warning)

    def _read_transcript(self, file: SourceFile, target: SyncTarget) -> Iterator[_Piece]:
        from kept.indexing.transcripts import TranscriptChunks, read_chunks

        known = target.known.get((file.source, file.path))
        checked_ns = self.clock.time_ns()
        for piece in read_chunks(file, known, target.recipe, checked_ns=checked_ns, step_bytes=self.step_bytes):
            if isinstance(piece, TranscriptChunks):
                yield from (Problem(file.path, reason) for reason in piece.problems)
                yield piece.prepared
            else:
                yield piece
