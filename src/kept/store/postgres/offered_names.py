"""Names in the index of a team that begin with given letters, for completion in a shell.

A person waits for the Tab key: nothing is offered if the database does not answer soon.
"""

from __future__ import annotations

from typing import Literal

from kept.config import Config
from kept.errors import StoreError
from kept.postgres.open_database import open_database
from kept.store.postgres.storable import storable
from kept.store.postgres.workspace_name import name_workspace

NameKind = Literal["notes", "tags", "channels"]

_CONNECT_TIMEOUT_S = 2
_STATEMENT_TIMEOUT_S = 1.0
_LIVE = "generation = (SELECT live FROM workspaces WHERE name = %(workspace)s)"
_QUERIES: dict[NameKind, str] = {
    "notes": (
        f"SELECT path FROM index_files WHERE {_LIVE} AND source = 'memory' AND starts_with(path, %(start)s)"
        " ORDER BY path LIMIT %(limit)s"
    ),
    "tags": (
        f"SELECT min(tag) FROM note_tags WHERE {_LIVE} AND starts_with(key, %(start)s)"
        " GROUP BY key ORDER BY key LIMIT %(limit)s"
    ),
    "channels": (
        f"SELECT DISTINCT channel FROM chunks WHERE {_LIVE} AND session_key IS NOT NULL"
        " AND starts_with(channel, %(start)s) LIMIT %(limit)s"
    ),
}


def find_names(config: Config, kind: NameKind, start: str, *, limit: int) -> list[str]:
    """Return names that begin with a text. There are none if the database cannot be asked."""
    workspace = storable(name_workspace(config, config.workspace))
    values = {"workspace": workspace, "start": storable(start), "limit": limit}
    try:
        database = open_database(config.memory_search.store)
        with database.session(connect_timeout_s=_CONNECT_TIMEOUT_S) as connection:
            connection.execute("SELECT set_config('statement_timeout', %s, false)", [f"{_STATEMENT_TIMEOUT_S}s"])
            return [str(name) for (name,) in connection.execute(_QUERIES[kind], values)]
    except StoreError:
        return []
