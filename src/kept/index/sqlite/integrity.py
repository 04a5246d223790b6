"""Checks of the index file: its pages, and each table against the others. What is damaged is rebuilt, not repaired.

Scrubbing: what an index no longer needs leaves its file, byte by byte. A row that is deleted stays in free pages, in
segments of the full-text index until these are merged, and in the log. After `scrub_index`, the file has the rows that
are live and nothing else, and its embedding cache has only their embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from kept.base.file_lock import locked
from kept.base.sqlite import checksum_vfs, rewrite_database, translate, translated
from kept.errors import StoreDamaged
from kept.index.sqlite.generation import Generation
from kept.index.sqlite.index import Index
from kept.index.sqlite.rows import NOTE_TABLES, text_hash

# Up to this size (a quarter of a second), every sync that a user asks for checks the pages.
QUICK_CHECK_BYTES = 64_000_000

# What would be wrong, and a query that counts it.
_NONE_EXPECTED = (
    (
        "chunks belong to no file",
        "SELECT count(*) FROM chunks c WHERE NOT EXISTS"
        " (SELECT 1 FROM files f WHERE f.source = c.source AND f.path = c.path)",
    ),
    (
        "chunks are missing from the full-text index",
        "SELECT count(*) FROM chunks WHERE row NOT IN (SELECT id FROM chunks_fts_docsize)",
    ),
    (
        "full-text entries belong to no chunk",
        "SELECT count(*) FROM chunks_fts_docsize WHERE id NOT IN (SELECT row FROM chunks)",
    ),
    ("vectors belong to no chunk", "SELECT count(*) FROM chunks_vec WHERE row NOT IN (SELECT row FROM chunks)"),
    (
        "notes have no properties",
        "SELECT count(*) FROM files WHERE source = 'memory' AND path NOT IN (SELECT path FROM notes)",
    ),
    *(
        (
            f"rows of {table} belong to no note",
            f"SELECT count(*) FROM {table} WHERE path NOT IN (SELECT path FROM files WHERE source = 'memory')",
        )
        for table in NOTE_TABLES
    ),
)


def find_damage(index: Index) -> list[str]:
    """Return what is wrong with the index. Reads the whole file, so it is for `kept doctor`."""
    try:
        problems = [*_check_pages(index.db, "integrity_check(20)"), *_check_texts(index.db)]
        for problem, query in _NONE_EXPECTED:
            if count := index.db.execute(query).get:
                problems.append(f"{count} {problem}")
    except apsw.Error as exc:
        error = translate(exc, index.path, noun="index")
        if not isinstance(error, StoreDamaged):
            raise error from exc  # busy, full or forbidden: not damage
        return [str(exc)]
    except UnicodeDecodeError as exc:
        return [f"a text cannot be decoded ({exc.reason})"]
    return problems


def check_if_quick(index: Index) -> None:
    """Raise StoreDamaged if a page is damaged, even one that no search would have read; unless that takes long."""
    if index.size_bytes() > QUICK_CHECK_BYTES:
        return
    with translated(index.path, noun="index"):
        problems = _check_pages(index.db, "quick_check(1)")
    if problems:
        raise StoreDamaged(f"{index.path}: the index is damaged ({problems[0]}).")


def describe_checks() -> str:
    """Return what protects the stored bytes, for people."""
    return "with page checksums" if checksum_vfs() else "this build of SQLite has no page checksums"


def _check_pages(db: apsw.Connection, pragma: str) -> list[str]:
    """Return the problems that SQLite reports about the pages and the full-text index.

    FTS5 caches the list of its segments and checks the cached list, although another connection may have merged the
    segments since: it then reports a sound index as corrupt. It reads the list again when a query begins, so each of
    its tables is queried first, in the transaction that the check runs in.
    """
    db.execute("BEGIN")
    try:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE % USING fts5%'")
        for (name,) in tables.fetchall():
            db.execute(f'SELECT rowid FROM "{name}" WHERE "{name}" MATCH ? LIMIT 1', ("kept",)).fetchall()
        problems = [str(row[0]) for row in db.execute(f"PRAGMA {pragma}")]
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    return [] if problems == ["ok"] else problems


def _check_texts(db: apsw.Connection) -> list[str]:
    rows = db.execute("SELECT text, hash FROM chunks")
    wrong = sum(text_hash(str(text)) != digest for text, digest in rows)
    return [f"{wrong} chunks do not match their hash"] if wrong else []


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
