"""What notes say of themselves: names, tags and links, and lists of files. Reads one space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.base.listings import FoundLink
from kept.base.records import Filter, Source
from kept.base.words.stopwords import content_words
from kept.index.postgres.filter_sql import filter_sql, hidden_notes_sql
from kept.index.postgres.stems import stems_of
from kept.index.sqlite.file_list import FIRST_CHUNKS, ListedRow, Opening, about_files
from kept.index.sqlite.rows import ALIAS, TITLE

if TYPE_CHECKING:
    from kept.index.postgres.generation import PostgresGeneration
    from kept.storage.postgres.database import Database

_LINK_COLUMNS = "path, line, target, heading, label, embed, by_path"
_FILE_KEY = (
    "(SELECT t.session_key FROM kept.chunks t WHERE t.space = c.space AND t.source = c.source AND t.path = c.path"
    " LIMIT 1)"
)


class PostgresNotes:
    def __init__(self, generation: PostgresGeneration) -> None:
        self._run = generation.run

    # names

    def paths_named(self, key: str) -> list[tuple[str, int]]:
        query = "SELECT path, kind FROM kept.note_names WHERE space = %(space)s AND key = %(key)s ORDER BY kind, path"
        return self._run(query, key=key)

    def names_of(self, path: str) -> list[tuple[str, str]]:
        query = "SELECT key, name FROM kept.note_names WHERE space = %(space)s AND path = %(path)s ORDER BY kind, key"
        return self._run(query, path=path)

    def find_title(self, path: str) -> str | None:
        rows = self._run("SELECT title FROM kept.notes WHERE space = %(space)s AND path = %(path)s", path=path)
        return rows[0][0] if rows else None

    def given_titles(self, paths: Iterable[str]) -> dict[str, list[str]]:
        titles: dict[str, list[str]] = {}
        query = (
            "SELECT path, name FROM kept.note_names"
            " WHERE space = %(space)s AND path = ANY(%(paths)s) AND kind = ANY(%(kinds)s)"
        )
        for path, name in self._run(query, paths=list(paths), kinds=[TITLE, ALIAS]):
            titles.setdefault(path, []).append(name)
        return titles

    # tags

    def count_tags(self, filters: Filter) -> list[tuple[str, str, int]]:
        where, values = hidden_notes_sql(filters)
        query = "SELECT key, min(tag), count(DISTINCT path) FROM kept.note_tags c WHERE space = %(space)s AND "
        return self._run(f"{query}{where} GROUP BY key", **values)

    def tags_of(self, path: str) -> list[str]:
        where = "space = %(space)s AND path = %(path)s"
        rows = self._run(f"SELECT min(tag) FROM kept.note_tags WHERE {where} GROUP BY key ORDER BY key", path=path)
        return [tag for (tag,) in rows]

    # links

    def links_from(self, path: str) -> list[tuple[str, FoundLink]]:
        return self._links("path = %(path)s ORDER BY line, number", path=path)

    def links_by_key(self, keys: Iterable[str]) -> list[tuple[str, FoundLink]]:
        return self._links("key = ANY(%(keys)s) ORDER BY path, line, number", keys=list(keys))

    def all_links(self) -> list[tuple[str, FoundLink]]:
        return self._links("true ORDER BY path, line, number")

    def _links(self, where: str, **values: Any) -> list[tuple[str, FoundLink]]:
        rows = self._run(f"SELECT {_LINK_COLUMNS} FROM kept.note_links WHERE space = %(space)s AND {where}", **values)
        return [(path, FoundLink(*columns)) for path, *columns in rows]


class PostgresFileLists:
    def __init__(self, generation: PostgresGeneration) -> None:
        self._run = generation.run

    def by_time(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]:
        """Return the files with a chunk that passes the filter, newest first, and how many there are in all."""
        where, values = filter_sql(filters)
        moments = (
            "SELECT source, path, max(timestamp) AS moment FROM kept.chunks c"
            f" WHERE space = %(space)s AND {where} GROUP BY source, path"
        )
        if filters == about_files(filters):  # an empty note has no chunk
            file_where, _ = filter_sql(filters, key=_FILE_KEY)  # whose values are the same
            moments += (
                " UNION ALL SELECT source, path, mtime_ns / 1000000 FROM kept.files c WHERE space = %(space)s"
                f" AND {file_where} AND NOT EXISTS (SELECT FROM kept.chunks t WHERE t.space = c.space"
                " AND t.source = c.source AND t.path = c.path)"
            )
        newest = f"SELECT *, count(*) OVER () AS total FROM ({moments}) m ORDER BY moment DESC, path"
        newest += " LIMIT %(limit)s OFFSET %(offset)s"
        query = (
            f"SELECT f.source, f.path, f.size, f.mtime_ns, moment, total FROM ({newest}) n"
            " JOIN kept.files f ON f.space = %(space)s AND f.source = n.source AND f.path = n.path"
            " ORDER BY moment DESC, f.path"
        )
        return _listed(self._run(query, **values, limit=limit, offset=offset))

    def by_change(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]:
        """Return the files that changed in a time, the last change first: a note with its file, a conversation with
        what is said in it."""
        where, values = filter_sql(about_files(filters), key=_FILE_KEY)
        since = filters.since_ms if filters.since_ms is not None else -(2**62)
        until = filters.until_ms if filters.until_ms is not None else 2**62
        moments = (
            "SELECT c.source, c.path, c.size, c.mtime_ns, coalesce(CASE c.source WHEN 'sessions' THEN (SELECT"
            " t.timestamp FROM kept.chunks t WHERE t.space = c.space AND t.source = c.source AND t.path = c.path"
            " ORDER BY t.start_line DESC LIMIT 1) END, c.mtime_ns / 1000000) AS moment"
            f" FROM kept.files c WHERE c.space = %(space)s AND {where}"
        )
        query = (
            f"SELECT *, count(*) OVER () FROM ({moments}) m WHERE moment >= %(since)s AND moment < %(until)s"
            " ORDER BY moment DESC, path LIMIT %(limit)s OFFSET %(offset)s"
        )
        return _listed(self._run(query, **values, since=since, until=until, limit=limit, offset=offset))

    def find_opening(self, row: ListedRow) -> Opening | None:
        chunks = self._run(
            "SELECT heading, text, session_key, channel FROM kept.chunks"
            " WHERE space = %(space)s AND source = %(source)s AND path = %(path)s"
            " ORDER BY start_line, row LIMIT %(most)s",
            source=row.source,
            path=row.path,
            most=FIRST_CHUNKS,
        )
        if not chunks:
            return None
        heading, _, session_key, channel = chunks[0]
        return Opening(heading, tuple(chunk[1] for chunk in chunks), session_key, channel)

    def count_days(self, filters: Filter) -> list[tuple[str, Source, int]]:
        """Return how many passages of each source are from each day of the local time zone, by day."""
        import datetime as dt
        from collections import Counter

        where, values = filter_sql(filters)
        rows = self._run(
            f"SELECT c.timestamp, c.source FROM kept.chunks c WHERE space = %(space)s AND {where}", **values
        )
        # The time zone is that of this machine, with the rules that it had on each day.
        days = Counter((str(dt.datetime.fromtimestamp(ms // 1000).date()), source) for ms, source in rows)
        return [(day, source, count) for (day, source), count in sorted(days.items())]

    def note_paths(self) -> list[str]:
        query = "SELECT path FROM kept.files WHERE space = %(space)s AND source = 'memory' ORDER BY path"
        return [path for (path,) in self._run(query)]

    def has_file(self, filters: Filter) -> bool:
        where, values = filter_sql(about_files(replace(filters, sources=())), key=_FILE_KEY)
        return bool(self._run(f"SELECT 1 FROM kept.files c WHERE space = %(space)s AND {where} LIMIT 1", **values))

    def entry_rows(self, filters: Filter) -> list[tuple[int, str, str, int]]:
        where, values = filter_sql(filters)
        query = f"SELECT c.row, c.source, c.path, c.timestamp FROM kept.chunks c WHERE space = %(space)s AND {where}"
        return self._run(f"{query} ORDER BY c.source, c.path, c.start_line, c.row", **values)


def _listed(rows: Sequence[Any]) -> tuple[list[ListedRow], int]:
    return [ListedRow(*columns) for *columns, _ in rows], rows[0][-1] if rows else 0


# notes that may have a line which a new fact repeats or changes

_SIMILAR_NOTES = """
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
    rows = (
        database.query(_SIMILAR_NOTES.format(where=where), name=name, stems=stems, limit=limit, **values)
        if stems
        else []
    )
    return list(dict.fromkeys(path for (path,) in rows))
