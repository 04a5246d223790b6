"""The tables that a rebuild replaces: files, their chunks with words and vectors, and names, tags and links of notes.

`rows` has the names, tags and links, `file_list` lists the files, `filter_sql` has the condition of a filter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import apsw

from kept.base.records import Filter
from kept.base.sqlite import IN_ROWS, pack_rows
from kept.index.sqlite.filter_sql import filter_sql
from kept.index.sqlite.rows import (
    NOTE_TABLES,
    ChunkRow,
    FileRow,
    FileWrite,
    IndexCounts,
    NoteTables,
    plan_chunks,
    text_hash,
)
from kept.index.sqlite.vectors import VectorTable

if TYPE_CHECKING:
    from kept.index.sqlite.file_list import FileLists

# A merge rewrites the whole full-text index. It is done when at least one chunk in ten has changed.
_MERGE_SHARE = 10

TABLES = ("files", "chunks", "chunks_fts", "chunks_vec", *NOTE_TABLES)


_FILE_FIELDS = tuple(spec.name for spec in fields(FileRow))
_FILE_COLUMNS = ", ".join(_FILE_FIELDS)
_file_values = attrgetter(*_FILE_FIELDS)
_NEW_COLUMNS = (
    "source, path, content_key, hash, embed_hash, start_line, end_line, heading, text, session_key, channel, timestamp,"
    " recalled"
)
_new_values = attrgetter(
    "start_line", "end_line", "heading", "text", "session_key", "channel", "timestamp_ms", "is_recalled"
)
_CHUNK_COLUMNS = (
    "path, start_line, end_line, row, source, hash, heading, text, timestamp, session_key, channel, recalled"
)


class Generation:
    """One set of these tables: the live one (no prefix) or one being built (`next_`). Callers hold the transaction."""

    def __init__(self, db: apsw.Connection, prefix: str = "") -> None:
        self.db = db
        self.prefix = prefix
        self.vectors = VectorTable(db, prefix)
        self.notes = NoteTables(db, prefix)
        self.new_texts: list[str] = []
        """Words of the chunks that were written in this transaction."""

    @cached_property
    def lists(self) -> FileLists:
        from kept.index.sqlite.file_list import FileLists  # most searches do not need it

        return FileLists(self.db, self.prefix)

    def create(self, number: int) -> None:
        with open(os.path.join(os.path.dirname(__file__), "generation.sql"), encoding="utf-8") as file:
            self.db.execute(file.read().format(p=self.prefix, n=number))

    def drop(self) -> None:
        for table in TABLES:
            self.db.execute(f"DROP TABLE IF EXISTS {self.prefix}{table}")

    def become_live(self) -> None:
        """Replace the live tables, inside the caller's transaction."""
        Generation(self.db).drop()
        for table in TABLES:
            self.db.execute(f"ALTER TABLE {self.prefix}{table} RENAME TO {table}")

    # files

    def file_rows(self, only: Iterable[tuple[str, str]] | None = None) -> dict[tuple[str, str], FileRow]:
        """Return the rows of all files, or of some, by source and path."""
        query = f"SELECT {_FILE_COLUMNS} FROM {self.prefix}files"
        if only is None:
            return {(row[0], row[1]): FileRow(*row) for row in self.db.execute(query)}
        rows = (self.db.execute(f"{query} WHERE source = ? AND path = ?", key).fetchone() for key in only)
        return {(row[0], row[1]): FileRow(*row) for row in rows if row}

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
        """Merge the full-text index if a good part of it is new.

        A query reads every segment of that index, for each word and each row; one segment is twice as fast.
        """
        if changed_chunks * _MERGE_SHARE >= self.count_chunks():
            name = f"{self.prefix}chunks_fts"
            self.db.execute(f"INSERT INTO {name} ({name}) VALUES ('optimize')")

    def replace_files(
        self, writes: Iterable[FileWrite], find_code: Callable[[bytes], bytes | None] | None = None
    ) -> int:
        """Replace the chunks of files, keeping the rows of unchanged ones. Return how many were added and removed.

        ``find_code`` returns the code of a text's vector by its hash, for chunks that have none yet.
        """
        return sum(self._replace_file(write, find_code) for write in writes)

    def _replace_file(self, write: FileWrite, find_code: Callable[[bytes], bytes | None] | None) -> int:
        source, path = write.file.source, write.file.path
        query = f"SELECT content_key, row FROM {self.prefix}chunks WHERE source = ? AND path = ? AND start_line > ?"
        old: dict[bytes, int] = dict(self.db.execute(query, (source, path, write.after_line)))
        removed, added = plan_chunks(old, write)
        if removed:
            self._delete_rows(removed)
        # Row by row rather than `executemany`: the full-text index needs the number that each row got.
        for key, chunk in added:
            values = (source, path, key, text_hash(chunk.text), text_hash(chunk.embed_text), *_new_values(chunk))
            marks = ", ".join("?" * len(values))
            self.db.execute(f"INSERT INTO {self.prefix}chunks ({_NEW_COLUMNS}) VALUES ({marks})", values)
            self.db.execute(
                f"INSERT INTO {self.prefix}chunks_fts (rowid, text, context) VALUES (?, ?, ?)",
                (self.db.last_insert_rowid(), chunk.words, chunk.context_words),
            )
            if not self.prefix:  # searches read no words of tables that are being built
                self.new_texts += (chunk.words, chunk.context_words)
        if write.note is not None:
            self.notes.put(path, write.note)
        self.touch_file(write.file, write.timestamp_ms)
        if find_code is not None:
            waiting = self.db.execute(
                f"SELECT c.row, c.embed_hash FROM {self.prefix}chunks c"
                f" LEFT JOIN {self.prefix}chunks_vec v ON v.row = c.row"
                " WHERE c.source = ? AND c.path = ? AND c.start_line > ? AND v.row IS NULL",
                (source, path, write.after_line),
            )
            codes = [(row, find_code(key)) for row, key in waiting]
            self.vectors.put([(row, code) for row, code in codes if code is not None])
        return len(removed) + len(added)

    def remove_file(self, source: str, path: str) -> int:
        query = f"SELECT row FROM {self.prefix}chunks WHERE source = ? AND path = ?"
        rows = [row for (row,) in self.db.execute(query, (source, path))]
        self._delete_rows(rows)
        if source == "memory":
            self.notes.remove(path)
        self.db.execute(f"DELETE FROM {self.prefix}files WHERE source = ? AND path = ?", (source, path))
        return len(rows)

    def _delete_rows(self, rows: list[int]) -> None:
        for row in rows:
            self.db.execute(f"DELETE FROM {self.prefix}chunks WHERE row = ?", (row,))
            self.db.execute(f"DELETE FROM {self.prefix}chunks_fts WHERE rowid = ?", (row,))
        self.vectors.remove(rows)

    def get_chunks(self, rows: Iterable[int]) -> dict[int, ChunkRow]:
        query = f"SELECT {_CHUNK_COLUMNS} FROM {self.prefix}chunks WHERE {IN_ROWS}"
        chunks = (ChunkRow(*values) for values in self.db.execute(query, (pack_rows(rows),)))
        return {chunk.row: chunk for chunk in chunks}

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

    def find_codes(self, source: str, path: str) -> dict[bytes, bytes]:
        """Return the codes of the vectors of a file's chunks, by embed hash."""
        query = (
            f"SELECT c.embed_hash, v.code FROM {self.prefix}chunks c JOIN {self.prefix}chunks_vec v ON v.row = c.row"
            " WHERE c.source = ? AND c.path = ?"
        )
        return dict(self.db.execute(query, (source, path)))

    def files_awaiting_vectors(self) -> set[tuple[str, str]]:
        """Return the files with chunks that are found by word only."""
        query = (
            f"SELECT source, path FROM {self.prefix}chunks WHERE row NOT IN (SELECT row FROM {self.prefix}chunks_vec)"
        )
        return set(self.db.execute(query))

    def count_chunks(self) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {self.prefix}chunks").get)

    def rows_matching(self, filters: Filter) -> list[int]:
        where, values = filter_sql(filters)
        return [row for (row,) in self.db.execute(f"SELECT row FROM {self.prefix}chunks c WHERE {where}", values)]

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
