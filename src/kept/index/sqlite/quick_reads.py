"""Reads from an index that no service has open: nothing is created, updated or repaired, and no vector is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from kept.base.records import Filter
from kept.base.sqlite import connect_read_only, translated
from kept.config.agent_paths import AgentPaths
from kept.index.sqlite.filter_sql import filter_sql

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations", "index")


def find_notes(paths: AgentPaths, workspace: str, words: Iterable[str], filters: Filter, *, limit: int) -> list[str]:
    """Return the paths of the notes with the best passages that have any of the words, best first."""
    expression = " OR ".join(f'"{word}"' for word in words)
    where, values = filter_sql(filters)
    query = (
        "SELECT c.path FROM chunks_fts JOIN chunks c ON c.row = chunks_fts.rowid"
        f" WHERE {where} AND chunks_fts MATCH ? ORDER BY bm25(chunks_fts) LIMIT ?"
    )
    rows = _read(paths, workspace, query, (*values, expression, limit)) if expression else ()
    return list(dict.fromkeys(rows))


def _read(paths: AgentPaths, workspace: str, query: str, values: tuple[Any, ...]) -> list[str]:
    """Return the texts that a query selects. An index that does not exist yet, or is that of another workspace, has
    none. Raise StoreError if it cannot be read."""
    own = paths.index_of(workspace)
    path = own if os.path.exists(own) else paths.index
    if not os.path.exists(path):
        return []
    db = connect_read_only(path, _MIGRATIONS, noun="index")
    try:
        with translated(path, noun="index"):
            owner = db.execute("SELECT value FROM meta WHERE key = 'workspace'").get
            if owner is None or json.loads(owner) != workspace:
                return []
            return [str(text) for (text,) in db.execute(query, values)]
    finally:
        db.close()
