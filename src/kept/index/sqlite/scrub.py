"""Remove what an index no longer needs from its file, byte by byte.

A row that is deleted stays in free pages, in segments of the full-text index until these are merged, and in the log.
After `scrub_index`, the file has the rows that are live and nothing else, and its embedding cache has only their
embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable

from kept.base.file_lock import locked
from kept.base.sqlite import rewrite_database
from kept.index.sqlite.generation import Generation
from kept.index.sqlite.index import Index


def scrub_index(
    path: str,
    *,
    stale: Iterable[tuple[str, str]] = (),
    wait_s: float = 60.0,
) -> None:
    """Rewrite an index without deleted text. ``stale`` are files, by source and path, that leave the index until the
    next sync reads them again.

    Raise StoreBusy if another process keeps reading from the log, which then still has old pages.
    """
    with locked(f"{path}.lock", wait_s=wait_s, purpose="indexing"):
        index = Index(path)
        try:
            with index.writing():
                _drop_unused(index, stale)
                hashes = {key for (key,) in index.db.execute("SELECT embed_hash FROM chunks")}
            rewrite_database(index.db, path, noun="index")
            index.cache.keep_only(hashes)
        finally:
            index.close()


def read_owner(path: str) -> str | None:
    """Return the workspace that an index belongs to."""
    index = Index(path)
    try:
        owner = index.get_meta("workspace")
    finally:
        index.close()
    return owner if isinstance(owner, str) else None


def _drop_unused(index: Index, stale: Iterable[tuple[str, str]]) -> None:
    for source, name in stale:
        index.live.remove_file(source, name)
    Generation(index.db, "next_").drop()
    # Merging all segments drops the words of deleted rows.
    index.db.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('optimize')")
