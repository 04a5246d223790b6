"""The tables that a rebuild replaces: files, their chunks, and the words and vectors of these."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from typing import Any

import apsw

from kept.records import Filter
from kept.store.connection import IN_ROWS, packed_rows
from kept.store.rows import ChunkRow, Counts, FileRow, FileWrite, NewChunk
from kept.store.vectors import VectorTable

SCHEMA_VERSION = 2
"""Raised with generation.sql: an index of another version is rebuilt."""

_MERGE_SHARE = 10
"""A merge rewrites the whole full-text index, which one tenth of the chunks is worth."""

TABLES = ("files", "chunks", "chunks_fts", "chunks_vec", "vec_packs", "vec_dead")


@cache
def _ddl() -> str:
    with open(os.path.join(os.path.dirname(__file__), "generation.sql"), encoding="utf-8") as file:
        return file.read()


class Generation:
    """One set of these tables, live (no prefix) or being built (`next_`). Callers hold the transaction."""

    def __init__(self, db: apsw.Connection, prefix: str = "") -> None:
        self.db = db
        self.prefix = prefix
        self.vectors = VectorTable(db, prefix)

    def create(self, number: int) -> None:
        self.db.execute(_ddl().format(p=self.prefix, n=number))

    def exists(self) -> bool:
        found = self.db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (f"{self.prefix}files",)).get
        return found is not None

    def drop(self) -> None:
        for table in TABLES:
            self.db.execute(f"DROP TABLE IF EXISTS {self.prefix}{table}")

    def become_live(self) -> None:
        """Takes the place of the live tables, inside the caller's transaction."""
        Generation(self.db).drop()
        for table in TABLES:
            self.db.execute(f"ALTER TABLE {self.prefix}{table} RENAME TO {table}")

    # files

    def file_rows(self) -> dict[tuple[str, str], FileRow]:
        query = (
            f"SELECT source, path, hash, size, mtime_ns, ctime_ns, checked_ns, warning, mark FROM {self.prefix}files"
        )
        return {(row[0], row[1]): FileRow(*row) for row in self.db.execute(query)}

    def note_warnings(self) -> list[tuple[str, str]]:
        """What was unusual about a note when it was indexed: its path and the reason."""
        query = f"SELECT path, warning FROM {self.prefix}files WHERE source = 'memory' AND warning IS NOT NULL"
        return [(str(path), str(warning)) for path, warning in self.db.execute(f"{query} ORDER BY path")]

    def put_file(self, file: FileRow) -> None:
        self.db.execute(
            f"INSERT OR REPLACE INTO {self.prefix}files"
            " (source, path, hash, size, mtime_ns, ctime_ns, checked_ns, warning, mark)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                file.source,
                file.path,
                file.hash,
                file.size,
                file.mtime_ns,
                file.ctime_ns,
                file.checked_ns,
                file.warning,
                file.mark,
            ),
        )

    def touch_file(self, file: FileRow, timestamp_ms: int | None) -> None:
        """The bytes are the same, only the file's state is not."""
        self.put_file(file)
        if timestamp_ms is not None:
            self.db.execute(
                f"UPDATE {self.prefix}chunks SET timestamp = ? WHERE source = ? AND path = ? AND timestamp <> ?",
                (timestamp_ms, file.source, file.path, timestamp_ms),
            )

    # chunks

    def settle(self, *, changed_chunks: int) -> None:
        """After a sync: packs what is not packed, and merges the full-text index where a good part of it is new.

        A query looks into every segment of that index, for each word and each row; one segment is twice as fast.
        """
        self.vectors.maintain()
        if changed_chunks * _MERGE_SHARE >= self.count_chunks():
            name = f"{self.prefix}chunks_fts"
            self.db.execute(f"INSERT INTO {name} ({name}) VALUES ('optimize')")

    def replace_file(self, write: FileWrite) -> int:
        """Swaps a file's chunks. What stayed the same keeps its row. How many came and went."""
        source, path = write.file.key
        query = f"SELECT id, rest_hash, row FROM {self.prefix}chunks WHERE source = ? AND path = ? AND start_line > ?"
        old = {(id_, rest): row for id_, rest, row in self.db.execute(query, (source, path, write.after_line))}
        shared = write.timestamp_ms is not None
        by_id = {chunk.id: chunk for chunk in write.chunks}
        new = {(id_, _rest_hash(chunk, with_time=not shared)): chunk for id_, chunk in by_id.items()}
        gone = [row for key, row in old.items() if key not in new]
        self._delete_rows(gone)
        added = [key for key in new if key not in old]
        for key in added:
            self._insert(source, path, new[key], key[1])
        self.touch_file(write.file, write.timestamp_ms)
        return len(gone) + len(added)

    def remove_file(self, source: str, path: str) -> int:
        query = f"SELECT row FROM {self.prefix}chunks WHERE source = ? AND path = ?"
        rows = [row for (row,) in self.db.execute(query, (source, path))]
        self._delete_rows(rows)
        self.db.execute(f"DELETE FROM {self.prefix}files WHERE source = ? AND path = ?", (source, path))
        return len(rows)

    def _insert(self, source: str, path: str, chunk: NewChunk, rest_hash: bytes) -> None:
        self.db.execute(
            f"INSERT INTO {self.prefix}chunks (id, source, path, start_line, end_line, hash, embed_hash, model,"
            " heading, text, timestamp, session_key, channel, rest_hash)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                chunk.id,
                source,
                path,
                chunk.start_line,
                chunk.end_line,
                chunk.hash,
                chunk.embed_hash,
                chunk.model,
                chunk.heading,
                chunk.text,
                chunk.timestamp_ms,
                chunk.session_key,
                chunk.channel,
                rest_hash,
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
        query = (
            "SELECT row, source, path, start_line, end_line, hash, heading, text, timestamp, session_key, channel"
            f" FROM {self.prefix}chunks WHERE {IN_ROWS}"
        )
        return {values[0]: ChunkRow(*values) for values in self.db.execute(query, (packed_rows(rows),))}

    def chunks_around(self, chunk: ChunkRow, *, lines: int) -> list[ChunkRow]:
        """The chunks of a file that begin within so many lines of one, in order, itself among them."""
        query = (
            "SELECT row, source, path, start_line, end_line, hash, heading, text, timestamp, session_key, channel"
            f" FROM {self.prefix}chunks WHERE source = ? AND path = ? AND start_line BETWEEN ? AND ?"
            " ORDER BY start_line, row"
        )
        near = (chunk.source, chunk.path, chunk.start_line - lines, chunk.end_line + lines)
        return [ChunkRow(*values) for values in self.db.execute(query, near)]

    def spans(self, source: str, path: str, first_line: int, last_line: int) -> list[tuple[int, int]]:
        """The lines of a file's chunks that touch these lines, and that the full-text index knows."""
        query = (
            f"SELECT c.start_line, c.end_line FROM {self.prefix}chunks c"
            f" JOIN {self.prefix}chunks_fts_docsize d ON d.id = c.row"
            " WHERE c.source = ? AND c.path = ? AND c.end_line >= ? AND c.start_line <= ? ORDER BY c.start_line"
        )
        found: list[Any] = self.db.execute(query, (source, path, first_line, last_line)).fetchall()
        return found

    def rows_awaiting_vector(self, source: str, path: str, *, after_line: int = 0) -> list[tuple[int, bytes]]:
        """A file's chunks that have no vector yet: row, and the hash of what is to be embedded."""
        found: list[Any] = self.db.execute(
            f"SELECT c.row, c.embed_hash FROM {self.prefix}chunks c"
            f" LEFT JOIN {self.prefix}chunks_vec v ON v.row = c.row"
            " WHERE c.source = ? AND c.path = ? AND c.start_line > ? AND v.row IS NULL",
            (source, path, after_line),
        ).fetchall()
        return found

    def files_awaiting_vectors(self) -> set[tuple[str, str]]:
        """Files with chunks that are found by word only."""
        return set(
            self.db.execute(
                f"SELECT DISTINCT source, path FROM {self.prefix}chunks"
                f" WHERE row NOT IN (SELECT row FROM {self.prefix}chunks_vec)"
            )
        )

    def count_awaiting_vectors(self) -> int:
        return self.count_chunks() - self.vectors.count()

    def count_chunks(self) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {self.prefix}chunks").get)

    def rows_matching(self, filters: Filter) -> list[int]:
        where, values = filter_sql(filters)
        return [row for (row,) in self.db.execute(f"SELECT row FROM {self.prefix}chunks c WHERE {where}", values)]

    def counts(self) -> Counts:
        by_source: dict[str, dict[str, int]] = {}
        for source, files in self.db.execute(f"SELECT source, count(*) FROM {self.prefix}files GROUP BY source"):
            by_source[source] = {"files": files, "chunks": 0}
        for source, chunks in self.db.execute(f"SELECT source, count(*) FROM {self.prefix}chunks GROUP BY source"):
            by_source.setdefault(source, {"files": 0, "chunks": 0})["chunks"] = chunks
        return Counts(
            files=sum(one["files"] for one in by_source.values()),
            chunks=sum(one["chunks"] for one in by_source.values()),
            vectors=self.vectors.count(),
            by_source=by_source,
        )


def _rest_hash(chunk: NewChunk, *, with_time: bool) -> bytes:
    told = (
        chunk.embed_hash.hex(),
        chunk.heading,
        chunk.session_key or "",
        chunk.channel or "",
        str(chunk.timestamp_ms) if with_time else "",
        chunk.context_words,
    )
    return hashlib.blake2b("\n".join(told).encode("utf-8", "replace"), digest_size=16).digest()


def filter_sql(filters: Filter) -> tuple[str, list[Any]]:
    """A condition on `chunks c`."""
    clauses: list[str] = []
    values: list[Any] = []
    if filters.sources:
        clauses.append(f"c.source IN ({', '.join('?' * len(filters.sources))})")
        values.extend(filters.sources)
    if filters.path:
        if any(sign in filters.path for sign in "*?["):
            clauses.append("c.path GLOB ?")
            values.append(filters.path)
        else:
            folder = filters.path.rstrip("/")
            clauses.append("(c.path = ? OR substr(c.path, 1, ?) = ?)")
            values.extend((folder, len(folder) + 1, folder + "/"))
    if filters.session_key is not None:
        clauses.append("c.session_key = ?")
        values.append(filters.session_key)
    if filters.channel is not None:
        clauses.append("c.channel = ?")
        values.append(filters.channel)
    if filters.since_ms is not None:
        clauses.append("c.timestamp >= ?")
        values.append(filters.since_ms)
    if filters.until_ms is not None:
        clauses.append("c.timestamp < ?")
        values.append(filters.until_ms)
    return " AND ".join(clauses) or "1", values
