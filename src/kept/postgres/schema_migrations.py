"""The tables of a team: numbered SQL files, and the versions that a schema has.

Each folder below `migrations` is a part of Kept with a version of its own. Migrations run in one transaction under an
advisory lock, so of several machines that migrate at once, one does the work and the others find it done. A line
``-- requires: NAME`` in a migration names an extension of PostgreSQL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import errors as postgres_errors
from psycopg import sql

from kept.errors import StoreTooNew, StoreUnavailable
from kept.migration_files import read_migrations
from kept.values import frozen

if TYPE_CHECKING:
    from kept.postgres.database import Database

MIN_SERVER = 150_000
"""Oldest PostgreSQL, as its number: 15, since which nobody but the owner creates things in the schema public."""
_FOLDER = os.path.join(os.path.dirname(__file__), "migrations")
_REQUIRES = re.compile(r"^-- requires: (\w+)$", re.MULTILINE)
_LOCK = 0x6B657074
"""Advisory lock of migrations, for all teams of a database: they share its extensions."""
_MIGRATION_TIMEOUT_S = 3_600.0

SchemaState = Literal["missing", "outdated", "ready", "too_new"]


@frozen
class PartVersion:
    """Version of the tables of one part of Kept, and the version that this program has."""

    part: str
    version: int
    """0 if the tables are missing."""
    newest: int


@frozen
class SchemaStatus:
    schema: str
    state: SchemaState
    server: str
    """Version of PostgreSQL."""
    parts: tuple[PartVersion, ...]
    extensions: Mapping[str, str]
    """Installed version of each extension that Kept needs."""
    bytes: int
    """Size of the tables and their indexes."""


def _read_parts() -> dict[str, tuple[tuple[int, str], ...]]:
    folders = sorted(entry.name for entry in os.scandir(_FOLDER) if entry.is_dir() and not entry.name.startswith("_"))
    return {name: read_migrations(os.path.join(_FOLDER, name)) for name in folders}


PARTS = _read_parts()
EXTENSIONS = tuple(sorted({*_REQUIRES.findall("".join(script for part in PARTS.values() for _, script in part))}))
"""Extensions of PostgreSQL that the tables need."""

_Connection = psycopg.Connection[tuple[Any, ...]]


def set_search_path(connection: _Connection, schema: str) -> None:
    """Let the names in statements mean the tables of a team, and the extensions wherever they are installed."""
    connection.execute(
        "SELECT set_config('search_path', concat_ws(', ', quote_ident(%s), (SELECT string_agg(DISTINCT"
        " quote_ident(nspname), ', ') FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
        " WHERE extname = ANY(%s)), 'pg_temp'), false)",
        [schema, [*EXTENSIONS]],
    )


def check_versions(connection: _Connection, schema: str) -> None:
    """Raise StoreUnavailable or StoreTooNew unless the schema has the tables of this program."""
    parts = _read_versions(connection)
    state = _state_of(parts)
    if state == "missing":
        raise _missing(connection, schema)
    if state == "too_new":
        raise _too_new(schema, parts)
    if state == "outdated":
        raise StoreUnavailable(
            f"The tables of the schema '{schema}' are older than this Kept.",
            hint="Run 'kept store migrate' once, when all machines of the team have this version.",
        )


def read_status(database: Database) -> SchemaStatus:
    with database.unchecked() as connection:
        parts = _read_versions(connection)
        extensions = connection.execute(
            "SELECT extname, extversion FROM pg_extension WHERE extname = ANY(%s)", [[*EXTENSIONS]]
        ).fetchall()
        size = connection.execute(
            "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
            " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s AND relkind IN ('r', 'm')",
            [database.schema],
        ).fetchone()
        server = connection.info.server_version
    return SchemaStatus(
        database.schema,
        _state_of(parts),
        f"{server // 10_000}.{server % 10_000}",
        parts,
        {str(name): str(version) for name, version in extensions},
        int(size[0]) if size else 0,
    )


def migrate(database: Database, *, create: bool) -> tuple[PartVersion, ...]:
    """Bring the tables to the current version. Return the parts with the versions they had before.

    ``create`` also creates the schema and the extensions. Raise StoreTooNew if another machine has a later Kept.
    """
    with database.unchecked(timeout_s=_MIGRATION_TIMEOUT_S) as connection:
        lock_migrations(connection)
        _check_server(connection)
        if create:
            _create_schema(connection, database.schema)
        parts = _read_versions(connection)
        match _state_of(parts):
            case "too_new":
                raise _too_new(database.schema, parts)
            case "missing" if not create:
                raise _missing(connection, database.schema)
        _require_extensions(connection, database.schema)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_versions (part text PRIMARY KEY, version integer NOT NULL,"
            " migrated_at timestamptz NOT NULL DEFAULT now())"
        )
        for part in parts:
            _apply(connection, part)
    return parts


def lock_migrations(connection: _Connection) -> None:
    """Keep others from changing the tables of any team until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def require_tables(connection: _Connection, schema: str) -> None:
    """Raise StoreUnavailable unless the schema has tables of Kept, of any version."""
    if _state_of(_read_versions(connection)) == "missing":
        raise _missing(connection, schema)


