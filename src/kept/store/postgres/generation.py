"""Files and chunks of one generation: the live one, or one that a rebuild fills."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kept.records import Filter
from kept.store.postgres.file_list import PostgresLists
from kept.store.postgres.file_writer import FileKey, FileWriter, FindCode, merge_files
from kept.store.postgres.filter_sql import filter_sql, hidden_notes_sql
from kept.store.postgres.index_session import IndexSession
from kept.store.postgres.note_tables import NOTE_TABLES, PostgresNotes
from kept.store.postgres.posting_tables import PostingTables
from kept.store.postgres.stems import Stemmer
from kept.store.postgres.storable import storable, storable_or_none
from kept.store.postgres.vectors import PostgresVectors
from kept.store.rows import ChunkRow, FileRow, FileWrite, IndexCounts
from kept.store.vector_scan import VectorLimits

TABLES = (
    "index_files",
    "chunks",
    "postings",
    "segments",
    "dead_rows",
    "chunk_vectors",
    "loose_vectors",
    "vector_packs",
    *NOTE_TABLES,
)
_FILE_COLUMNS = "source, path, hash, size, mtime_ns, ctime_ns, checked_ns, warning, mark"
_CHUNK_COLUMNS = (
    "row, source, path, start_line, end_line, hash, heading, text, timestamp, session_key, channel, recalled"
)
_OWN_FILES = "generation = %s AND host IN ('', %s)"
"""Condition on the files that this machine sees. Others index theirs."""


class PostgresGeneration:
    """One generation. Callers hold the transaction. Without a number, it is the one that is live."""

    def __init__(
        self,
        session: IndexSession,
        stemmer: Stemmer,
        number: int | None = None,
        limits: VectorLimits | None = None,
    ) -> None:
        self.session = session
        self.stemmer = stemmer
        self._number = number
        self.host = socket.gethostname()
        self.vectors = PostgresVectors(session, lambda: self.number, limits)
        self.notes = PostgresNotes(session, lambda: self.number)
        self.lists = PostgresLists(session, lambda: self.number)

    @property
    def number(self) -> int:
        return self.session.live if self._number is None else self._number

    # files

    def file_rows(self) -> dict[tuple[str, str], FileRow]:
        query = f"SELECT {_FILE_COLUMNS} FROM index_files WHERE {_OWN_FILES} ORDER BY source, path"
        return {(row[0], row[1]): FileRow(*row) for row in self.session.fetch(query, [self.number, self.host])}

    def file_states(self) -> set[Any]:
        """Return source, path, size, mtime and ctime of each file."""
        query = f"SELECT source, path, size, mtime_ns, ctime_ns FROM index_files WHERE {_OWN_FILES}"
        return set(self.session.fetch(query, [self.number, self.host]))

    def has_racy_files(self, tick_ns: int, *, but: str | None = None) -> bool:
        """Return whether a file other than ``but`` was read within a tick of the clock of its last change."""
        query = (
            f"SELECT 1 FROM index_files WHERE {_OWN_FILES} AND ctime_ns + %s >= checked_ns"
            " AND path IS DISTINCT FROM %s LIMIT 1"
        )
        return bool(self.session.fetch(query, [self.number, self.host, tick_ns, storable_or_none(but)]))

    def note_warnings(self) -> list[tuple[str, str]]:
        """Return the path and the warning of each note that was unusual when it was indexed."""
        query = (
            "SELECT path, warning FROM index_files WHERE generation = %s AND source = 'memory'"
            " AND warning IS NOT NULL ORDER BY path"
        )
        return self.session.fetch(query, [self.number])

    def touch_file(self, file: FileRow, timestamp_ms: int | None) -> None:
        """Store the row of a file: new, or with the new size and times of one whose bytes are the same."""
        self.put_files([file])
        if timestamp_ms is not None:
            self.touch_times({(file.source, file.path): timestamp_ms})

    def put_files(self, files: Sequence[FileRow]) -> None:
        files = merge_files(files)
        columns = [*zip(*((*_file_values(file), self._host_of(file)) for file in files), strict=True)]
        self.session.execute(
            f"INSERT INTO index_files (generation, {_FILE_COLUMNS}, host)"
            " SELECT %s, * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],"
            " %s::bigint[], %s::text[], %s::text[], %s::text[])"
            " ON CONFLICT (generation, source, path) DO UPDATE SET hash = excluded.hash, size = excluded.size,"
            " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns, checked_ns = excluded.checked_ns,"
            " warning = excluded.warning, mark = excluded.mark, host = excluded.host",
            [self.number, *map(list, columns)],
        )

    def _host_of(self, file: FileRow) -> str:
        return "" if file.source == "memory" else self.host

    def touch_times(self, times: Mapping[FileKey, int]) -> None:
        """Store the times of files. They become those of their chunks, unless a note has its own."""
        if not times:
            return
        values = [
            [source for source, _ in times],
            [path for _, path in times],
            [*times.values()],
            self.number,
        ]
        new = "unnest(%s::text[], %s::text[], %s::bigint[]) v(source, path, moment)"
        self.session.execute(
            f"UPDATE notes n SET timestamp = v.moment FROM {new}"
            " WHERE n.generation = %s AND n.path = v.path AND NOT n.dated AND n.timestamp <> v.moment",
            values,
        )
        self.session.execute(
            f"UPDATE chunks c SET timestamp = v.moment FROM {new}"
            " WHERE c.generation = %s AND c.source = v.source AND c.path = v.path AND c.timestamp <> v.moment"
            " AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.generation = c.generation AND n.path = c.path AND n.dated)",
            values,
        )

    def replace_file(self, write: FileWrite) -> int:
        """Replace a file's chunks, keeping the rows of unchanged ones. Return how many were added and removed."""
        return self.replace_files([write])

    def replace_files(self, writes: Sequence[FileWrite], find_code: FindCode | None = None) -> int:
        """Do so for a batch of files, with the vectors of chunks whose codes are found by the hash of their text."""
        return FileWriter(self, find_code).write(writes) if writes else 0

    def remove_file(self, source: str, path: str) -> int:
        return self.remove_files([(source, path)])

    def remove_files(self, files: Sequence[FileKey]) -> int:
        return FileWriter(self, None).remove(files) if files else 0

    def conversation_titles(self, paths: Collection[str]) -> dict[str, str]:
        """Return the titles of transcripts by path, of those that have one."""
        query = (
            "SELECT path, mark FROM index_files WHERE generation = %s AND source = 'sessions' AND path = ANY(%s)"
            " AND mark IS NOT NULL"
        )
        rows = self.session.fetch(query, [self.number, [*paths]]) if paths else []
        titles = ((path, _read_title(mark)) for path, mark in rows)
        return {path: title for path, title in titles if title}

    # chunks

    def optimise(self, *, changed_chunks: int) -> None:
        """After a sync, pack new vectors, and merge the words if there are many segments or a good part is new."""
        postings, generation = PostingTables(self.session), self.number
        dead = postings.count_dead(generation)
        postings.merge(generation, changed_chunks=changed_chunks, chunks=self.count_chunks())
        if dead and not postings.count_dead(generation):
            self.vectors.repack()
        else:
            self.vectors.maintain()

    def purge(self) -> None:
        """Drop what is left of removed chunks."""
        PostingTables(self.session).purge(self.number)
        self.vectors.repack()

    def get_chunks(self, rows: Iterable[int]) -> dict[int, ChunkRow]:
        query = f"SELECT {_CHUNK_COLUMNS} FROM chunks WHERE generation = %s AND row = ANY(%s) ORDER BY row"
        return {values[0]: _chunk_row(values) for values in self.session.fetch(query, [self.number, [*rows]])}

    def chunks_around(self, chunk: ChunkRow, *, lines: int) -> list[ChunkRow]:
        """Return the chunks of a file that begin within ``lines`` lines of a chunk, in order, including the chunk."""
        query = (
            f"SELECT {_CHUNK_COLUMNS} FROM chunks WHERE generation = %s AND source = %s AND path = %s"
            " AND start_line BETWEEN %s AND %s ORDER BY start_line, row"
        )
        near = (chunk.source, chunk.path, chunk.start_line - lines, chunk.end_line + lines)
        return [_chunk_row(values) for values in self.session.fetch(query, [self.number, *near])]

    def spans(self, source: str, path: str, first_line: int, last_line: int) -> list[tuple[int, int]]:
        """Return first and last line of each chunk that overlaps these lines."""
        query = (
            "SELECT start_line, end_line FROM chunks WHERE generation = %s AND source = %s AND path = %s"
            " AND end_line >= %s AND start_line <= %s ORDER BY start_line"
        )
        return self.session.fetch(query, [self.number, source, storable(path), first_line, last_line])

    def rows_awaiting_vector(self, source: str, path: str, *, after_line: int = 0) -> list[tuple[int, bytes]]:
        """Return row and embed hash of each chunk of a file that has no vector yet."""
        query = (
            "SELECT c.row, c.embed_hash FROM chunks c LEFT JOIN chunk_vectors v USING (generation, row)"
            " WHERE c.generation = %s AND c.source = %s AND c.path = %s AND c.start_line > %s AND v.row IS NULL"
            " ORDER BY c.row"
        )
        return self.session.fetch(query, [self.number, source, path, after_line])

    def files_awaiting_vectors(self) -> set[tuple[str, str]]:
        """Return the files with chunks that are found by word only, of those that this machine sees."""
        query = (
            "SELECT DISTINCT c.source, c.path FROM chunks c JOIN index_files f USING (generation, source, path)"
            " WHERE c.generation = %s AND f.host IN ('', %s) AND NOT EXISTS"
            " (SELECT 1 FROM chunk_vectors v WHERE v.generation = c.generation AND v.row = c.row)"
        )
        return set(self.session.fetch(query, [self.number, self.host]))

    def count_chunks(self) -> int:
        return int(self.session.fetch_value("SELECT chunks FROM generations WHERE id = %s", [self.number]) or 0)

    def rows_matching(self, filters: Filter) -> list[int]:
        where, values = filter_sql(filters)
        query = f"SELECT row FROM chunks c WHERE c.generation = %s AND {where}"
        return [row for (row,) in self.session.fetch(query, [self.number, *values])]

    def count_tags(self, filters: Filter) -> list[tuple[str, str, int]]:
        """Return key, spelling and number of notes of each tag, without those of notes that the filter hides."""
        return self.notes.count_tags(*hidden_notes_sql(filters))

    def count_by_source(self, filters: Filter) -> dict[str, dict[str, int]]:
        """Return the numbers of files and chunks that pass a filter, by source."""
        where, values = filter_sql(filters)
        query = (
            "SELECT source, count(DISTINCT path), count(*) FROM chunks c"
            f" WHERE c.generation = %s AND {where} GROUP BY source ORDER BY source"
        )
        rows = self.session.fetch(query, [self.number, *values])
        return {source: {"files": files, "chunks": chunks} for source, files, chunks in rows}

    def counts(self) -> IndexCounts:
        by_source: dict[str, dict[str, int]] = {}
        for table, noun in (("index_files", "files"), ("chunks", "chunks")):
            query = f"SELECT source, count(*) FROM {table} WHERE generation = %s GROUP BY source ORDER BY source"
            for source, count in self.session.fetch(query, [self.number]):
                by_source.setdefault(source, {"files": 0, "chunks": 0})[noun] = count
        return IndexCounts(
            files=sum(counts["files"] for counts in by_source.values()),
            chunks=sum(counts["chunks"] for counts in by_source.values()),
            vectors=self.vectors.count(),
            by_source=by_source,
        )


def _file_values(file: FileRow) -> tuple[Any, ...]:
    return (
        file.source,
        file.path,
        file.hash,
        file.size,
        file.mtime_ns,
        file.ctime_ns,
        file.checked_ns,
        storable_or_none(file.warning),
        storable_or_none(file.mark),
    )


def _chunk_row(values: Sequence[Any]) -> ChunkRow:
    row, source, path, start_line, end_line, hash_, heading, text, *rest = values
    return ChunkRow(row, source, path, start_line, end_line, hash_, heading.decode(), text.decode(), *rest)


def _read_title(mark: str) -> str | None:
    try:
        title = json.loads(mark).get("title")
    except (ValueError, AttributeError):
        return None
    return title if isinstance(title, str) else None
