"""Mending a damaged index inside its file, where the pages are sound and only tables contradict themselves.

What the notes say is dropped and indexed anew by the next sync; the embedding cache stays, so nothing is embedded
again. Packed vectors are packed again from their rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kept.errors import StoreDamaged
from kept.store.index import META_RECIPE, Index
from kept.store.integrity import Finding, check_index, is_intact
from kept.store.kernels import dequantise

_FROM_NOTES = frozenset({"files", "chunks", "chunks_fts"})
_MENDABLE = _FROM_NOTES | {"chunks_vec", "embedding_cache"}


def mend_in_place(index: Index, findings: Sequence[Finding]) -> bool:
    """Mend what was found. Return False, with nothing changed, where that takes a new file."""
    tables = {finding.table for finding in findings}
    if not tables <= _MENDABLE:
        return False
    try:
        with index.writing():
            _mend(index, tables)
        return not check_index(index)
    except StoreDamaged:  # a page that had to be read or freed is damaged after all
        return False


def _mend(index: Index, tables: set[str]) -> None:
    if "embedding_cache" in tables:
        index.db.execute("DELETE FROM embedding_cache WHERE length(embedding) <> 4 * dims")
    if tables & _FROM_NOTES or not _has_vectors(index):
        if _has_vectors(index):
            keep_codes(index, _uncached_codes(index))
        index.start_over(index.generation_number() + 1)
    elif "chunks_vec" in tables:
        index.live.vectors.repair()


def _has_vectors(index: Index) -> bool:
    wanted = ("chunks", "chunks_vec", "vec_packs", "vec_dead")
    query = f"SELECT count(*) FROM sqlite_schema WHERE name IN ({', '.join('?' * len(wanted))})"
    return bool(index.db.execute(query, wanted).get == len(wanted))


def keep_codes(index: Index, codes: Iterable[tuple[bytes, bytes]]) -> None:
    """Put vectors of chunks into the cache, inside a transaction of the caller's: it may hold fewer than the index."""
    identity = _identity(index)
    if identity:
        vectors = ((key, dequantise(code)) for key, code in codes if any(code))
        index.cache.put(identity, vectors, now_s=int(time.time()))


def _identity(index: Index) -> str | None:
    return (index.get_meta(META_RECIPE) or {}).get("identity")


def _uncached_codes(index: Index) -> Iterator[tuple[bytes, bytes]]:
    rows: list[Any] = index.db.execute(
        "SELECT c.text, c.hash, c.embed_hash, v.code FROM chunks c JOIN chunks_vec v ON v.row = c.row"
        " WHERE NOT EXISTS (SELECT 1 FROM embedding_cache e WHERE e.identity = ? AND e.hash = c.embed_hash)",
        (_identity(index),),
    ).fetchall()
    return ((key, code) for text, hash_, key, code in rows if is_intact(text, hash_))
