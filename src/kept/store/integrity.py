"""Checks the index: each table alone, and each against the others."""

from __future__ import annotations

import hashlib
import json

import apsw

from kept.errors import StoreDamaged
from kept.sqlite import translate, translated
from kept.store.index import Index
from kept.store.note_tables import NOTE_TABLES
from kept.values import frozen

FILE = "file"
"""Table of a finding about pages: it cannot be blamed on one table, nor repaired in one."""


@frozen
class Finding:
    table: str
    problem: str


def check_index(index: Index) -> list[Finding]:
    """Return all findings. Reads the whole file, so it is for `kept doctor` and for a repair."""
    findings: list[Finding] = []
    for table, check in _CHECKS:
        try:
            findings.extend(_named(table, problem) for problem in check(index.db))
        except apsw.Error as exc:
            error = translate(exc, index.path, noun="index")
            if not isinstance(error, StoreDamaged):
                raise error from exc  # busy, full or forbidden: not damage
            is_missing = isinstance(exc, apsw.SQLError)  # a missing table can be created again
            findings.append(Finding(table if is_missing else FILE, str(exc)))
        except UnicodeDecodeError as exc:
            findings.append(Finding(table, f"a text cannot be decoded ({exc.reason})"))
    return findings


def check_file(path: str) -> list[Finding]:
    """Return the same for the file at a path, with a new connection that has nothing in memory yet."""
    try:
        index = Index(path)
    except StoreDamaged as exc:
        return [Finding(FILE, exc.message)]
    try:
        return check_index(index)
    finally:
        index.close()


QUICK_CHECK_BYTES = 64_000_000
"""Up to this size (a quarter of a second), every sync that a user asks for checks the pages."""


def check_pages_if_quick(index: Index) -> None:
    """Raise StoreDamaged if a page is damaged, even one that no search would have read."""
    if index.size_bytes() > QUICK_CHECK_BYTES:
        return
    with translated(index.path, noun="index"):
        problems = _pragma_check(index.db, "quick_check(1)")
    if problems:
        raise StoreDamaged(f"{index.path}: the index is damaged ({problems[0]}).")


def _pragma_check(db: apsw.Connection, pragma: str) -> list[str]:
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


def _check_pages(db: apsw.Connection) -> list[str]:
    return _pragma_check(db, "integrity_check(20)")


def _named(table: str, problem: str) -> Finding:
    """Return a finding. FTS5 reports through the check of the whole file, and names its table."""
    return Finding("chunks_fts" if table == FILE and "chunks_fts" in problem else table, problem)


def _check_meta(db: apsw.Connection) -> list[str]:
    return [f"meta.{key} cannot be read" for key, value in db.execute("SELECT key, value FROM meta") if _is_bad(value)]


def _is_bad(value: object) -> bool:
    try:
        json.loads(str(value))
    except ValueError:
        return True
    return False


def _check_fts(db: apsw.Connection) -> list[str]:
    if not db.readonly("main"):  # the check of the pages includes most of it
        # A check, but SQLite treats the statement as a write: hence a transaction that is rolled back.
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('integrity-check')")
        except apsw.CorruptError as exc:
            return [str(exc)]
        finally:
            if db.in_transaction:
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


def is_intact(text: object, expected: object) -> bool:
    """Return whether a chunk's text matches its hash."""
    return hashlib.sha256(str(text).encode("utf-8", "replace")).digest() == expected


def _check_chunks(db: apsw.Connection) -> list[str]:
    wrong = sum(not is_intact(text, expected) for text, expected in db.execute("SELECT text, hash FROM chunks"))
    problems = [f"{wrong} chunks do not match their hash"] if wrong else []
    return problems + _compare(
        db,
        "SELECT count(*) FROM chunks c WHERE NOT EXISTS"
        " (SELECT 1 FROM files f WHERE f.source = c.source AND f.path = c.path)",
        "chunks belong to no file",
    )


def _check_vectors(db: apsw.Connection) -> list[str]:
    db.execute(
        "SELECT 1 FROM vec_dead LIMIT 0"
    ).fetchall()  # fails if the table is missing; below it is read only if there are packs
    problems = _compare(
        db,
        "SELECT count(*) FROM chunks_vec WHERE row NOT IN (SELECT row FROM chunks)",
        "vectors belong to no chunk",
    )
    problems += _compare(
        db,
        "SELECT count(*) FROM chunks_vec WHERE pack IS NOT NULL AND pack NOT IN (SELECT id FROM vec_packs)",
        "vectors name a pack that does not exist",
    )
    for pack, rows, bits in db.execute("SELECT id, length(rows) / 8, length(bits) FROM vec_packs"):
        if not rows or bits % rows:
            problems.append(f"pack {pack} has {bits} bytes for {rows} vectors")
            continue
        accounted = db.execute(
            "SELECT (SELECT count(*) FROM chunks_vec WHERE pack = ?1)"
            " + (SELECT count(*) FROM vec_dead WHERE pack = ?1)",
            (pack,),
        ).get
        if accounted != rows:
            problems.append(f"pack {pack} holds {rows} vectors, of which {accounted} are accounted for")
    return problems


def _check_notes(db: apsw.Connection) -> list[str]:
    problems = _compare(
        db,
        "SELECT count(*) FROM files WHERE source = 'memory' AND path NOT IN (SELECT path FROM notes)",
        "notes have no properties",
    )
    for table in NOTE_TABLES:
        query = f"SELECT count(*) FROM {table} WHERE path NOT IN (SELECT path FROM files WHERE source = 'memory')"
        problems += _compare(db, query, f"rows of {table} belong to no note")
    return problems


def _check_cache(db: apsw.Connection) -> list[str]:
    return _compare(
        db,
        "SELECT count(*) FROM embedding_cache WHERE length(embedding) NOT IN (dims, 4 * dims)",
        "embeddings have a wrong size",
    )


def _compare(db: apsw.Connection, query: str, problem: str) -> list[str]:
    count = db.execute(query).get
    return [f"{count} {problem}"] if count else []


_CHECKS = (
    (FILE, _check_pages),
    ("meta", _check_meta),
    ("chunks", _check_chunks),
    ("chunks_fts", _check_fts),
    ("chunks_vec", _check_vectors),
    ("notes", _check_notes),
    ("embedding_cache", _check_cache),
)
