"""Checks of the index in a team's database: each table alone, and each against the others."""

from __future__ import annotations

import numpy as np

from kept.store.integrity import Finding, is_intact
from kept.store.note_tables import NOTE_TABLES
from kept.store.postgres.generation import PostgresGeneration
from kept.store.postgres.posting_tables import ROW_BITS

_ROWS_AT_ONCE = 2_000


def check_generation(generation: PostgresGeneration) -> list[Finding]:
    """Return all findings. Reads every chunk and every list."""
    return [
        *check_sums(generation),
        *_check_texts(generation),
        *_check_postings(generation),
        *_check_notes(generation),
    ]


_SUMS = (
    (
        "chunks",
        "the sums over all chunks are wrong",
        "SELECT count(*) FROM generations g, (SELECT count(*) AS chunks, coalesce(sum(text_words), 0) AS text_words,"
        " coalesce(sum(all_words), 0) AS all_words FROM chunks WHERE generation = %(g)s) c WHERE g.id = %(g)s"
        " AND (g.chunks <> c.chunks OR g.text_words <> c.text_words OR g.all_words <> c.all_words)",
    ),
    (
        "chunks",
        "chunks belong to no file",
        "SELECT count(*) FROM chunks c WHERE generation = %(g)s AND NOT EXISTS (SELECT 1 FROM index_files f"
        " WHERE f.generation = c.generation AND f.source = c.source AND f.path = c.path)",
    ),
    (
        "chunk_vectors",
        "vectors belong to no chunk",
        "SELECT count(*) FROM chunk_vectors v WHERE generation = %(g)s AND NOT EXISTS"
        " (SELECT 1 FROM chunks c WHERE c.generation = v.generation AND c.row = v.row)",
    ),
    (
        "vector_packs",
        "packs have a wrong size",
        "SELECT count(*) FROM vector_packs WHERE generation = %(g)s AND (octet_length(rows) <> 8 * count"
        " OR mod(octet_length(codes), count) <> 0 OR mod(octet_length(bits), count) <> 0)",
    ),
    (
        "segments",
        "segments have a wrong size",
        "SELECT count(*) FROM segments WHERE generation = %(g)s AND (octet_length(rows) <> octet_length(text_words)"
        " OR octet_length(rows) <> octet_length(all_words))",
    ),
)


def check_sums(generation: PostgresGeneration) -> list[Finding]:
    """Return what does not add up."""
    counts = (
        (table, problem, generation.session.fetch_value(query, {"g": generation.number}))
        for table, problem, query in _SUMS
    )
    findings = [Finding(table, f"{count} {problem}") for table, problem, count in counts if count]
    dead, surplus = generation.session.fetch(
        "SELECT (SELECT count(*) FROM dead_rows WHERE generation = %(g)s),"
        " (SELECT count(*) FROM loose_vectors WHERE generation = %(g)s)"
        " + (SELECT coalesce(sum(count), 0) FROM vector_packs WHERE generation = %(g)s)"
        " - (SELECT count(*) FROM chunk_vectors WHERE generation = %(g)s)",
        {"g": generation.number},
    )[0]
    if not 0 <= surplus <= dead:
        findings.append(Finding("vector_packs", "the packs do not have the vectors of the chunks"))
    return findings


def _check_texts(generation: PostgresGeneration) -> list[Finding]:
    wrong, after = 0, 0
    query = "SELECT row, text, hash FROM chunks WHERE generation = %s AND row > %s ORDER BY row LIMIT %s"
    while rows := generation.session.fetch(query, [generation.number, after, _ROWS_AT_ONCE]):
        wrong += sum(not is_intact(text.decode("utf-8", "replace"), hash_) for _, text, hash_ in rows)
        after = rows[-1][0]
    return [Finding("chunks", f"{wrong} chunks do not match their hash")] if wrong else []


def _check_postings(generation: PostgresGeneration) -> list[Finding]:
    """Compare the lists with the stems of the chunks, and with the number of their words."""
    session, number = generation.session, generation.number
    alive = np.array([row for (row,) in session.fetch("SELECT row FROM chunks WHERE generation = %s", [number])])
    dead = np.array([row for (row,) in session.fetch("SELECT row FROM dead_rows WHERE generation = %s", [number])])
    wrong = stray = words = 0
    after = ""
    query = (
        "SELECT stem, sum(docs)::int, string_agg(entries, ''::bytea ORDER BY segment) FROM postings"
        " WHERE generation = %s AND stem > %s GROUP BY stem ORDER BY stem LIMIT %s"
    )
    while stems := session.fetch(query, [number, after, _ROWS_AT_ONCE]):
        after = stems[-1][0]
        for _, docs, packed in stems:
            if len(packed) % 8:
                wrong += 1
                continue
            entries = np.frombuffer(packed, dtype="<i8")
            rows = entries >> ROW_BITS
            is_alive = np.isin(rows, alive)
            stray += int((~is_alive & ~np.isin(rows, dead)).sum())
            words += int(is_alive.sum())
            is_sorted = not len(entries) or bool((np.diff(entries) > 0).all())
            wrong += not is_sorted or len(np.unique(rows[is_alive])) != docs
    findings = []
    if wrong:
        findings.append(Finding("postings", f"{wrong} lists of words are wrong"))
    if stray:
        findings.append(Finding("postings", f"{stray} entries belong to no chunk"))
    expected = session.fetch_value("SELECT all_words FROM generations WHERE id = %s", [number])
    if words != expected:
        findings.append(Finding("postings", f"the lists have {words} words, and the chunks {expected}"))
    return findings


def _check_notes(generation: PostgresGeneration) -> list[Finding]:
    session, values = generation.session, {"g": generation.number}
    findings = []
    missing = session.fetch_value(
        "SELECT count(*) FROM index_files f WHERE generation = %(g)s AND source = 'memory' AND NOT EXISTS"
        " (SELECT 1 FROM notes n WHERE n.generation = f.generation AND n.path = f.path)",
        values,
    )
    if missing:
        findings.append(Finding("notes", f"{missing} notes have no properties"))
    for table in NOTE_TABLES:
        count = session.fetch_value(
            f"SELECT count(*) FROM {table} n WHERE generation = %(g)s AND NOT EXISTS (SELECT 1 FROM index_files f"
            " WHERE f.generation = n.generation AND f.source = 'memory' AND f.path = n.path)",
            values,
        )
        if count:
            findings.append(Finding("notes", f"{count} rows of {table} belong to no note"))
    return findings
