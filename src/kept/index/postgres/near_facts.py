"""Notes in a database that may have a line which a new fact repeats or changes, found with one statement."""

from __future__ import annotations

from kept.base.records import Filter
from kept.base.words.stopwords import content_words
from kept.index.postgres.filter_sql import filter_sql
from kept.index.postgres.stems import stems_of
from kept.storage.postgres.database import Database

_NOTES = """
WITH i AS (SELECT live AS space FROM kept.indexes WHERE name = %(name)s), s AS (
    SELECT s.id, greatest(ln((p.chunks - s.docs + 0.5) / (s.docs + 0.5)), 1e-6) AS rarity
    FROM i JOIN kept.spaces p ON p.id = i.space JOIN kept.stems s ON s.space = i.space
    WHERE s.stem = ANY(%(stems)s) AND s.docs > 0
)
SELECT c.path FROM i JOIN kept.chunks c ON c.space = i.space
WHERE c.source = 'memory' AND c.stems && (SELECT array_agg(id) FROM s) AND {where}
ORDER BY (SELECT sum(rarity) FROM s WHERE s.id = ANY(c.stems)) DESC, c.timestamp DESC, c.path LIMIT %(limit)s
"""


def find_notes_in_database(database: Database, name: str, text: str, filters: Filter, *, limit: int) -> list[str]:
    """Return the paths of the notes with the passages that share most with a text, best first. ``name`` is that of the
    index. One that does not exist yet has none."""
    stems = stems_of(" ".join(content_words(text)))
    where, values = filter_sql(filters)
    rows = database.query(_NOTES.format(where=where), name=name, stems=stems, limit=limit, **values) if stems else []
    return list(dict.fromkeys(path for (path,) in rows))
