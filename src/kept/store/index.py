"""The index file: opening it, its generations, what it was built with, its cache of embeddings and full-text search."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from kept import sqlite
from kept.config.agent_paths import AgentPaths
from kept.errors import StoreDamaged, StoreError, StoreFull, StoreUnavailable
from kept.limits import is_utf8
from kept.records import Filter
from kept.sqlite import database_files, file_number, immediate, pack_rows, snapshot, translated
from kept.store.generation import SCHEMA_VERSION, Generation, filter_sql
from kept.store.vectors import CHUNK_ORDER, VectorLimits
from kept.values import frozen

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")
_TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So"])
_REFRESH_AFTER_S = 86_400
_META_SCHEMA = "schema"
_META_WORKSPACE = "workspace"
_META_GENERATION = "generation"
META_RECIPE = "recipe"
"""Parameters of the build: sizes, versions, and the embedder whose vectors the index holds."""


def connect(path: str) -> apsw.Connection:
    """Return a connection to an index file, which is created if missing and migrated to the current schema."""
    return sqlite.connect(path, _MIGRATIONS, noun="index")


def _connect_or_read(path: str) -> tuple[apsw.Connection, StoreError | None]:
    """Return a connection, and the reason if it can only read: an index is searched on a disk without space, too."""
    try:
        return connect(path), None
    except (StoreFull, StoreUnavailable) as exc:
        reason = sqlite.why_unwritable(path, exc)
        if not is_utf8(path) or not os.path.exists(path):
            raise reason from exc
        try:
            return sqlite.connect_read_only(path, _MIGRATIONS, noun="index"), reason
        except (StoreFull, StoreUnavailable):
            raise reason from exc


class Index:
    """An open index file. Threads that share it need a lock of their own."""

    def __init__(self, path: str, vector_limits: VectorLimits | None = None) -> None:
        self.path = path
        self.db, self.why_read_only = _connect_or_read(path)
        self.opened_file = file_number(path)
        self.cache = EmbeddingCache(self.db)
        self._vector_limits = vector_limits
        self.live = Generation(self.db, limits=vector_limits)
        try:
            with translated(path, noun="index"):
                if not self._is_of_this_schema():
                    if self.why_read_only:
                        raise self.why_read_only
                    self._create_first_generation()
                self.words = WordIndex(self.db)
        except BaseException:  # whatever happens, also KeyboardInterrupt, must not leave the file open
            self.db.close()
            raise

    def _is_of_this_schema(self) -> bool:
        return self.live.exists() and self.get_meta(_META_SCHEMA) == SCHEMA_VERSION

    def _create_first_generation(self) -> None:
        """Create the tables, or replace those of another schema, which cannot be read. Embeddings stay."""
        with immediate(self.db):
            if self._is_of_this_schema():
                return
            self.start_over(self.generation_number() + 1 if self.live.exists() else 0)
            self.put_meta(_META_SCHEMA, SCHEMA_VERSION)

    def start_over(self, number: int) -> None:
        """Replace the live tables by empty ones, inside the caller's transaction. Embeddings stay."""
        Generation(self.db, "next_").drop()
        self.live.drop()
        self.live.create(number)
        self.put_meta(_META_GENERATION, number)

    def close(self) -> None:
        self.db.close()

    def is_current_file(self) -> bool:
        """Return whether the path still has the file that was opened. It may have been deleted or replaced."""
        return file_number(self.path) == self.opened_file

    @contextmanager
    def reading(self) -> Iterator[None]:
        with translated(self.path, noun="index"), snapshot(self.db):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        if self.why_read_only:
            raise self.why_read_only
        with translated(self.path, noun="index"), immediate(self.db):
            yield

    # meta

    def get_meta(self, key: str) -> Any:
        with translated(self.path, noun="index"):
            value = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
        try:
            return None if value is None else json.loads(value)
        except ValueError as exc:
            raise StoreDamaged(f"{self.path}: the index is damaged (meta.{key} cannot be read).") from exc

    def put_meta(self, key: str, value: Any) -> None:
        """Store a value, inside the caller's transaction."""
        self.db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(value)))

    def generation_number(self) -> int:
        return int(self.get_meta(_META_GENERATION) or 0)

    # rebuilding

    def begin_generation(self) -> Generation:
        """Return empty tables beside the live ones. Those of an interrupted rebuild are dropped."""
        building = Generation(self.db, "next_", self._vector_limits)
        with self.writing():
            building.drop()
            building.create(self.generation_number() + 1)
        return building

    def switch_to(self, building: Generation) -> None:
        """Make new tables live, inside the caller's transaction. Readers see the old ones until it commits."""
        building.become_live()
        self.put_meta(_META_GENERATION, self.generation_number() + 1)

    def drop_leftovers(self) -> None:
        leftover = Generation(self.db, "next_")
        if leftover.exists():
            with self.writing():
                leftover.drop()

    def size_bytes(self) -> int:
        return sum(os.path.getsize(p) for p in database_files(self.path) if os.path.exists(p))


