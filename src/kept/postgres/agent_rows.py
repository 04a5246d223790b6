"""What the database of a team has of one agent: the rows of all tables that name their agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

_TABLES = """
SELECT c.oid::regclass::text FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
 WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND attname = 'agent' AND attnotnull
 ORDER BY 1
"""
"""Tables whose rows belong to an agent. Those in which an agent is optional, such as tokens, are not among them."""
_ANSWERING = """
SELECT owner FROM conversations JOIN leases USING (owner) WHERE agent = %s AND leases.name = 'process ' || owner
   AND expires > clock_timestamp() LIMIT 1
"""


def find_gateway(database: Database, agent: str) -> str | None:
    """Return the process that answers messages of an agent, on whichever machine, or None."""
    with database.reading() as connection:
        row = connection.execute(_ANSWERING, [agent]).fetchone()
    return str(row[0]) if row else None


def count_rows(database: Database, agent: str) -> int:
    with database.reading() as connection:
        queries = [sql.SQL("SELECT count(*) FROM {} WHERE agent = %s").format(table) for table in _tables(connection)]
        return sum(_number(connection, query, agent) for query in queries)


def purge_rows(database: Database, agent: str) -> None:
    """Delete the rows of an agent, for all machines of the team."""
    with database.writing(timeout_s=600.0) as connection:
        for table in _tables(connection):
            connection.execute(sql.SQL("DELETE FROM {} WHERE agent = %s").format(table), [agent])


def _tables(connection: Connection) -> list[sql.SQL]:
    return [sql.SQL(name) for (name,) in connection.execute(_TABLES).fetchall()]


def _number(connection: Connection, query: sql.Composed, agent: str) -> int:
    row = connection.execute(query, [agent]).fetchone()
    return int(row[0]) if row else 0
