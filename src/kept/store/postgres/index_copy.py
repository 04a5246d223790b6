"""Copies an index between SQLite and PostgreSQL, and compares the two afterwards. Nothing is read from the notes, and
nothing is embedded again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

import apsw
import numpy as np

from kept.errors import StoreError
from kept.store.index import Index
from kept.store.postgres.file_writer import CHUNK_TYPES
from kept.store.postgres.index import PostgresIndex
from kept.store.postgres.index_contents import (
    CHUNK_COLUMNS,
    FILE_COLUMNS,
    NOTE_COLUMNS,
    IndexContents,
    PostgresContents,
    SqliteContents,
    digest,
)
from kept.store.postgres.note_tables import NOTE_TYPES
from kept.store.postgres.posting_tables import POSITION_BITS, ROW_BITS, PostingTables, StemmedChunk
from kept.store.postgres.storable import storable
from kept.store.postgres.vectors import LOOSE_COLUMNS, VECTOR_COLUMNS
from kept.store.rows import FileRow
from kept.store.vector_codes import dequantise
from kept.store.word_index import TOKENIZER

_BATCH = 2_000


def copy_to_postgres(source: Index, target: PostgresIndex, *, wait_s: float) -> int:
    """Replace the index of a workspace in a team's database by that of a file. Return the number of chunks.

    Raise StoreError if the copy differs: then the old index stays.
    """
    with source.indexing(wait_s=wait_s), target.indexing(wait_s=wait_s), source.reading():
        contents = SqliteContents(source)
        building = target.begin_generation()
        with target.writing():
            _write_postgres(target, building.number, contents)
            building.put_files([FileRow(*row) for row in contents.files()])
            building.vectors.maintain()
            target.switch_to(building)
            for key, value in contents.meta().items():
                target.put_meta(key, json.loads(value))
            now_s = int(time.time())
            for identity, vectors in _cached(source):
                target.cache.put(identity, vectors, now_s=now_s)
            _compare(contents, PostgresContents(target), target.path)
            chunks = target.live.count_chunks()
        target.drop_leftovers()
    return chunks


def copy_to_sqlite(source: PostgresIndex, target: Index, *, wait_s: float) -> int:
    """Replace the index in a file by that of a workspace in a team's database. Return the number of chunks.

    Raise StoreError if the copy differs: then the old index stays.
    """
    # The full-text index gets the stems as they are: its own tokenizer would make stems of stems.
    target.db.register_fts5_tokenizer(TOKENIZER[0], _split_at_spaces)
    with source.indexing(wait_s=wait_s), target.indexing(wait_s=wait_s), source.reading():
        contents = PostgresContents(source)
        building = target.begin_generation()
        with target.writing():
            _write_sqlite(target.db, building.prefix, contents)
            target.switch_to(building)
            for key, value in contents.meta().items():
                target.put_meta(key, json.loads(value))
            if identity := source.stored_identity():
                _cache_codes(target, identity, contents)
            target.live.vectors.maintain()
            _compare(contents, SqliteContents(target), target.path)
            return target.live.count_chunks()


def _compare(expected: IndexContents, copied: IndexContents, path: str) -> None:
    original, copy = digest(expected), digest(copied)
    differing = [table for table in original if original[table] != copy[table]]
    if differing:
        raise StoreError(f"{path}: the copy differs in {', '.join(differing)}. The old index stays.")


# to PostgreSQL


def _write_postgres(target: PostgresIndex, generation: int, contents: IndexContents) -> None:
    session = target.live.session
    words = _read_words(contents)
    totals = [0, 0, 0]
    last_row = 0
    tables = PostingTables(session)
    chunks = iter(contents.chunks())
    while batch := [*islice(chunks, _BATCH)]:
        stemmed = [words.get(row[0]) or StemmedChunk(row[0], [], []) for row in batch]
        values = [_chunk_values(generation, row, chunk) for row, chunk in zip(batch, stemmed, strict=True)]
        session.copy("chunks", CHUNK_TYPES, values)
        tables.add(generation, stemmed, ())
        totals = [
            totals[0] + len(batch),
            totals[1] + sum(row[-2] for row in values),
            totals[2] + sum(row[-1] for row in values),
        ]
        last_row = batch[-1][0]
    tables.merge_all(generation)
    session.execute(
        "UPDATE generations SET last_row = %s, chunks = %s, text_words = %s, all_words = %s WHERE id = %s",
        [last_row, *totals, generation],
    )
    vectors = [(generation, row, code) for row, code in contents.vectors()]
    session.copy("chunk_vectors", VECTOR_COLUMNS, vectors)
    session.copy("loose_vectors", LOOSE_COLUMNS, [row[:2] for row in vectors])
    for table, columns in NOTE_COLUMNS.items():
        types = dict(NOTE_TYPES[table])
        names = columns.split(", ")
        rows = [
            (generation, *(_as_type(value, types[name]) for name, value in zip(names, row, strict=True)))
            for row in contents.note_rows(table)
        ]
        session.copy(table, (("generation", "int4"), *((name, types[name]) for name in names)), rows)


def _as_type(value: Any, kind: str) -> Any:
    if kind == "bool":
        return bool(value)
    return storable(value) if isinstance(value, str) else value


def _read_words(contents: IndexContents) -> dict[int, StemmedChunk]:
    """Return the stems of every chunk, by row."""
    places: dict[int, list[tuple[int, str]]] = {}
    for stem, entries in contents.entries():
        for row, place in zip((entries >> ROW_BITS).tolist(), (entries & ((1 << ROW_BITS) - 1)).tolist(), strict=True):
            places.setdefault(row, []).append((place, stem))
    words = {}
    for row, occurrences in places.items():
        occurrences.sort()
        in_text = [stem for place, stem in occurrences if place < 1 << POSITION_BITS]
        words[row] = StemmedChunk(row, in_text, [stem for _, stem in occurrences[len(in_text) :]])
    return words


def _chunk_values(generation: int, row: tuple[Any, ...], words: StemmedChunk) -> tuple[Any, ...]:
    *first, heading, text, timestamp, key, channel, recalled, content_key = row
    texts = (heading.encode("utf-8", "replace"), text.encode("utf-8", "replace"))
    names = (None if name is None else storable(name) for name in (key, channel))
    lengths = (len(words.text), len(words.text) + len(words.context))
    return (generation, *first, *texts, timestamp, *names, recalled, content_key, words.distinct(), *lengths)


def _cached(source: Index) -> Iterable[tuple[str, list[tuple[bytes, bytes]]]]:
    """Yield the embeddings of a file by embedder, as float32."""
    rows = source.db.execute("SELECT identity, hash, embedding, dims FROM embedding_cache ORDER BY identity")
    while batch := [*islice(rows, _BATCH)]:
        by_identity: dict[str, list[tuple[bytes, bytes]]] = {}
        for identity, key, embedding, dims in batch:
            vector = dequantise(embedding) if len(embedding) == dims else embedding
            by_identity.setdefault(identity, []).append((key, vector))
        yield from by_identity.items()


# to SQLite


def _split_at_spaces(connection: apsw.Connection, arguments: list[str]) -> Any:
    return lambda text, flags, locale: text.decode().split()


def _write_sqlite(db: apsw.Connection, prefix: str, contents: IndexContents) -> None:
    words = _read_words(contents)
    _insert(db, f"{prefix}files", FILE_COLUMNS, contents.files())
    _insert(db, f"{prefix}chunks", CHUNK_COLUMNS, contents.chunks())
    _insert(
        db,
        f"{prefix}chunks_fts",
        "rowid, text, context",
        ((row, " ".join(words[row].text), " ".join(words[row].context)) for row in sorted(words)),
    )
    _insert(db, f"{prefix}chunks_vec", "row, code", contents.vectors())
    for table, columns in NOTE_COLUMNS.items():
        _insert(db, f"{prefix}{table}", columns, contents.note_rows(table))
    missing = np.setdiff1d([row for (row,) in db.execute(f"SELECT row FROM {prefix}chunks")], [*words])
    empty = ((int(row), "", "") for row in missing)
    _insert(db, f"{prefix}chunks_fts", "rowid, text, context", empty)


def _insert(db: apsw.Connection, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    marks = ", ".join("?" * len(columns.split(", ")))
    db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)


def _cache_codes(target: Index, identity: str, contents: IndexContents) -> None:
    """Put the vectors of chunks into the cache of a file."""
    codes: dict[int, bytes] = dict(contents.vectors())
    vectors = ((row[6], dequantise(codes[row[0]])) for row in contents.chunks() if row[0] in codes)
    target.cache.put(identity, vectors, now_s=int(time.time()))
