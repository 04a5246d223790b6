"""Opens the storages of an agent: the one place that decides where documents and logs are kept."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from kept.config import Config
from kept.errors import DatabaseRefused
from kept.storage.contract import Storage
from kept.storage.files.file_storage import FileStorage

if TYPE_CHECKING:
    from kept.storage.postgres.database import Database

INBOX = "inbox.jsonl"
"""Log of an agent: the messages that its gateway accepted."""
INBOX_LEASE = "inbox"
"""Lease of an agent that whoever writes the inbox holds."""
GATEWAY_LEASE = "gateway"
"""Lease of a home that the process holds which answers messages."""


def open_workspace(config: Config) -> Storage:
    """Return the storage of the notes, with their history and what waits for review."""
    name = f"workspace:{config.agent_id}"
    return _open_in_database(config, name) if config.database else FileStorage(config.workspace)


def open_agent(config: Config) -> Storage:
    """Return the storage of an agent: its conversations, inbox, ledgers, schedules and receipts."""
    name = f"agent:{config.agent_id}"
    return _open_in_database(config, name) if config.database else FileStorage(config.paths.folder)


def open_agent_named(home: str, name: str) -> Storage:
    """Return the storage of any agent of a home."""
    return FileStorage(os.path.join(home, "agents", name))


def open_home(config: Config) -> Storage:
    """Return the storage that all agents share: tokens, and the name of this machine."""
    return _open_in_database(config, "home") if config.database else FileStorage(config.home)


def _open_in_database(config: Config, name: str) -> Storage:
    database = open_database(config.database)
    from kept.storage.postgres.postgres_storage import PostgresStorage

    return PostgresStorage(database, name)


@cache
def open_database(address: str) -> Database:
    """Return the database at an address, with its tables up to date. A process has one pool of connections for each."""
    try:
        from kept.storage.postgres.database import Database
    except ImportError as exc:
        hint = "Install it: pip install 'kept[postgres]'"
        raise DatabaseRefused("A memory in PostgreSQL needs the package 'psycopg'.", hint=hint) from exc
    database = Database.at(address)
    database.migrate()
    return database


def open_folder(path: str) -> Storage:
    """Return the storage in a folder."""
    return FileStorage(path)


def open_extra(path: str) -> Storage:
    """Return the storage that has a file or folder from elsewhere, by the last part of its path. It is only read.

    So the file or folder itself must not be a link, as nothing in a storage; what it is in may be one.
    """
    return FileStorage(os.path.dirname(path), is_read_only=True)
