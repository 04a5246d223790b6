"""Compare two indexes."""

from __future__ import annotations

from typing import Any

from kept import Memory
from kept.store.index import Index


def dump_index(memory: Memory) -> tuple[list[Any], ...]:
    """Return the content of the index without row numbers: equal for two indexes of the same notes."""
    with memory.index_service.inspecting() as (index, _), index.reading():
        return _dump_sqlite(index) if isinstance(index, Index) else _dump_postgres(index)


def _dump_sqlite(index: Index) -> tuple[list[Any], ...]:
    chunks = sorted(index.db.execute("SELECT source, path, start_line, end_line, hash, heading, text FROM chunks"))
    codes = sorted(index.db.execute("SELECT c.content_key, v.code FROM chunks c JOIN chunks_vec v ON v.row = c.row"))
    files = sorted(index.db.execute("SELECT source, path, hash, size FROM files"))
    terms = index.db.execute("SELECT term, doc, cnt FROM temp.vocabulary").fetchall()
    return chunks, codes, files, terms


def _dump_postgres(index: Any) -> tuple[list[Any], ...]:
    live = index.live
    of_live = [live.number]
    assert index.find_damage() == []
    chunks = live.session.fetch(
        "SELECT source, path, start_line, end_line, hash, heading, text FROM chunks WHERE generation = %s", of_live
    )
    codes = live.session.fetch(
        "SELECT content_key, code FROM chunks JOIN chunk_vectors USING (generation, row) WHERE generation = %s", of_live
    )
    files = live.session.fetch("SELECT source, path, hash, size FROM index_files WHERE generation = %s", of_live)
    stems = live.session.fetch(
        "SELECT stem, sum(docs)::int FROM postings WHERE generation = %s GROUP BY stem HAVING sum(docs) > 0", of_live
    )
    entries = index.words.read_entries([stem for stem, _ in stems])
    terms = [(stem, docs, len(entries[stem])) for stem, docs in stems]
    decoded = [(*row[:5], row[5].decode(), row[6].decode()) for row in chunks]
    return sorted(decoded), sorted(codes), sorted(files), sorted(terms)
