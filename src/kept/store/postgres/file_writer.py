"""Writes a batch of files and their chunks: what is there is read once, and each table is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kept.errors import StoreBusy
from kept.store.postgres.posting_tables import PostingTables, StemmedChunk, stem_chunk
from kept.store.postgres.storable import storable_or_none
from kept.store.postgres.vectors import LOOSE_COLUMNS, VECTOR_COLUMNS
from kept.store.rows import FileRow, FileWrite, NewChunk, content_key
from kept.values import frozen

if TYPE_CHECKING:
    from kept.store.note_tables import NoteRow
    from kept.store.postgres.generation import PostgresGeneration

FindCode = Callable[[bytes], bytes | None]
FileKey = tuple[str, str]

CHUNK_TYPES = (
    ("generation", "int4"),
    ("row", "int4"),
    ("source", "text"),
    ("path", "text"),
    ("start_line", "int4"),
    ("end_line", "int4"),
    ("hash", "bytea"),
    ("embed_hash", "bytea"),
    ("heading", "bytea"),
    ("text", "bytea"),
    ("timestamp", "int8"),
    ("session_key", "text"),
    ("channel", "text"),
    ("recalled", "int2"),
    ("content_key", "bytea"),
    ("stems", "bytea"),
    ("text_words", "int4"),
    ("all_words", "int4"),
)


@frozen
class _Present:
    """A chunk of a file: stored, or added by the same batch."""

    row: int
    start_line: int
    embed_hash: bytes
    has_vector: bool


@frozen
class _Added:
    chunk: NewChunk
    file: FileKey
    key: bytes


class FileWriter:
    """One batch for one generation. Callers hold the transaction."""

    def __init__(self, generation: PostgresGeneration, find_code: FindCode | None) -> None:
        self._target = generation
        self._session = generation.session
        self._generation = generation.number
        self._find_code = find_code
        self._present: dict[FileKey, dict[bytes, _Present]] = {}
        self._added: dict[int, _Added] = {}
        self._removed: list[int] = []
        self._last_row = 0
        self._changed = 0

    def write(self, writes: Sequence[FileWrite]) -> int:
        """Replace the chunks of files, keeping the rows of unchanged ones. Return how many were added and removed."""
        self._read_present({(write.file.source, write.file.path) for write in writes})
        for write in writes:
            self._plan(write)
        self._store_chunks()
        notes: dict[str, NoteRow] = {write.file.path: write.note for write in writes if write.note is not None}
        if notes:
            self._target.notes.put(notes)
        self._target.put_files([write.file for write in writes])
        self._target.touch_times(
            {
                (write.file.source, write.file.path): write.timestamp_ms
                for write in writes
                if write.timestamp_ms is not None
            }
        )
        self._store_vectors(writes)
        return self._changed

    def remove(self, files: Sequence[FileKey]) -> int:
        """Remove files and their chunks. Return how many chunks that were."""
        self._read_present(files)
        self._removed = [chunk.row for chunks in self._present.values() for chunk in chunks.values()]
        self._store_chunks()
        self._target.notes.remove([path for source, path in files if source == "memory"])
        self._session.execute(
            "DELETE FROM index_files f USING unnest(%s::text[], %s::text[]) v(source, path)"
            " WHERE f.generation = %s AND f.source = v.source AND f.path = v.path",
            [*_columns(files), self._generation],
        )
        return len(self._removed)

    # planning

    def _read_present(self, files: Iterable[FileKey]) -> None:
        files = [*files]
        self._present = {file: {} for file in files}
        self._last_row = self._lock_generation()
        rows = self._session.fetch(
            "SELECT c.source, c.path, c.content_key, c.row, c.start_line, c.embed_hash, v.row IS NOT NULL"
            " FROM unnest(%s::text[], %s::text[]) w(source, path)"
            " JOIN chunks c ON c.generation = %s AND c.source = w.source AND c.path = w.path"
            " LEFT JOIN chunk_vectors v ON v.generation = c.generation AND v.row = c.row ORDER BY c.row",
            [*_columns(files), self._generation],
        )
        for source, path, key, *columns in rows:
            self._present[source, path][key] = _Present(*columns)

    def _lock_generation(self) -> int:
        query = "SELECT last_row FROM generations WHERE id = %s FOR UPDATE"
        rows = self._session.fetch(query, [self._generation])
        if not rows:
            raise StoreBusy(f"{self._session.name}: another process has begun to index the same workspace.")
        return int(rows[0][0])

    def _plan(self, write: FileWrite) -> None:
        """Decide which rows of a file stay. Like `Generation.replace_file` of SQLite."""
        file = (write.file.source, write.file.path)
        present = self._present[file]
        old = {key: chunk.row for key, chunk in present.items() if chunk.start_line > write.after_line}
        with_time = write.timestamp_ms is None
        by_id = {chunk.id: chunk for chunk in write.chunks}
        new = {content_key(chunk, with_time=with_time): chunk for chunk in by_id.values()}
        # If one piece of a long line changed, all its pieces are written again, so that rows follow the text.
        lines = {chunk.start_line for key, chunk in new.items() if key not in old}
        added = [key for key, chunk in new.items() if chunk.start_line in lines]
        unchanged = new.keys() - added
        removed = [key for key in old if key not in unchanged]
        for key in removed:
            row = present.pop(key).row
            if self._added.pop(row, None) is None:
                self._removed.append(row)
        for key in added:
            self._last_row += 1
            chunk = new[key]
            self._added[self._last_row] = _Added(chunk, file, key)
            present[key] = _Present(self._last_row, chunk.start_line, chunk.embed_hash, has_vector=False)
        self._changed += len(removed) + len(added)

    # writing

    def _store_chunks(self) -> None:
        if not self._added and not self._removed:
            return
        session, generation = self._session, self._generation
        deleted = session.fetch_written(
            "DELETE FROM chunks WHERE generation = %s AND row = ANY(%s) RETURNING stems, text_words, all_words",
            [generation, self._removed],
        )
        if self._removed:
            session.execute(
                "INSERT INTO dead_rows (generation, row) SELECT %s, unnest(%s::int[])", [generation, self._removed]
            )
            self._target.vectors.remove(self._removed)
        stemmed = [
            stem_chunk(self._target.stemmer, row, added.chunk.words, added.chunk.context_words)
            for row, added in self._added.items()
        ]
        rows = [self._chunk_values(words, self._added[words.row]) for words in stemmed]
        session.copy("chunks", CHUNK_TYPES, rows)
        PostingTables(session).add(generation, stemmed, (stems for stems, *_ in deleted))
        text_words, all_words = (sum(row[at] for row in rows) - sum(row[at + 3] for row in deleted) for at in (-2, -1))
        session.execute(
            "UPDATE generations SET last_row = %s, chunks = chunks + %s, text_words = text_words + %s,"
            " all_words = all_words + %s WHERE id = %s",
            [self._last_row, len(rows) - len(deleted), text_words, all_words, generation],
        )

    def _chunk_values(self, words: StemmedChunk, added: _Added) -> tuple[Any, ...]:
        chunk = added.chunk
        return (
            self._generation,
            words.row,
            *added.file,
            chunk.start_line,
            chunk.end_line,
            chunk.hash,
            chunk.embed_hash,
            chunk.heading.encode("utf-8", "replace"),
            chunk.text.encode("utf-8", "replace"),
            chunk.timestamp_ms,
            storable_or_none(chunk.session_key),
            storable_or_none(chunk.channel),
            int(chunk.is_recalled),
            added.key,
            words.distinct(),
            len(words.text),
            len(words.text) + len(words.context),
        )

    def _store_vectors(self, writes: Sequence[FileWrite]) -> None:
        """Store the vectors that are known, of all chunks of these files that have none."""
        if self._find_code is None:
            return
        after: dict[FileKey, int] = {}
        for write in writes:
            file = (write.file.source, write.file.path)
            after[file] = min(write.after_line, after.get(file, write.after_line))
        waiting = [
            chunk
            for file, line in after.items()
            for chunk in self._present[file].values()
            if not chunk.has_vector and chunk.start_line > line
        ]
        codes = ((chunk.row, self._find_code(chunk.embed_hash)) for chunk in waiting)
        rows = [(self._generation, row, code) for row, code in codes if code]
        self._session.copy("chunk_vectors", VECTOR_COLUMNS, rows)
        self._session.copy("loose_vectors", LOOSE_COLUMNS, [row[:2] for row in rows])


def _columns(files: Iterable[FileKey]) -> tuple[list[str], list[str]]:
    """Return the sources and the paths of files."""
    files = [*files]
    return [source for source, _ in files], [path for _, path in files]


def merge_files(files: Iterable[FileRow]) -> list[FileRow]:
    """Return the last row of each file: a long transcript may be in a batch several times."""
    return [*{(file.source, file.path): file for file in files}.values()]
