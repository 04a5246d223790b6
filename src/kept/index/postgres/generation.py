"""One generation of the index of a workspace: its files, chunks, stems and vectors, keyed by `space`.

All writing is done inside `PostgresIndex.writing`, which is one transaction. Only one process at a time indexes a
workspace, so the counts of stems and the totals never have two writers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kept.base.records import Filter
from kept.base.values import frozen
from kept.index.postgres.filter_sql import filter_sql
from kept.index.postgres.notes import PostgresFileLists, PostgresNotes
from kept.index.postgres.stems import stems_of
from kept.index.postgres.vectors import PostgresVectors
from kept.index.sqlite.rows import (
    ChunkRow,
    FileRow,
    FileWrite,
    IndexCounts,
    NewChunk,
    NoteRow,
    link_key,
    plan_chunks,
    text_hash,
)

if TYPE_CHECKING:
    from kept.index.postgres.index import PostgresIndex

_FILE_FIELDS = tuple(spec.name for spec in fields(FileRow))
_file_values = attrgetter(*_FILE_FIELDS)
_link_values = attrgetter("target", "heading", "label", "is_embed", "is_path")
CHUNK_COLUMNS = (
    "c.path, c.start_line, c.end_line, c.row, c.source, c.hash, c.heading, c.text, c.timestamp, c.session_key,"
    " c.channel, c.recalled"
)
_COPY_CHUNKS = (
    "COPY kept.chunks (row, space, source, path, start_line, end_line, hash, embed_hash, heading, text, timestamp,"
    " session_key, channel, recalled, content_key, stems, in_text, in_context, words, context) FROM STDIN"
)
_PUT_FILE = (
    f"INSERT INTO kept.files (space, {', '.join(_FILE_FIELDS)})"
    f" VALUES (%(space)s, {', '.join(f'%({name})s' for name in _FILE_FIELDS)}) ON CONFLICT (space, source, path)"
    f" DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _FILE_FIELDS[2:])}"
)
_TOUCH = (
    "WITH n AS (UPDATE kept.notes SET timestamp = %(ms)s WHERE space = %(space)s AND path = %(path)s AND NOT dated"
    " RETURNING path) UPDATE kept.chunks c SET timestamp = %(ms)s FROM n WHERE c.space = %(space)s"
    " AND c.source = 'memory' AND c.path = n.path AND c.timestamp <> %(ms)s"
)
_DELETE_CHUNKS = (
    "WITH gone AS (DELETE FROM kept.chunks WHERE space = %(space)s AND row = ANY(%(rows)s) RETURNING stems, words,"
    " context), fewer AS (SELECT s.id, count(*) AS docs FROM gone, unnest(stems) s (id) GROUP BY s.id),"
    " counted AS (UPDATE kept.stems s SET docs = s.docs - f.docs FROM fewer f WHERE s.id = f.id)"
    " UPDATE kept.spaces SET chunks = chunks - (SELECT count(*) FROM gone),"
    " text_words = text_words - (SELECT coalesce(sum(cardinality(words)), 0) FROM gone),"
    " all_words = all_words - (SELECT coalesce(sum(cardinality(words) + cardinality(context)), 0) FROM gone)"
    " WHERE id = %(space)s"
)
# A column of text cannot have it.
_NO_NUL = str.maketrans({"\0": "\ufffd"})


@frozen
class _Added:
    """A chunk to insert, with the stems of its text and its context."""

    write: FileWrite
    chunk: NewChunk
    key: bytes
    text: list[str]
    context: list[str]


class PostgresGeneration:
    def __init__(self, index: PostgresIndex, space: int | None = None) -> None:
        """Without a ``space``, it is the live one."""
        self.index, self._own_space = index, space
        self.notes = PostgresNotes(self)
        self.lists = PostgresFileLists(self)
        self.vectors = PostgresVectors(self)

    @property
    def space(self) -> int:
        return self.index.state.space if self._own_space is None else self._own_space

    def run(self, query: str, **values: Any) -> list[Any]:
        """Run a statement in which `space` is this one."""
        return self.index.run(query, space=self.space, **values)

    # files

    def file_rows(self, only: Iterable[tuple[str, str]] | None = None) -> dict[tuple[str, str], FileRow]:
        """Return the rows of all files, or of some, by source and path."""
        query = f"SELECT {', '.join(_FILE_FIELDS)} FROM kept.files WHERE space = %(space)s"
        keys = list(only or ())
        if only is not None:
            query += " AND (source, path) IN (SELECT * FROM unnest(%(sources)s::text[], %(paths)s::text[]))"
        rows = self.run(query, sources=[key[0] for key in keys], paths=[key[1] for key in keys])
        return {(row[0], row[1]): FileRow(*row) for row in rows}

    def file_states(self) -> set[Any]:
        query = "SELECT source, path, size, mtime_ns, ctime_ns FROM kept.files WHERE space = %(space)s"
        return set(self.run(query))

    def has_racy_files(self, tick_ns: int, *, but: str | None = None) -> bool:
        """Return False: a document in a database has another state after every change."""
        return False

    def note_warnings(self) -> list[tuple[str, str]]:
        where = "space = %(space)s AND source = 'memory' AND warning IS NOT NULL"
        return self.run(f"SELECT path, warning FROM kept.files WHERE {where} ORDER BY path")

    def touch_file(self, file: FileRow, timestamp_ms: int | None) -> None:
        self._put_files([(file, timestamp_ms)])

    def _put_files(self, files: Sequence[tuple[FileRow, int | None]]) -> None:
        """Store the rows of files, with the time of those whose chunks have no other."""
        space = self.space
        rows = [dict(zip(_FILE_FIELDS, _file_values(file), strict=True), space=space) for file, _ in files]
        self.index.run_many(_PUT_FILE, rows)
        timed = [{"space": space, "path": file.path, "ms": ms} for file, ms in files if ms is not None]
        self.index.run_many(_TOUCH, timed)

    # chunks

    def optimise(self, *, changed_chunks: int) -> None:
        """Do nothing: autovacuum keeps the tables in order."""

    def replace_files(
        self, writes: Sequence[FileWrite], find_code: Callable[[bytes], bytes | None] | None = None
    ) -> int:
        """Replace the chunks of files, keeping the rows of unchanged ones, with the vectors that ``find_code`` finds by
        the hash of a text. Return how many chunks were added and removed."""
        stored = self._stored_keys(writes)
        removed: list[int] = []
        added: list[_Added] = []
        for write in writes:
            file = write.file
            old = {key: row for line, key, row in stored.get((file.source, file.path), ()) if line > write.after_line}
            rows, chunks = plan_chunks(old, write)
            removed += rows
            added += [
                _Added(write, chunk, key, stems_of(chunk.words), stems_of(chunk.context_words)) for key, chunk in chunks
            ]
        self._delete(removed)
        self._insert(added)
        self._put_notes([(write.file.path, write.note) for write in writes if write.note is not None])
        self._put_files([(write.file, write.timestamp_ms) for write in writes])
        if find_code is not None:
            self._put_codes(writes, find_code)
        return len(removed) + len(added)

    def _stored_keys(self, writes: Sequence[FileWrite]) -> dict[tuple[str, str], list[tuple[int, bytes, int]]]:
        stored: dict[tuple[str, str], list[tuple[int, bytes, int]]] = {}
        rows = self.run(
            "SELECT source, path, start_line, content_key, row FROM kept.chunks WHERE space = %(space)s"
            " AND (source, path) IN (SELECT * FROM unnest(%(sources)s::text[], %(paths)s::text[]))",
            sources=[write.file.source for write in writes],
            paths=[write.file.path for write in writes],
        )
        for source, path, line, key, row in rows:
            stored.setdefault((source, path), []).append((line, key, row))
        return stored

    def _delete(self, rows: Sequence[int]) -> None:
        if rows:
            self.index.run_many(_DELETE_CHUNKS, [{"space": self.space, "rows": list(rows)}])

    def _insert(self, added: Sequence[_Added]) -> None:
        if not added:
            return
        space, ids = self.space, self._count_stems(added)
        rows = self.index.run(
            "SELECT nextval(pg_get_serial_sequence('kept.chunks', 'row')) FROM generate_series(1, %(count)s)",
            count=len(added),
        )
        with self.index.copying(_COPY_CHUNKS) as copy:
            for (row,), item in zip(rows, added, strict=True):
                copy.write_row((row, space, *_chunk_values(item, ids)))
        self.index.run_many(
            "UPDATE kept.spaces SET chunks = chunks + %(chunks)s, text_words = text_words + %(text)s,"
            " all_words = all_words + %(all)s WHERE id = %(space)s",
            [
                {
                    "space": space,
                    "chunks": len(added),
                    "text": sum(len(item.text) for item in added),
                    "all": sum(len(item.text) + len(item.context) for item in added),
                }
            ],
        )

    def _count_stems(self, added: Sequence[_Added]) -> dict[str, int]:
        """Count the chunks that the stems are in, and return the id of each."""
        docs = Counter(stem for item in added for stem in {*item.text, *item.context})
        rows = self.run(
            "INSERT INTO kept.stems (space, stem, docs)"
            " SELECT %(space)s, * FROM unnest(%(stems)s::text[], %(docs)s::int[])"
            " ON CONFLICT (space, stem) DO UPDATE SET docs = stems.docs + excluded.docs RETURNING stem, id",
            stems=[*docs],
            docs=[*docs.values()],
        )
        return dict(rows)

    def _put_codes(self, writes: Sequence[FileWrite], find_code: Callable[[bytes], bytes | None]) -> None:
        codes: list[tuple[int, bytes]] = []
        for write in writes:
            waiting = self.rows_awaiting_vector(write.file.source, write.file.path, after_line=write.after_line)
            codes += [(row, code) for row, key in waiting if (code := find_code(key)) is not None]
        self.vectors.put(codes)

    def remove_file(self, source: str, path: str) -> int:
        where = "space = %(space)s AND source = %(source)s AND path = %(path)s"
        rows = [row for (row,) in self.run(f"SELECT row FROM kept.chunks WHERE {where}", source=source, path=path)]
        self._delete(rows)
        named = [{"space": self.space, "source": source, "path": path}]
        self.index.run_many(f"DELETE FROM kept.files WHERE {where}", named)
        if source == "memory":
            self.index.run_many("DELETE FROM kept.notes WHERE space = %(space)s AND path = %(path)s", named)
        return len(rows)

    def _put_notes(self, notes: Sequence[tuple[str, NoteRow]]) -> None:
        space = self.space
        names, tags, links = [], [], []
        for path, note in notes:
            names += [
                {"space": space, "path": path, "kind": kind, "key": key, "name": name} for kind, key, name in note.names
            ]
            tags += [(space, path, tag.key, *tag.lines, tag.tag) for tag in note.tags]
            links += [
                (space, path, link.line, number, link_key(link.target), *_link_values(link))
                for number, link in enumerate(note.links)
            ]
        # Names, tags and links go with the row of their note.
        self.index.run_many(
            "DELETE FROM kept.notes WHERE space = %(space)s AND path = %(path)s",
            [{"space": space, "path": path} for path, _ in notes],
        )
        self.index.run_many(
            "INSERT INTO kept.notes VALUES (%s, %s, %s, %s, %s, %s)",
            [(space, path, note.title, note.timestamp_ms, note.is_dated, note.updated_ms) for path, note in notes],
        )
        self.index.run_many(
            "INSERT INTO kept.note_names VALUES (%(space)s, %(path)s, %(key)s, %(kind)s, %(name)s)"
            " ON CONFLICT DO NOTHING",
            names,
        )
        self.index.run_many("INSERT INTO kept.note_tags VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", tags)
        self.index.run_many(f"INSERT INTO kept.note_links VALUES ({', '.join(['%s'] * 10)})", links)

    # reading

    def get_chunks(self, rows: Iterable[int]) -> dict[int, ChunkRow]:
        query = f"SELECT {CHUNK_COLUMNS} FROM kept.chunks c WHERE c.space = %(space)s AND c.row = ANY(%(rows)s)"
        return {chunk.row: chunk for chunk in (ChunkRow(*values) for values in self.run(query, rows=list(rows)))}

    def chunks_around(self, chunk: ChunkRow, *, lines: int) -> list[ChunkRow]:
        """Return the chunks of a file that begin within ``lines`` lines of a chunk, in order, including the chunk."""
        rows = self.run(
            f"SELECT {CHUNK_COLUMNS} FROM kept.chunks c WHERE c.space = %(space)s AND c.source = %(source)s"
            " AND c.path = %(path)s AND c.start_line BETWEEN %(first)s AND %(last)s ORDER BY c.start_line, c.row",
            source=chunk.source,
            path=chunk.path,
            first=chunk.start_line - lines,
            last=chunk.end_line + lines,
        )
        return [ChunkRow(*values) for values in rows]

    def spans(self, source: str, path: str, first_line: int, last_line: int) -> list[tuple[int, int]]:
        """Return first and last line of each chunk that overlaps these lines."""
        return self.run(
            "SELECT start_line, end_line FROM kept.chunks WHERE space = %(space)s AND source = %(source)s"
            " AND path = %(path)s AND end_line >= %(first)s AND start_line <= %(last)s ORDER BY start_line",
            source=source,
            path=path,
            first=first_line,
            last=last_line,
        )

    def rows_awaiting_vector(self, source: str, path: str, *, after_line: int = 0) -> list[tuple[int, bytes]]:
        return self.run(
            "SELECT c.row, c.embed_hash FROM kept.chunks c WHERE c.space = %(space)s AND c.source = %(source)s"
            " AND c.path = %(path)s AND c.start_line > %(after)s"
            " AND NOT EXISTS (SELECT FROM kept.vectors v WHERE v.row = c.row)",
            source=source,
            path=path,
            after=after_line,
        )

    def find_codes(self, source: str, path: str) -> dict[bytes, bytes]:
        """Return the codes of the vectors of a file's chunks, by embed hash."""
        return self.vectors.codes_of_file(source, path)

    def files_awaiting_vectors(self) -> set[tuple[str, str]]:
        return set(
            self.run(
                "SELECT DISTINCT source, path FROM kept.chunks c WHERE space = %(space)s"
                " AND NOT EXISTS (SELECT FROM kept.vectors v WHERE v.row = c.row)"
            )
        )

    def count_chunks(self) -> int:
        rows = self.run("SELECT chunks FROM kept.spaces WHERE id = %(space)s")
        return int(rows[0][0]) if rows else 0

    def rows_matching(self, filters: Filter) -> list[int]:
        where, values = filter_sql(filters)
        query = f"SELECT c.row FROM kept.chunks c WHERE c.space = %(space)s AND {where}"
        return [row for (row,) in self.run(query, **values)]

    def count_by_source(self, filters: Filter) -> dict[str, dict[str, int]]:
        where, values = filter_sql(filters)
        rows = self.run(
            "SELECT c.source, count(DISTINCT c.path), count(*) FROM kept.chunks c WHERE c.space = %(space)s"
            f" AND {where} GROUP BY c.source",
            **values,
        )
        return {source: {"files": files, "chunks": chunks} for source, files, chunks in rows}

    def conversation_titles(self, paths: Collection[str]) -> dict[str, str]:
        rows = self.run(
            "SELECT path, mark::jsonb ->> 'title' FROM kept.files"
            " WHERE space = %(space)s AND source = 'sessions' AND path = ANY(%(paths)s) AND mark IS NOT NULL",
            paths=list(paths),
        )
        return {path: title for path, title in rows if title}

    def counts(self) -> IndexCounts:
        files = dict(self.run("SELECT source, count(*) FROM kept.files WHERE space = %(space)s GROUP BY source"))
        chunks = dict(self.run("SELECT source, count(*) FROM kept.chunks WHERE space = %(space)s GROUP BY source"))
        by_source = {
            source: {"files": files.get(source, 0), "chunks": chunks.get(source, 0)} for source in {**files, **chunks}
        }
        return IndexCounts(sum(files.values()), sum(chunks.values()), self.vectors.count(), by_source)


def _chunk_values(item: _Added, ids: dict[str, int]) -> tuple[Any, ...]:
    file, chunk = item.write.file, item.chunk
    text, context = [ids[stem] for stem in item.text], [ids[stem] for stem in item.context]
    in_text, in_context = Counter(text), Counter(context)
    stems = sorted({**in_text, **in_context})
    return (
        file.source,
        file.path,
        chunk.start_line,
        chunk.end_line,
        text_hash(chunk.text),
        text_hash(chunk.embed_text),
        chunk.heading.translate(_NO_NUL),
        chunk.text.translate(_NO_NUL),
        chunk.timestamp_ms,
        chunk.session_key,
        chunk.channel,
        int(chunk.is_recalled),
        item.key,
        stems,
        [in_text[stem] for stem in stems],
        [in_context[stem] for stem in stems],
        text,
        context,
    )
