"""Notes that may have a line which a new fact repeats or changes.

The word index tells which share words with the fact; vectors are not read, and no embedder is opened, so that adding a
line stays quick. The index is used as it is: a note that was written since the last search is not compared.

The reads here are from an index that no service has open: nothing is created, updated or repaired.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import apsw

from kept.base.records import Filter
from kept.base.sqlite import connect_read_only
from kept.errors import KeptError
from kept.index.sqlite.filter_sql import filter_sql
from kept.storage.open import open_database

if TYPE_CHECKING:
    from kept.config import Config

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "sqlite", "migrations", "index")


def find_notes(config: Config, text: str, filters: Filter, *, limit: int) -> list[str]:
    """Return the paths of the notes with the best passages that share a word with a text, best first.

    An index that does not exist yet, or is that of another workspace, has none. Neither has one that cannot be read:
    it is no reason not to write.
    """
    if config.database:
        from kept.index.postgres.notes import find_notes_in_database

        name = f"workspace:{config.agent_id}"
        with suppress(KeptError):
            return find_notes_in_database(open_database(config.database), name, text, filters, limit=limit)
        return []
    from kept.base.words.stopwords import content_words

    expression = " OR ".join(f'"{word}"' for word in content_words(text))
    workspace = os.path.abspath(config.workspace)
    path = config.paths.find_index(workspace)
    if not expression or not os.path.exists(path):
        return []
    where, values = filter_sql(replace(filters, sources=("memory",)))
    query = (
        "SELECT c.path FROM chunks_fts JOIN chunks c ON c.row = chunks_fts.rowid"
        f" WHERE {where} AND chunks_fts MATCH ? ORDER BY bm25(chunks_fts) LIMIT ?"
    )
    try:
        with closing(connect_read_only(path, _MIGRATIONS, noun="index")) as db:
            owner = db.execute("SELECT value FROM meta WHERE key = 'workspace'").get
            if owner is None or json.loads(owner) != workspace:
                return []
            rows = db.execute(query, (*values, expression, limit))
            return list(dict.fromkeys(str(name) for (name,) in rows))
    except (apsw.Error, KeptError):
        return []
