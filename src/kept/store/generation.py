"""The tables that a rebuild replaces: files, their chunks with words and vectors, and names, tags and links of notes.

First the rows, then `Generation`, and the SQL condition of a filter. `note_tables` has the names, tags and links.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any

import apsw

from kept.records import PRIVATE_FOLDER, PROJECTS_FOLDER, Filter, KeyPattern, ProjectScope, Source, Viewer
from kept.sqlite import IN_ROWS, pack_rows
from kept.store.note_tables import NOTE_TABLES, NoteRow, NoteTables
from kept.store.vectors import VectorLimits, VectorTable
from kept.values import frozen

SCHEMA_VERSION = 5
"""Incremented with generation.sql: an index of another version is rebuilt."""

_MERGE_SHARE = 10
"""A merge rewrites the whole full-text index. It is done when at least one chunk in ten has changed."""

_MERGE_PAGES = 64

TABLES = ("files", "chunks", "chunks_fts", "chunks_vec", "vec_packs", "vec_dead", *NOTE_TABLES)


@frozen
class FileRow:
    """An indexed file. The fields are the columns of `files`."""

    source: Source
    path: str
    hash: str
    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int
    """Time of the last read that found this content."""
    warning: str | None = None
    mark: str | None = None
    """Checkpoint in a transcript, as JSON."""


@frozen
class NewChunk:
    """A chunk to store. The full-text index gets ``words`` and ``context_words``."""

    id: str
    start_line: int
    end_line: int
    hash: bytes
    """SHA-256 of the text."""
    embed_hash: bytes
    heading: str
    text: str
    words: str
    context_words: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None
    is_recalled: bool = False


@frozen
class FileWrite:
    """A file and its chunks, replaced together: all chunks, or those that begin after a line."""

    file: FileRow
    chunks: tuple[NewChunk, ...]
    timestamp_ms: int | None = None
    """Timestamp of all chunks if it is that of the file. None if each chunk has its own, which stays when the file's
    changes: of an utterance, of an entry in a daily note, or of a note that says when it was created."""
    after_line: int = 0
    note: NoteRow | None = None
    """Names, tags and links. None for a transcript."""


@frozen
class ChunkRow:
    """A stored chunk. The fields are columns of `chunks`, in the order of `_CHUNK_COLUMNS`."""

    row: int
    source: Source
    path: str
    start_line: int
    end_line: int
    hash: bytes
    heading: str
    text: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None
    is_recalled: int = 0
    """1 for an answer that an agent gave from memory."""


@frozen
class IndexCounts:
    files: int
    chunks: int
    vectors: int
    by_source: dict[str, dict[str, int]]


_HAS_TAG = (
    "(c.source = 'memory' AND EXISTS (SELECT 1 FROM note_tags t WHERE t.key = ? AND t.path = c.path"
    " AND c.start_line BETWEEN t.first_line AND t.last_line))"
)
_WRITTEN_BEFORE = (
    "(c.timestamp < ? OR (c.source = 'memory'"
    " AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.path = c.path AND n.dated)))"
)
_FILE_FIELDS = tuple(spec.name for spec in fields(FileRow))
_FILE_COLUMNS = ", ".join(_FILE_FIELDS)
_file_values = attrgetter(*_FILE_FIELDS)
_CHUNK_COLUMNS = (
    "row, source, path, start_line, end_line, hash, heading, text, timestamp, session_key, channel, recalled"
)


@cache
def _ddl() -> str:
    with open(os.path.join(os.path.dirname(__file__), "generation.sql"), encoding="utf-8") as file:
        return file.read()


class Generation:
    """One set of these tables: the live one (no prefix) or one being built (`next_`). Callers hold the transaction."""

    def __init__(self, db: apsw.Connection, prefix: str = "", limits: VectorLimits | None = None) -> None:
        self.db = db
        self.prefix = prefix
        self.vectors = VectorTable(db, prefix, limits)
        self.notes = NoteTables(db, prefix)

    def create(self, number: int) -> None:
        self.db.execute(_ddl().format(p=self.prefix, n=number))

    def exists(self) -> bool:
        row = self.db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (f"{self.prefix}files",)).get
        return row is not None

    def drop(self) -> None:
        for table in TABLES:
            self.db.execute(f"DROP TABLE IF EXISTS {self.prefix}{table}")

    def become_live(self) -> None:
        """Replace the live tables, inside the caller's transaction."""
        Generation(self.db).drop()
        for table in TABLES:
            self.db.execute(f"ALTER TABLE {self.prefix}{table} RENAME TO {table}")

    # files

    def file_rows(self) -> dict[tuple[str, str], FileRow]:
        query = f"SELECT {_FILE_COLUMNS} FROM {self.prefix}files"
        return {(row[0], row[1]): FileRow(*row) for row in self.db.execute(query)}

    def file_states(self) -> set[Any]:
        """Return source, path, size, mtime and ctime of each file."""
        return set(self.db.execute(f"SELECT source, path, size, mtime_ns, ctime_ns FROM {self.prefix}files"))

    def has_racy_files(self, tick_ns: int, *, but: str | None = None) -> bool:
        """Return whether a file other than ``but`` was read within a tick of the clock of its last change."""
        query = f"SELECT 1 FROM {self.prefix}files WHERE ctime_ns + ? >= checked_ns AND path IS NOT ? LIMIT 1"
        return self.db.execute(query, (tick_ns, but)).get is not None

    def note_warnings(self) -> list[tuple[str, str]]:
        """Return the path and the warning of each note that was unusual when it was indexed."""
        query = f"SELECT path, warning FROM {self.prefix}files WHERE source = 'memory' AND warning IS NOT NULL"
        return [(str(path), str(warning)) for path, warning in self.db.execute(f"{query} ORDER BY path")]

    def touch_file(self, file: FileRow, timestamp_ms: int | None) -> None:
        """Store the row of a file: new, or with the new size and times of one whose bytes are the same.

        ``timestamp_ms`` is the time of the file. It becomes that of the chunks, unless the note has its own.
        """
        marks = ", ".join("?" * len(_FILE_FIELDS))
        insert = f"INSERT OR REPLACE INTO {self.prefix}files ({_FILE_COLUMNS}) VALUES ({marks})"
        self.db.execute(insert, _file_values(file))
        if timestamp_ms is not None and self.notes.touch(file.path, timestamp_ms):
            self.db.execute(
                f"UPDATE {self.prefix}chunks SET timestamp = ? WHERE source = ? AND path = ? AND timestamp <> ?",
                (timestamp_ms, file.source, file.path, timestamp_ms),
            )

    # chunks

    def optimise(self, *, changed_chunks: int) -> None:
        """After a sync, pack new vectors, and merge the full-text index if a good part of it is new.

        A query reads every segment of that index, for each word and each row; one segment is twice as fast.
        """
        self.vectors.maintain()
        if changed_chunks * _MERGE_SHARE >= self.count_chunks():
            self._merge_words()

    def _merge_words(self) -> None:
        """Merge the full-text index into one segment, step by step.

        A step frees the pages that it has merged, and the next one writes to them. The command `optimize` would write
        a whole copy first, and leave as many pages empty.
        """
        name = f"{self.prefix}chunks_fts"
        pages = -_MERGE_PAGES  # a negative number begins a merge of everything
        while True:
            before = self.db.total_changes()
            self.db.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('merge', ?)", (pages,))
            if self.db.total_changes() - before < 2:  # nothing left to do, according to the manual of FTS5
                break
            pages = _MERGE_PAGES

    def replace_file(self, write: FileWrite) -> int:
        """Replace a file's chunks, keeping the rows of unchanged ones. Return how many were added and removed."""
        source, path = write.file.source, write.file.path
        query = f"SELECT content_key, row FROM {self.prefix}chunks WHERE source = ? AND path = ? AND start_line > ?"
        old: dict[bytes, int] = dict(self.db.execute(query, (source, path, write.after_line)))
        shared = write.timestamp_ms is not None
        by_id = {chunk.id: chunk for chunk in write.chunks}
        new = {_content_key(chunk, with_time=not shared): chunk for chunk in by_id.values()}
        # If one piece of a long line changed, all its pieces are written again, so that rows follow the text.
        lines = {chunk.start_line for key, chunk in new.items() if key not in old}
        added = [key for key, chunk in new.items() if chunk.start_line in lines]
        kept = new.keys() - added
        removed = [row for key, row in old.items() if key not in kept]
        self._delete_rows(removed)
        for key in added:
            self._insert(source, path, new[key], key)
        if write.note is not None:
            self.notes.put(path, write.note)
        self.touch_file(write.file, write.timestamp_ms)
        return len(removed) + len(added)

    def remove_file(self, source: str, path: str) -> int:
        query = f"SELECT row FROM {self.prefix}chunks WHERE source = ? AND path = ?"
        rows = [row for (row,) in self.db.execute(query, (source, path))]
        self._delete_rows(rows)
        if source == "memory":
            self.notes.remove(path)
        self.db.execute(f"DELETE FROM {self.prefix}files WHERE source = ? AND path = ?", (source, path))
        return len(rows)

    def _insert(self, source: str, path: str, chunk: NewChunk, content_key: bytes) -> None:
        self.db.execute(
            f"INSERT INTO {self.prefix}chunks (source, path, start_line, end_line, hash, embed_hash,"
            " heading, text, timestamp, session_key, channel, recalled, content_key)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                source,
                path,
                chunk.start_line,
                chunk.end_line,
                chunk.hash,
                chunk.embed_hash,
                chunk.heading,
                chunk.text,
                chunk.timestamp_ms,
                chunk.session_key,
                chunk.channel,
                int(chunk.is_recalled),
                content_key,
            ),
        )
        self.db.execute(
            f"INSERT INTO {self.prefix}chunks_fts (rowid, text, context) VALUES (?, ?, ?)",
            (self.db.last_insert_rowid(), chunk.words, chunk.context_words),
        )

    def _delete_rows(self, rows: list[int]) -> None:
        for row in rows:
            self.db.execute(f"DELETE FROM {self.prefix}chunks WHERE row = ?", (row,))
            self.db.execute(f"DELETE FROM {self.prefix}chunks_fts WHERE rowid = ?", (row,))
        self.vectors.remove(rows)

    def get_chunks(self, rows: Iterable[int]) -> dict[int, ChunkRow]:
        query = f"SELECT {_CHUNK_COLUMNS} FROM {self.prefix}chunks WHERE {IN_ROWS}"
        return {values[0]: ChunkRow(*values) for values in self.db.execute(query, (pack_rows(rows),))}

    def chunks_around(self, chunk: ChunkRow, *, lines: int) -> list[ChunkRow]:
        """Return the chunks of a file that begin within ``lines`` lines of a chunk, in order, including the chunk."""
        query = (
            f"SELECT {_CHUNK_COLUMNS} FROM {self.prefix}chunks"
            " WHERE source = ? AND path = ? AND start_line BETWEEN ? AND ? ORDER BY start_line, row"
        )
        near = (chunk.source, chunk.path, chunk.start_line - lines, chunk.end_line + lines)
        return [ChunkRow(*values) for values in self.db.execute(query, near)]

    def spans(self, source: str, path: str, first_line: int, last_line: int) -> list[tuple[int, int]]:
        """Return first and last line of each chunk that overlaps these lines and is in the full-text index."""
        query = (
            f"SELECT c.start_line, c.end_line FROM {self.prefix}chunks c"
            f" JOIN {self.prefix}chunks_fts_docsize d ON d.id = c.row"
            " WHERE c.source = ? AND c.path = ? AND c.end_line >= ? AND c.start_line <= ? ORDER BY c.start_line"
        )
        spans: list[Any] = self.db.execute(query, (source, path, first_line, last_line)).fetchall()
        return spans

    def rows_awaiting_vector(self, source: str, path: str, *, after_line: int = 0) -> list[tuple[int, bytes]]:
        """Return row and embed hash of each chunk of a file that has no vector yet."""
        rows: list[Any] = self.db.execute(
            f"SELECT c.row, c.embed_hash FROM {self.prefix}chunks c"
            f" LEFT JOIN {self.prefix}chunks_vec v ON v.row = c.row"
            " WHERE c.source = ? AND c.path = ? AND c.start_line > ? AND v.row IS NULL",
            (source, path, after_line),
        ).fetchall()
        return rows

    def files_awaiting_vectors(self) -> set[tuple[str, str]]:
        """Return the files with chunks that are found by word only."""
        return set(
            self.db.execute(
                f"SELECT DISTINCT source, path FROM {self.prefix}chunks"
                f" WHERE row NOT IN (SELECT row FROM {self.prefix}chunks_vec)"
            )
        )

    def count_chunks(self) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {self.prefix}chunks").get)

    def rows_matching(self, filters: Filter) -> list[int]:
        where, values = filter_sql(filters)
        return [row for (row,) in self.db.execute(f"SELECT row FROM {self.prefix}chunks c WHERE {where}", values)]

    def count_tags(self, filters: Filter) -> list[tuple[str, str, int]]:
        """Return key, spelling and number of notes of each tag, without those of notes that the filter hides."""
        return self.notes.count_tags(*_hidden_notes_sql(filters))

    def count_by_source(self, filters: Filter) -> dict[str, dict[str, int]]:
        """Return the numbers of files and chunks that pass a filter, by source."""
        where, values = filter_sql(filters)
        query = (
            f"SELECT source, count(DISTINCT path), count(*) FROM {self.prefix}chunks c WHERE {where} GROUP BY source"
        )
        return {source: {"files": files, "chunks": chunks} for source, files, chunks in self.db.execute(query, values)}

    def conversation_titles(self, paths: Collection[str]) -> dict[str, str]:
        """Return the titles of transcripts by path, of those that have one."""
        query = (
            f"SELECT path, json_extract(mark, '$.title') FROM {self.prefix}files"
            " WHERE source = 'sessions' AND json_valid(mark) AND path IN (SELECT value FROM json_each(?))"
        )
        rows = self.db.execute(query, (json.dumps(list(paths)),)) if paths else ()
        return {path: title for path, title in rows if title and isinstance(title, str)}

    def counts(self) -> IndexCounts:
        by_source: dict[str, dict[str, int]] = {}
        for source, files in self.db.execute(f"SELECT source, count(*) FROM {self.prefix}files GROUP BY source"):
            by_source[source] = {"files": files, "chunks": 0}
        for source, chunks in self.db.execute(f"SELECT source, count(*) FROM {self.prefix}chunks GROUP BY source"):
            by_source.setdefault(source, {"files": 0, "chunks": 0})["chunks"] = chunks
        return IndexCounts(
            files=sum(counts["files"] for counts in by_source.values()),
            chunks=sum(counts["chunks"] for counts in by_source.values()),
            vectors=self.vectors.count(),
            by_source=by_source,
        )