# An agent may be used with several workspaces. Indexes are never shared between them: `index.sqlite` belongs to the
# first workspace, and each other workspace gets its own file.


def find_index_path(paths: AgentPaths, workspace: str) -> str:
    """Return where the index of a workspace is expected, without opening a file."""
    own = paths.index_of(workspace)
    return own if os.path.exists(own) else paths.index


def open_index(paths: AgentPaths, workspace: str, vector_limits: VectorLimits | None = None) -> Index:
    """Open the index of a workspace, and record in it that it belongs to the workspace."""
    index = Index(find_index_path(paths, workspace), vector_limits)
    try:
        if _claim(index, workspace):
            return index
    except BaseException:  # as in Index.__init__
        index.close()
        raise
    index.close()
    other = Index(paths.index_of(workspace), vector_limits)
    _claim(other, workspace)
    return other


def _claim(index: Index, workspace: str) -> bool:
    """Return whether the index belongs to a workspace. An index without an owner becomes the workspace's."""
    owner = index.get_meta(_META_WORKSPACE)
    if owner is None:
        with index.writing():
            owner = index.get_meta(_META_WORKSPACE)
            if owner is None:
                index.put_meta(_META_WORKSPACE, workspace)
                owner = workspace
    return bool(owner == workspace)


class EmbeddingCache:
    """Cache of embeddings, so that each is paid for once. Kept across rebuilds; evicts the least recently used."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def find(self, identity: str, hashes: Iterable[bytes], dims: int) -> dict[bytes, bytes]:
        """Return the cached vectors by hash. ``dims`` is 0 if the embedder learns its dimensions only from a call."""
        query = "SELECT embedding FROM embedding_cache WHERE identity = ? AND hash = ?"
        vectors: dict[bytes, bytes] = {}
        for key in hashes:
            value = self.db.execute(query, (identity, key)).get
            if isinstance(value, bytes) and value and len(value) == 4 * (dims or len(value) // 4):
                vectors[key] = value
        return vectors

    def put(self, identity: str, vectors: Iterable[tuple[bytes, bytes]], *, now_s: int) -> None:
        self.db.executemany(
            "INSERT OR REPLACE INTO embedding_cache (identity, hash, embedding, dims, used_at) VALUES (?, ?, ?, ?, ?)",
            ((identity, key, vector, len(vector) // 4, now_s) for key, vector in vectors),
        )

    def mark_used(self, identity: str, hashes: Iterable[bytes], *, now_s: int) -> None:
        """Mark entries as used, each at most once a day: a sync that changes nothing should write nothing."""
        self.db.executemany(
            "UPDATE embedding_cache SET used_at = ? WHERE identity = ? AND hash = ? AND used_at < ?",
            ((now_s, identity, key, now_s - _REFRESH_AFTER_S) for key in hashes),
        )

    def evict(self, max_entries: int) -> int:
        """Delete the least recently used entries above a number. Return how many."""
        surplus = self.count() - max_entries
        if surplus <= 0:
            return 0
        self.db.execute(
            "DELETE FROM embedding_cache WHERE rowid IN"
            " (SELECT rowid FROM embedding_cache ORDER BY used_at, rowid LIMIT ?)",
            (surplus,),
        )
        return surplus

    def count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM embedding_cache").get)


@frozen
class KeywordMatch:
    """A chunk with at least one of the words, and how often it has each, in its text and in its context."""

    row: int
    counts: tuple[tuple[int, int], ...]
    length: int


class WordIndex:
    """Full-text search: which chunks have which words, how often, and how rare a word is."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        db.register_fts5_function("phrase_counts", _phrase_counts)
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'chunks_fts', 'row')")
        self._tokenizer = db.fts5_tokenizer(*_TOKENIZER)

    def stems(self, text: str) -> list[str]:
        """Return the words of a text as the index stores them."""
        tokens: Any = self._tokenizer(text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_QUERY, None)
        return [token[2] for token in tokens]

    def document_frequency(self, stem: str) -> int:
        """Return how many chunks contain a stem."""
        return int(self.db.execute("SELECT doc FROM temp.vocabulary WHERE term = ?", (stem,)).get or 0)

    def document_frequencies(self, stems: Iterable[str]) -> dict[str, int]:
        """Return how many chunks contain each stem, without those that none contains."""
        query = "SELECT term, doc FROM temp.vocabulary WHERE term IN (SELECT value FROM json_each(?))"
        rows: Iterable[Any] = self.db.execute(query, (json.dumps([*stems]),))
        return dict(rows)

    def stems_starting(self, start: str, *, limit: int) -> list[str]:
        """Return the first stems of the index that begin with a text, in the order of their characters."""
        query = "SELECT term FROM temp.vocabulary WHERE term >= ? AND term < ? LIMIT ?"
        return [stem for (stem,) in self.db.execute(query, (start, f"{start}\U0010ffff", limit))]

    def texts_with(self, stem: str, *, limit: int) -> list[str]:
        """Return the texts of some chunks that contain a stem, each with its headings and path.

        A stem cannot be looked up by a full-text query, which would stem it again.
        """
        self.db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.occurrences USING fts5vocab('main', 'chunks_fts', 'instance')"
        )
        query = (
            "SELECT DISTINCT chunks.text || char(10) || heading || char(10) || path"
            " FROM temp.occurrences JOIN chunks ON chunks.row = occurrences.doc WHERE term = ? LIMIT ?"
        )
        return [text for (text,) in self.db.execute(query, (stem, limit))]

    def phrase_frequency(self, expression: str, *, cap: int) -> int:
        """Return how many chunks contain a phrase, at most ``cap``. The frequencies of its words do not tell."""
        query = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
        return int(self.db.execute(query, (expression, cap)).get)

    def chunk_count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM chunks").get)

    def match(
        self, expression: str, *, phrases: Sequence[int], weights: tuple[float, float], limit: int, filters: Filter
    ) -> tuple[list[KeywordMatch], float]:
        """Return the best chunks by BM25, and the mean length of a chunk in words. Of equal chunks at the end, the
        newest, then the first by path and line.

        ``phrases`` are the numbers of the phrases in the expression whose counts are returned.
        """
        rank = f"bm25(chunks_fts, {weights[0]}, {weights[1]})"
        join = " JOIN chunks c ON c.row = chunks_fts.rowid"
        where, values = filter_sql(filters) if filters else ("1", [])
        select = f"SELECT chunks_fts.rowid, phrase_counts(chunks_fts), {rank} AS score FROM chunks_fts"
        condition = f" WHERE {where} AND chunks_fts MATCH ?"
        # Sorted by the function: with `ORDER BY rank`, FTS5 would read all rows twice.
        rows: list[Any] = self.db.execute(
            f"{select}{join if filters else ''}{condition} ORDER BY score LIMIT ?", (*values, expression, limit + 1)
        ).fetchall()
        if len(rows) > limit and rows[-1][2] == rows[-2][2]:
            last = rows[-1][2]
            rows = [row for row in rows if row[2] != last]
            rows += self.db.execute(
                f"{select}{join}{condition} AND {rank} = ? ORDER BY c.timestamp DESC, {CHUNK_ORDER} LIMIT ?",
                (*values, expression, last, limit - len(rows)),
            )
        return _unpack(rows[:limit], phrases)

    def match_rows(self, expression: str, rows: Sequence[int], *, few: bool) -> tuple[list[KeywordMatch], float]:
        """Return the same for those of the given rows that match.

        If ``few`` rows match the expression, reading all of them is faster than looking up each given row; the plus
        makes SQLite do that.
        """
        rowid = "+rowid" if few else "rowid"
        matches = self.db.execute(
            "SELECT rowid, phrase_counts(chunks_fts) FROM chunks_fts"
            f" WHERE chunks_fts MATCH ? AND {rowid} IN (SELECT value FROM json_each(?))",
            (expression, pack_rows(rows)),
        )
        return _unpack(matches, None)


def _unpack(rows: Iterable[Sequence[Any]], phrases: Sequence[int] | None) -> tuple[list[KeywordMatch], float]:
    matches: list[KeywordMatch] = []
    mean = 1.0
    for row, packed, *_ in rows:
        numbers = array("I")
        numbers.frombytes(packed)
        length, total, chunks = numbers[0], numbers[1], numbers[2]
        mean = total / max(1, chunks)
        counted = range((len(numbers) - 3) // 2) if phrases is None else phrases
        counts = tuple((numbers[3 + 2 * at], numbers[4 + 2 * at]) for at in counted)
        matches.append(KeywordMatch(row, counts, length))
    return matches, mean


def _phrase_counts(api: apsw.FTS5ExtensionApi, /, *_: Any) -> bytes:
    """Return the numbers that BM25 needs for one row, packed: its length, the sum of all lengths, the number of rows,
    and for each phrase how often the text and the context contain it. Called only for rows that are returned."""
    numbers = array("I", [api.column_size(0), min(api.column_total_size(0), 0xFFFFFFFF), api.row_count])
    for phrase in range(api.phrase_count):
        text, context = api.phrase_locations(phrase)
        numbers.append(len(text))
        numbers.append(len(context))
    return numbers.tobytes()
