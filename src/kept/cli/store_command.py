"""kept store init | status | migrate | copy | grant | revoke | drop"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, json_option, print_json, warn
from kept.cli.root import Globals
from kept.errors import UsageError
from kept.wording import size_text

if TYPE_CHECKING:
    from kept.config import Config
    from kept.postgres.database import Database
    from kept.postgres.schema_migrations import PartVersion, SchemaStatus

_NOT_READY = 6
_STATES = {
    "missing": "not set up; run 'kept store init'",
    "outdated": "older than this Kept; run 'kept store migrate'",
    "ready": "ready",
    "too_new": "newer than this Kept; upgrade Kept on this machine",
}


@click.group("store")
def command() -> None:
    """Set up and check the database that the machines of a team share.

    Most people need none: the memory is in files and in SQLite. With memory_search.store.driver postgres, several
    machines share one memory.
    """


@command.command("init")
@json_option
@click.pass_obj
def init(options: Globals, as_json: bool) -> None:
    """Create the schema of the team and its tables. Run again, it changes nothing."""
    _migrate(options, create=True, as_json=as_json)


@command.command("migrate")
@json_option
@click.pass_obj
def migrate(options: Globals, as_json: bool) -> None:
    """Bring the tables to the version of this Kept. Upgrade all machines first."""
    _migrate(options, create=False, as_json=as_json)


@command.command("copy")
@click.option(
    "--to", "target", required=True, type=click.Choice(["postgres", "sqlite"]), help="Store that gets the copy."
)
@json_option
@click.pass_obj
def copy(options: Globals, target: str, as_json: bool) -> None:
    """Copy the index of the workspace to the other store, and compare the two. Nothing is embedded again."""
    from kept.indexing.copy_index import copy_index

    with options.memory() as memory:
        report = copy_index(memory.index_service, to_postgres=target == "postgres")
    if as_json:
        print_json({"from": report.source, "to": report.target, "chunks": report.chunks})
    else:
        echo(f"{report.chunks:,} chunks were copied from {report.source} to {report.target}, and are the same in both.")


@command.command("status")
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show where the memory is stored, and whether this Kept can use it. Exit with 6 if it cannot."""
    options: Globals = ctx.obj
    config = options.load().config
    if not config.memory_search.store.is_shared:
        shape = _file_status(config)
        print_json(shape) if as_json else echo(_file_text(shape))
        return
    from kept.postgres.open_database import open_database
    from kept.postgres.schema_migrations import read_status

    status = read_status(open_database(config.memory_search.store))
    if as_json:
        print_json(_status_json(status))
    else:
        echo(f"PostgreSQL {status.server}, schema {status.schema}: {_STATES[status.state]}")
        echo(f"Tables: {_versions_text(status.parts)}; {size_text(status.bytes)}")
    if status.state != "ready":
        ctx.exit(_NOT_READY)


@command.command("grant")
@click.argument("role")
@click.option("--read-only", is_flag=True, help="The role may search, but not index or answer messages.")
@json_option
@click.pass_obj
def grant(options: Globals, role: str, read_only: bool, as_json: bool) -> None:
    """Let ROLE, a role of the database, use the schema of this team, and no other schema.

    The role replaces the rights that it had there. Run it as the role that created the schema.
    """
    database = _open_database(options)
    from kept.postgres.role_rights import grant_rights

    grant_rights(database, role, read_only=read_only)
    rights = "read" if read_only else "write"
    if as_json:
        print_json({"schema": database.schema, "role": role, "rights": rights})
    else:
        echo(f"The role {role} may {'read' if read_only else 'read and write'} the schema {database.schema}.")


@command.command("revoke")
@click.argument("role")
@json_option
@click.pass_obj
def revoke(options: Globals, role: str, as_json: bool) -> None:
    """Take all rights on the schema of this team from ROLE. Exit with 6 if it still has some through another role."""
    database = _open_database(options)
    from kept.postgres.role_rights import revoke_rights

    rights = revoke_rights(database, role)
    if as_json:
        print_json({"schema": database.schema, "role": role, "rights": rights})
    elif rights == "none":
        echo(f"The role {role} has no rights on the schema {database.schema}.")
    else:
        warn(f"The role {role} may still {rights}: it is a superuser, or a member of a role that may.")
    if rights != "none":
        raise click.exceptions.Exit(_NOT_READY)


@command.command("drop")
@click.option("--yes", "confirmed", metavar="SCHEMA", help="Name of the schema, instead of typing it.")
@json_option
@click.pass_obj
def drop(options: Globals, confirmed: str | None, as_json: bool) -> None:
    """Remove the schema of this team with all its tables, for all machines. It cannot be undone.

    Notes and conversations are files and stay; messages, schedules and usage in the database are gone.
    """
    database = _open_database(options)
    from kept.postgres.role_rights import drop_schema
    from kept.postgres.schema_migrations import read_status

    size = read_status(database).bytes
    if confirmed is None:
        confirmed = _ask_schema(database.schema, size)
    if confirmed != database.schema:
        raise UsageError(f"Nothing was removed: the schema of this team is {database.schema}, not '{confirmed}'.")
    drop_schema(database)
    if as_json:
        print_json({"schema": database.schema, "bytes": size})
    else:
        echo(f"The schema {database.schema} was removed ({size_text(size)}).")


def _ask_schema(schema: str, size: int) -> str:
    if not sys.stdin.isatty():
        raise UsageError("Nothing was removed: there is no terminal to ask on.", hint=f"Confirm with --yes {schema}.")
    text = f"This removes {size_text(size)} of the whole team. Type the name of its schema ({schema})"
    return str(click.prompt(text, err=True)).strip()


def _open_database(options: Globals) -> Database:
    from kept.postgres.open_database import open_database

    return open_database(options.load().config.memory_search.store)


def _migrate(options: Globals, *, create: bool, as_json: bool) -> None:
    database = _open_database(options)
    from kept.postgres.schema_migrations import migrate

    parts = migrate(database, create=create)
    changed = [part for part in parts if part.version < part.newest]
    if as_json:
        print_json({"schema": database.schema, "changed": bool(changed), "parts": [_part_json(part) for part in parts]})
    elif changed:
        steps = ", ".join(f"{part.part} {part.version} → {part.newest}" for part in changed)
        echo(f"Schema {database.schema} is ready ({steps}).")
    else:
        echo(f"Nothing to do: schema {database.schema} is ready.")


def _file_status(config: Config) -> dict[str, Any]:
    from kept.store.index import find_index_path

    named = config.memory_search.store.path
    path = os.path.abspath(os.path.expanduser(named)) if named else find_index_path(config.paths, config.workspace)
    return {"driver": "sqlite", "path": path, "bytes": os.path.getsize(path) if os.path.exists(path) else 0}


def _file_text(shape: dict[str, Any]) -> str:
    size = size_text(shape["bytes"]) if os.path.exists(shape["path"]) else "not made yet; 'kept index' makes it"
    return f"SQLite: {shape['path']} ({size})"


def _versions_text(parts: tuple[PartVersion, ...]) -> str:
    return ", ".join(f"{part.part} {part.version} of {part.newest}" for part in parts)


def _part_json(part: PartVersion) -> dict[str, Any]:
    return {"part": part.part, "version": part.version, "newest": part.newest}


def _status_json(status: SchemaStatus) -> dict[str, Any]:
    return {
        "driver": "postgres",
        "schema": status.schema,
        "state": status.state,
        "server": status.server,
        "parts": [_part_json(part) for part in status.parts],
        "extensions": dict(status.extensions),
        "bytes": status.bytes,
    }
