"""Whether the index can be believed: each table by itself, and each against the others."""

from __future__ import annotations

import hashlib

import apsw

from kept.errors import StoreDamaged, StoreError
from kept.store.connection import translate, translated
from kept.store.index import Index
from kept.values import frozen


@frozen
class Finding:
    table: str
    problem: str


def check_index(index: Index) -> list[Finding]:
    """Everything that is wrong. Reads the whole file, so it is for `kept doctor`, not for a search."""
    findings: list[Finding] = []
    for table, check in _CHECKS:
        try:
            findings.extend(Finding(table, problem) for problem in check(index.db))
        except apsw.Error as exc:
            findings.append(Finding(table, translate(exc, index.path).message))
        except StoreError as exc:
            findings.append(Finding(table, exc.message))
    return findings


QUICK_CHECK_BYTES = 64_000_000
"""Up to this size, about a quarter of a second, the pages are checked by every sync that is asked for by name."""


def check_pages_if_quick(index: Index) -> None:
    """Raises StoreDamaged where a page is damaged, also one that no search would have come across."""
    if index.size_bytes() > QUICK_CHECK_BYTES:
        return
    with translated(index.path):
        found = [str(row[0]) for row in index.db.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise StoreDamaged(f"{index.path}: the index is damaged ({found[0]}).")


def _check_pages(db: apsw.Connection) -> list[str]:
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
    return [] if found == ["ok"] else found


def _check_fts(db: apsw.Connection) -> list[str]:
    # Only reports; the statement is a write to SQLite, which is why it stands in a transaction that is undone.
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('integrity-check')")
    finally:
        db.execute("ROLLBACK")
    return _compare(
        db,
        "SELECT count(*) FROM chunks WHERE row NOT IN (SELECT id FROM chunks_fts_docsize)",
        "chunks are missing from the full-text index",
    ) + _compare(
        db,
        "SELECT count(*) FROM chunks_fts_docsize WHERE id NOT IN (SELECT row FROM chunks)",
        "full-text entries belong to no chunk",
    )


def _check_chunks(db: apsw.Connection) -> list[str]:
    wrong = 0
    for text, expected in db.execute("SELECT text, hash FROM chunks"):
        wrong += hashlib.sha256(str(text).encode("utf-8", "replace")).hexdigest() != expected
    problems = [f"{wrong} chunks do not match their hash"] if wrong else []
    return problems + _compare(
        db,
        "SELECT count(*) FROM chunks c WHERE NOT EXISTS"
        " (SELECT 1 FROM files f WHERE f.source = c.source AND f.path = c.path)",
        "chunks belong to no file",
    )


def _check_vectors(db: apsw.Connection) -> list[str]:
    problems = _compare(
        db,
        "SELECT count(*) FROM chunks_vec WHERE row NOT IN (SELECT row FROM chunks)",
        "vectors belong to no chunk",
    )
    problems += _compare(
        db,
        "SELECT count(*) FROM chunks_vec WHERE pack IS NOT NULL AND pack NOT IN (SELECT id FROM vec_packs)",
        "vectors name a pack that is not there",
    )
    for pack, rows, codes in db.execute("SELECT id, length(rows) / 8, length(codes) FROM vec_packs"):
        if not rows or codes % rows:
            problems.append(f"pack {pack} has {codes} bytes for {rows} vectors")
            continue
        accounted = db.execute(
            "SELECT (SELECT count(*) FROM chunks_vec WHERE pack = ?1)"
            " + (SELECT count(*) FROM vec_dead WHERE pack = ?1)",
            (pack,),
        ).get
        if accounted != rows:
            problems.append(f"pack {pack} holds {rows} vectors, of which {accounted} are accounted for")
    return problems


def _check_cache(db: apsw.Connection) -> list[str]:
    return _compare(
        db, "SELECT count(*) FROM embedding_cache WHERE length(embedding) <> 4 * dims", "embeddings have a wrong size"
    )


def _compare(db: apsw.Connection, query: str, what: str) -> list[str]:
    count = db.execute(query).get
    return [f"{count} {what}"] if count else []


_CHECKS = (
    ("file", _check_pages),
    ("chunks", _check_chunks),
    ("chunks_fts", _check_fts),
    ("chunks_vec", _check_vectors),
    ("embedding_cache", _check_cache),
)
