"""Lines in any note that a new fact repeats or seems to change.

The word index tells which notes share words with the fact; vectors are not read, and no embedder is opened, so that
adding a line stays quick. The index is used as it is: a note that was written since the last search is not compared.

The reads here are from an index that no service has open: nothing is created, updated or repaired.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.records import Filter, NearFact
from kept.base.sqlite import connect_read_only, translated
from kept.errors import KeptError
from kept.index.sqlite.filter_sql import filter_sql
from kept.notes.fact_match import match_notes, may_be_fact
from kept.notes.workspace import Workspace

if TYPE_CHECKING:
    from kept.config.agent_config import AgentPaths

_COMPARED_PASSAGES = 6


def find_indexed_near(
    paths: AgentPaths, workspace: Workspace, text: str, filters: Filter, *, max_bytes: int
) -> list[NearFact]:
    """Return the lines that a new fact repeats or seems to change. A problem with the index means that there are none:
    it is no reason not to write."""
    if not may_be_fact(text) or not text.strip():
        return []
    from kept.base.words.stopwords import content_words

    filters = replace(filters, sources=("memory",))
    try:
        with_words = find_notes(paths, workspace.root, content_words(text), filters, limit=_COMPARED_PASSAGES)
    except KeptError:
        return []
    return match_notes(workspace, text, with_words, max_bytes=max_bytes)


_MIGRATIONS = os.path.join(os.path.dirname(__file__), "sqlite", "migrations", "index")


def find_notes(paths: AgentPaths, workspace: str, words: Iterable[str], filters: Filter, *, limit: int) -> list[str]:
    """Return the paths of the notes with the best passages that have any of the words, best first.

    An index that does not exist yet, or is that of another workspace, has none. Raise StoreError if it cannot be read.
    """
    expression = " OR ".join(f'"{word}"' for word in words)
    own = paths.index_of(workspace)
    path = own if os.path.exists(own) else paths.index
    if not expression or not os.path.exists(path):
        return []
    where, values = filter_sql(filters)
    query = (
        "SELECT c.path FROM chunks_fts JOIN chunks c ON c.row = chunks_fts.rowid"
        f" WHERE {where} AND chunks_fts MATCH ? ORDER BY bm25(chunks_fts) LIMIT ?"
    )
    db = connect_read_only(path, _MIGRATIONS, noun="index")
    try:
        with translated(path, noun="index"):
            owner = db.execute("SELECT value FROM meta WHERE key = 'workspace'").get
            if owner is None or json.loads(owner) != workspace:
                return []
            rows = db.execute(query, (*values, expression, limit))
            return list(dict.fromkeys(str(name) for (name,) in rows))
    finally:
        db.close()
