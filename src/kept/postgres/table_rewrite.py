"""Rewriting of tables: PostgreSQL keeps the bytes of deleted rows in their files until then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kept.postgres.database import Database

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
    may not rewrite, and only warns."""
    warnings: list[str] = []
    with database.session() as connection:
        connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
        connection.execute("SELECT set_config('statement_timeout', '0', false)")
        if connection.info.server_version >= _CLEARS_STATISTICS_SINCE:
            connection.execute(_CLEAR_STATISTICS, [database.schema, [*tables]])
        for table in tables:
            connection.execute(f"VACUUM (FULL, ANALYZE) {table}")
    if not warnings:
        return ()
    return (f"The database keeps deleted rows, since this role may not rewrite its tables ({warnings[0]}).",)