def _content_key(chunk: NewChunk, *, with_time: bool) -> bytes:
    """Return a hash of all that is stored for a chunk."""
    parts = (
        chunk.id,
        chunk.embed_hash.hex(),
        chunk.heading,
        chunk.session_key or "",
        chunk.channel or "",
        "recalled" if chunk.is_recalled else "",
        str(chunk.timestamp_ms) if with_time else "",
        chunk.context_words,
        chunk.words,
    )
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=16).digest()


def filter_sql(filters: Filter, *, key: str = "c.session_key") -> tuple[str, list[Any]]:
    """Return a condition on `chunks c` and its values. ``key`` is the SQL for the key of a conversation."""
    clauses: list[str] = []
    values: list[Any] = []
    if filters.sources:
        clauses.append(f"c.source IN ({', '.join('?' * len(filters.sources))})")
        values.extend(filters.sources)
    if filters.path:
        if any(character in filters.path for character in "*?["):
            clauses.append("c.path GLOB ?")
            values.append(filters.path)
        else:
            folder = filters.path.rstrip("/")
            clauses.append("(c.path = ? OR substr(c.path, 1, ?) = ?)")
            values.extend((folder, len(folder) + 1, folder + "/"))
    comparisons = (
        ("c.path = ?", filters.transcript),
        ("c.session_key = ?", filters.session_key),
        ("c.channel = ?", filters.channel),
        ("c.timestamp >= ?", filters.since_ms),
        ("c.timestamp < ?", filters.until_ms),
    )
    for clause, value in comparisons:
        if value is not None:
            clauses.append(clause)
            values.append(value)
    if filters.as_of_ms is not None:
        clauses.append(_WRITTEN_BEFORE)
        values.append(filters.as_of_ms)
    for tag in filters.tags:
        clauses.append(_HAS_TAG)
        values.append(tag)
    if filters.scope is not None:
        clause, scope_values = scope_sql(filters.scope)
        clauses.append(clause)
        values.extend(scope_values)
    if filters.viewer is not None:
        clause, viewer_values = viewer_sql(filters.viewer, key)
        clauses.append(clause)
        values.extend(viewer_values)
    return " AND ".join(clauses) or "1", values


