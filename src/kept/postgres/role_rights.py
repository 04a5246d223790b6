"""Rights of roles on the schema of a team, and the end of a team.

A role gets rights on the tables of one schema and on those that later migrations add; nothing outside it changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from psycopg import sql

from kept.errors import StoreUnavailable, UsageError
from kept.postgres.schema_migrations import lock_migrations, require_tables
from kept.values import frozen

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

RoleRights = Literal["none", "read", "write"]
_MAINTAIN_SINCE = 170_000
"""The first PostgreSQL that lets a role rewrite a table of another, as 'kept forget' does."""


@frozen
class _Owner:
    name: str
    is_ours: bool
    """Whether the role of this connection may act as the owner."""


def grant_rights(database: Database, role: str, *, read_only: bool) -> None:
    """Let a role use the schema of the team, with exactly these rights. What it had there before is replaced."""
    with database.unchecked() as connection:
        owner = _begin(connection, database.schema)
        _require_other_role(connection, role, owner)
        _revoke(connection, database.schema, role, owner)
        may = "SELECT" if read_only else "SELECT, INSERT, UPDATE, DELETE"
        if not read_only and connection.info.server_version >= _MAINTAIN_SINCE:
            may += ", MAINTAIN"
        rights = {"TABLES": may, "SEQUENCES": "SELECT" if read_only else "USAGE, SELECT"}
        _run(connection, "GRANT USAGE ON SCHEMA {schema} TO {role}", database.schema, role, owner)
        for kind, privileges in rights.items():
            for statement in (
                f"GRANT {privileges} ON ALL {kind} IN SCHEMA {{schema}} TO {{role}}",
                f"ALTER DEFAULT PRIVILEGES FOR ROLE {{owner}} IN SCHEMA {{schema}}"
                f" GRANT {privileges} ON {kind} TO {{role}}",
            ):
                _run(connection, statement, database.schema, role, owner)
        if read_only and connection.execute("SELECT to_regclass('web_keys')").fetchone() != (None,):
            # With the key of the pages, it could make a cookie that opens them all.
            _run(connection, "REVOKE ALL ON {schema}.web_keys FROM {role}", database.schema, role, owner)
        if read_only and read_rights(connection, database.schema, role) == "write":
            raise UsageError(
                f"The role '{role}' may write all the same: it is a superuser, or a member of a role that may.",
                hint="Choose a role of its own for reading; nothing was changed.",
            )


def revoke_rights(database: Database, role: str) -> RoleRights:
    """Take all rights on the schema from a role. Return those that it still has, through other roles."""
    with database.unchecked() as connection:
        owner = _begin(connection, database.schema)
        _require_other_role(connection, role, owner)
        _revoke(connection, database.schema, role, owner)
        return read_rights(connection, database.schema, role)


def read_rights(connection: Connection, schema: str, role: str) -> RoleRights:
    """Return what a role may do in the schema of the team, for whatever reason."""
    row = connection.execute(
        "SELECT has_schema_privilege(%(role)s, %(schema)s, 'USAGE'),"
        " has_table_privilege(%(role)s, 'schema_versions', 'SELECT'),"
        " has_table_privilege(%(role)s, 'schema_versions', 'INSERT')",
        {"role": role, "schema": schema},
    ).fetchone()
    may_use, may_read, may_write = row or (False, False, False)
    if not may_use or not (may_read or may_write):
        return "none"
    return "write" if may_write else "read"


def drop_schema(database: Database) -> None:
    """Remove the schema of the team with everything in it."""
    with database.unchecked() as connection:
        _begin(connection, database.schema)
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(database.schema)))


def _begin(connection: Connection, schema: str) -> _Owner:
    """Wait until nobody migrates the tables. Return their owner, as which the role of the connection must be able to
    act: otherwise PostgreSQL grants nothing and only warns."""
    lock_migrations(connection)
    require_tables(connection, schema)
    rows: list[Any] = connection.execute(
        "SELECT pg_get_userbyid(owner), pg_has_role(owner, 'USAGE') FROM ("
        " SELECT nspowner AS owner, 1 AS number FROM pg_namespace WHERE nspname = %(schema)s UNION ALL"
        " SELECT relowner, 2 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %(schema)s AND relname = 'schema_versions') owners ORDER BY number",
        {"schema": schema},
    ).fetchall()
    owners = [_Owner(*row) for row in rows]
    for owner in owners:
        if not owner.is_ours:
            raise StoreUnavailable(
                f"The schema '{schema}' belongs to the role '{owner.name}', so this role cannot change rights there.",
                hint="Connect as that role; it is the one that ran 'kept store init'.",
            )
    return owners[-1]  # that of the tables, who runs the migrations


def _require_other_role(connection: Connection, role: str, owner: _Owner) -> None:
    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
        raise UsageError(
            f"The database has no role '{role}'.",
            hint="Let its administrator create one: CREATE ROLE name LOGIN PASSWORD '…';",
        )
    if role == owner.name:
        raise UsageError(f"The role '{role}' owns the schema, so it has all rights there.")


def _revoke(connection: Connection, schema: str, role: str, owner: _Owner) -> None:
    for kind in ("TABLES", "SEQUENCES"):
        for statement in (
            f"REVOKE ALL ON ALL {kind} IN SCHEMA {{schema}} FROM {{role}}",
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {{owner}} IN SCHEMA {{schema}} REVOKE ALL ON {kind} FROM {{role}}",
        ):
            _run(connection, statement, schema, role, owner)
    _run(connection, "REVOKE ALL ON SCHEMA {schema} FROM {role}", schema, role, owner)


def _run(connection: Connection, statement: str, schema: str, role: str, owner: _Owner) -> None:
    names = {"schema": schema, "role": role, "owner": owner.name}
    identifiers = {name: sql.Identifier(value) for name, value in names.items()}
    connection.execute(sql.SQL(statement).format(**identifiers))
