"""Finds notes by their words in an index that no service has open: it is only read, without vectors and their cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from kept.config.agent_paths import AgentPaths
from kept.records import Filter
from kept.sqlite import connect_read_only, translated
from kept.store.filter_sql import filter_sql

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations", "index")


def find_notes(paths: AgentPaths, workspace: str, words: Iterable[str], filters: Filter, *, limit: int) -> list[str]:
    """Return the paths of the notes with the best passages that have any of the words, best first.

    An index that does not exist yet, or is that of another workspace, has none. Raise StoreError if it cannot be read.
    """
    own = paths.index_of(workspace)
    path = own if os.path.exists(own) else paths.index
    expression = " OR ".join(f'"{word}"' for word in words)
    if not expression or not os.path.exists(path):
        return []
    db = connect_read_only(path, _MIGRATIONS, noun="index")
    try:
        with translated(path, noun="index"):
            owner = db.execute("SELECT value FROM meta WHERE key = 'workspace'").get
            if owner is None or json.loads(owner) != workspace:
                return []
            where, values = filter_sql(filters)
            rows = db.execute(
                "SELECT c.path FROM chunks_fts JOIN chunks c ON c.row = chunks_fts.rowid"
                f" WHERE {where} AND chunks_fts MATCH ? ORDER BY bm25(chunks_fts) LIMIT ?",
                (*values, expression, limit),
            )
            return list(dict.fromkeys(str(path) for (path,) in rows))
    finally:
        db.close()