def viewer_sql(viewer: Viewer, key: str) -> tuple[str, list[Any]]:
    """Return a condition on `c` and its values: shared notes, and notes and conversations of the viewer.

    Each part of it is a range of an index, so that no other rows are read.
    """
    notes, values = _notes_sql(viewer)
    parts = [f"(c.source = 'memory' AND {notes})"]
    for pattern in viewer.keys:
        clause, more = _key_sql(pattern, key)
        parts.append(clause)
        values += more
    return f"({' OR '.join(parts)})", values


def _key_sql(pattern: KeyPattern, key: str) -> tuple[str, list[Any]]:
    """Return a condition on the key of a conversation and its values. Only conversations have one.

    A pattern leaves the account open, so its accounts are looked up first: there are few, and each is one step in the
    index.
    """
    start, upper = pattern.start, f"{pattern.start[:-1]};"  # ';' follows ':'
    if not pattern.end and not pattern.inside:
        return f"({key} >= ? AND {key} < ?)", [start, upper]
    length = len(start)
    prefix = f"substr(k, 1, {length - 1} + instr(substr(k, {length + 1}), ':'))"
    accounts = (
        "WITH RECURSIVE a(k) AS (SELECT min(session_key) FROM chunks WHERE session_key >= ? UNION ALL"
        f" SELECT (SELECT min(session_key) FROM chunks WHERE session_key >= {prefix} || ';') FROM a WHERE k < ?)"
    )
    if pattern.end:
        select = f"{accounts} SELECT {prefix} || ? FROM a WHERE k < ?"
        return f"{key} IN ({select})", [start, upper, pattern.end, upper]
    select = (
        f"{accounts} SELECT t.session_key FROM a JOIN chunks t ON t.session_key >= {prefix} || ?"
        f" AND t.session_key < {prefix} || ? WHERE k < ?"
    )
    return f"{key} IN ({select})", [start, upper, pattern.inside, f"{pattern.inside}\U0010ffff", upper]


