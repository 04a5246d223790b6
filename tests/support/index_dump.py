"""Compare two indexes."""

from typing import Any

import apsw

from kept import Memory
from kept.base.sqlite import checksum_vfs
from kept.index.sqlite.index import Index


def dump_index(memory: Memory) -> tuple[list[Any], ...]:
    """Return the content of the index without row numbers: equal for two indexes of the same notes."""
    with memory.index_service.inspecting() as (index, _), index.reading():
        chunks = sorted(index.db.execute("SELECT source, path, start_line, end_line, hash, heading, text FROM chunks"))
        codes = sorted(
            index.db.execute("SELECT c.content_key, v.code FROM chunks c JOIN chunks_vec v ON v.row = c.row")
        )
        files = sorted(index.db.execute("SELECT source, path, hash, size FROM files"))
        terms = index.db.execute("SELECT term, doc, cnt FROM temp.vocabulary").fetchall()
        return chunks, codes, files, terms


def read_cache(index: Index) -> dict[bytes, bytes]:
    """Return the codes in the embedding cache of an index, by the hash of their text."""
    db = apsw.Connection(index.cache.path, vfs=checksum_vfs())
    try:
        return dict(db.execute("SELECT hash, code FROM embedding_cache").fetchall())
    finally:
        db.close()