def _apply(connection: _Connection, part: PartVersion) -> None:
    for number, script in PARTS[part.part]:
        if number > part.version:
            connection.execute(script.encode())
            connection.execute(
                "INSERT INTO schema_versions (part, version) VALUES (%s, %s)"
                " ON CONFLICT (part) DO UPDATE SET version = excluded.version, migrated_at = now()",
                [part.part, number],
            )


def _read_versions(connection: _Connection) -> tuple[PartVersion, ...]:
    known: dict[str, int] = {}
    table = connection.execute("SELECT to_regclass('schema_versions')").fetchone()
    if table and table[0] is not None:
        rows = connection.execute("SELECT part, version FROM schema_versions").fetchall()
        known = {str(part): int(version) for part, version in rows}
    names = [*PARTS, *(name for name in sorted(known) if name not in PARTS)]
    return tuple(PartVersion(name, known.get(name, 0), PARTS[name][-1][0] if name in PARTS else 0) for name in names)


def _state_of(parts: tuple[PartVersion, ...]) -> SchemaState:
    if not any(part.version for part in parts):
        return "missing"
    if any(part.version > part.newest for part in parts):
        return "too_new"
    return "ready" if all(part.version == part.newest for part in parts) else "outdated"


def _missing(connection: _Connection, schema: str) -> StoreUnavailable:
    """Return an error that says why there are no tables: a role without rights on a schema does not see them."""
    query = "SELECT NOT has_schema_privilege(oid, 'USAGE'), current_user::text FROM pg_namespace WHERE nspname = %s"
    is_hidden, role = connection.execute(query, [schema]).fetchone() or (False, "")
    if is_hidden:
        return StoreUnavailable(
            f"The role '{role}' has no rights on the schema '{schema}'.",
            hint=f"Let its owner run 'kept store grant {role}', or correct memory_search.store.schema.",
        )
    return StoreUnavailable(f"The schema '{schema}' has no tables of Kept.", hint="Run 'kept store init'.")


def _too_new(schema: str, parts: tuple[PartVersion, ...]) -> StoreTooNew:
    newer = ", ".join(f"{part.part} {part.version}" for part in parts if part.version > part.newest)
    return StoreTooNew(
        f"The tables of the schema '{schema}' were made by a later version of Kept ({newer}).",
        hint="Upgrade Kept on this machine; nothing was changed.",
    )


def _check_server(connection: _Connection) -> None:
    if connection.info.server_version < MIN_SERVER:
        raise StoreUnavailable(
            f"The server is PostgreSQL {connection.info.server_version // 10_000}.",
            hint=f"Kept needs PostgreSQL {MIN_SERVER // 10_000} or later.",
        )


def _create_schema(connection: _Connection, schema: str) -> None:
    """Create the schema and the extensions, unless they exist: then no further rights are needed."""
    if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone():
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    for name in _missing_extensions(connection):
        # In the team's own schema, dropping that would drop the extension of the other teams.
        statement = sql.SQL("CREATE EXTENSION {} WITH SCHEMA public").format(sql.Identifier(name))
        try:
            with connection.transaction():
                connection.execute(statement)
        except (
            postgres_errors.InsufficientPrivilege,
            postgres_errors.FeatureNotSupported,
            postgres_errors.UndefinedFile,
        ):
            pass  # `_require_extensions` says which


def _require_extensions(connection: _Connection, schema: str) -> None:
    missing = _missing_extensions(connection)
    if missing:
        commands = " ".join(f"CREATE EXTENSION {name};" for name in missing)
        raise StoreUnavailable(
            f"The database lacks extensions that Kept needs: {', '.join(missing)}.",
            hint=f"Ask its administrator to install them and to run: {commands}",
        )
    set_search_path(connection, schema)  # it was set before they existed


def _missing_extensions(connection: _Connection) -> list[str]:
    rows = connection.execute("SELECT extname FROM pg_extension WHERE extname = ANY(%s)", [[*EXTENSIONS]]).fetchall()
    installed = {name for (name,) in rows}
    return [name for name in EXTENSIONS if name not in installed]
