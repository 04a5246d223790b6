"""Rewriting of tables: PostgreSQL keeps the bytes of deleted rows in their files until then."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from kept.postgres.database import Connection, Database

_OLD_TRANSACTIONS_S = 30.0
"""How long to wait for transactions that may still see deleted rows."""
_PAUSE_S = 0.05

_CLEARS_STATISTICS_SINCE = 180_000
_CLEAR_STATISTICS = """
SELECT pg_clear_attribute_stats(s.schemaname, s.tablename, s.attname, s.inherited) FROM pg_stats s
 WHERE s.schemaname = %s AND s.tablename IN (
   SELECT unnest(ARRAY[c.relname, i.relname]) FROM pg_class c
     LEFT JOIN pg_index ON indrelid = c.oid LEFT JOIN pg_class i ON i.oid = indexrelid
    WHERE c.oid = ANY(%s::regclass[]) AND has_table_privilege(c.oid, 'MAINTAIN'))
"""
"""The statistics of a column quote its most frequent values. ANALYZE replaces them, but not those of an empty table."""


def rewrite_tables(database: Database, tables: Sequence[str]) -> tuple[str, ...]:
    """Write tables anew without deleted rows. Return why some still have them: PostgreSQL skips a table that this role
    may not rewrite, and only warns; and it keeps rows that a transaction which is still open may see."""
    notices: list[tuple[str, str, str]] = []
    late: list[str] = []
    with database.session() as connection:
        connection.add_notice_handler(lambda notice: notices.append(_read_notice(notice)))
        connection.execute("SELECT set_config('statement_timeout', '0', false)")
        if connection.info.server_version >= _CLEARS_STATISTICS_SINCE:
            connection.execute(_CLEAR_STATISTICS, [database.schema, [*tables]])
        for table in tables:
            if not _rewrite(connection, table, notices):
                late.append(table)
    warnings = [message for severity, message, _ in notices if severity == "WARNING"]
    if warnings:
        return (f"The database keeps deleted rows, since this role may not rewrite its tables ({warnings[0]}).",)
    if late:
        return (
            f"The database keeps deleted rows of {', '.join(late)}, since a transaction is open that may see them.",
        )
    return ()


def _read_notice(notice: Diagnostic) -> tuple[str, str, str]:
    """Return severity, message and detail, which can only be read as a notice arrives."""
    return notice.severity_nonlocalized or "", notice.message_primary or "", notice.message_detail or ""


def _rewrite(connection: Connection, table: str, notices: list[tuple[str, str, str]]) -> bool:
    """Rewrite a table until no deleted row is in it. Return False if an old transaction does not end."""
    deadline = time.monotonic() + _OLD_TRANSACTIONS_S
    while True:
        known = len(notices)
        connection.execute(f"VACUUM (FULL, ANALYZE, VERBOSE) {table}".encode())
        details = [re.match(r"\s*(\d+) ", detail) for _, _, detail in notices[known:]]
        if not any(match and int(match[1]) for match in details):  # "3 dead row versions cannot be removed yet."
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