def _notes_sql(viewer: Viewer) -> tuple[str, list[Any]]:
    """Return a condition on the path of a note and its values: it is shared, or the viewer's."""
    start = len(PRIVATE_FOLDER) + 2
    folder = f"substr(lower(c.path), {start}, instr(substr(c.path, {start}), '/') - 1)"
    clause = f"(substr(lower(c.path), 1, {start - 1}) <> '{PRIVATE_FOLDER}/'"
    if viewer.folders:
        clause += f" OR {folder} IN ({', '.join('?' * len(viewer.folders))})"
    return f"{clause})", sorted(viewer.folders)


def _hidden_notes_sql(filters: Filter) -> tuple[str, list[Any]]:
    """Return a condition on the path of a note and its values, for what a project and a viewer do not see."""
    clauses = ["1"]
    values: list[Any] = []
    if filters.scope is not None:
        clause, values = scope_sql(filters.scope)
        clauses.append(clause)
    if filters.viewer is not None:
        clause, more = _notes_sql(filters.viewer)
        clauses.append(clause)
        values = [*values, *more]
    return " AND ".join(clauses), values


def scope_sql(scope: ProjectScope) -> tuple[str, list[Any]]:
    """Return a condition on the path of `c` and its values: nothing of another project."""
    start = len(PROJECTS_FOLDER) + 2
    clause = (
        f"(substr(lower(c.path), 1, {start - 1}) <> '{PROJECTS_FOLDER}/' OR instr(substr(c.path, {start}), '/') = 0"
        f" OR substr(c.path, {start}, ?) = ?)"
    )
    values: list[Any] = [len(scope.name) + 1, f"{scope.name}/"]
    if scope.hidden_transcripts:
        import json

        clause += " AND c.path NOT IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(sorted(scope.hidden_transcripts)))
    return clause, values
