"""Lists of indexed files: by the time that they are from, by their last change, or by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import apsw

from kept.base.records import Filter, Source
from kept.base.values import frozen
from kept.index.sqlite.filter_sql import filter_sql

# Enough for a title and the words after it.
FIRST_CHUNKS = 3


@frozen
class ListedRow:
    """A file in a list, with the time that it is listed under."""

    source: Source
    path: str
    size: int
    mtime_ns: int
    timestamp_ms: int


@frozen
class Opening:
    """Beginning of a file: the first chunks, and the conversation that it is from."""

    heading: str
    texts: tuple[str, ...]
    session_key: str | None
    channel: str | None


@frozen
class FileLists:
    """Lists of the files of one generation. Callers hold the transaction."""

    db: apsw.Connection
    prefix: str

    def by_time(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]:
        """Return the files with a chunk that passes the filter, newest first, and how many there are in all."""
        where, values = filter_sql(filters)
        file_where, file_values = self._file_filter(filters)
        moments = f"SELECT source, path, max(timestamp) AS moment FROM {self.prefix}chunks c WHERE {where}"
        moments += " GROUP BY source, path"
        if filters == about_files(filters):  # an empty note has no chunk
            moments += (
                f" UNION ALL SELECT source, path, mtime_ns / 1000000 FROM {self.prefix}files c WHERE {file_where}"
                f" AND NOT EXISTS (SELECT 1 FROM {self.prefix}chunks t WHERE t.source = c.source AND t.path = c.path)"
            )
            values = [*values, *file_values]
        newest = f"SELECT *, count(*) OVER () AS total FROM ({moments}) ORDER BY moment DESC, path LIMIT ? OFFSET ?"
        query = (
            f"SELECT f.source, f.path, f.size, f.mtime_ns, moment, total FROM ({newest})"
            f" JOIN {self.prefix}files f USING (source, path) ORDER BY moment DESC, path"
        )
        return self._rows(query, [*values, limit, offset])

    def by_change(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]:
        """Return the files that changed in a time, the last change first, and how many there are in all.

        A note changes with its file, a conversation with what is said in it: an import writes all files at once.
        """
        where, values = self._file_filter(filters)
        query = (
            "SELECT c.source, c.path, c.size, c.mtime_ns, coalesce(CASE c.source WHEN 'sessions' THEN"
            f" (SELECT t.timestamp FROM {self.prefix}chunks t WHERE t.source = c.source AND t.path = c.path"
            " ORDER BY t.start_line DESC LIMIT 1) END, c.mtime_ns / 1000000) AS moment, count(*) OVER ()"
            f" FROM {self.prefix}files c WHERE {where} AND moment >= ? AND moment < ?"
            " ORDER BY moment DESC, c.path LIMIT ? OFFSET ?"
        )
        since = filters.since_ms if filters.since_ms is not None else -(2**62)
        until = filters.until_ms if filters.until_ms is not None else 2**62
        return self._rows(query, [*values, since, until, limit, offset])

    def _file_filter(self, filters: Filter) -> tuple[str, list[Any]]:
        """Return the condition on files: `files c` has the columns source and path, as chunks have, but no key."""
        key = f"(SELECT t.session_key FROM {self.prefix}chunks t WHERE t.source = c.source AND t.path = c.path LIMIT 1)"
        return filter_sql(about_files(filters), key=key)

    def _rows(self, query: str, values: list[Any]) -> tuple[list[ListedRow], int]:
        rows: list[ListedRow] = []
        total = 0
        for *columns, total in self.db.execute(query, values):  # noqa: B007 (the same in every row)
            rows.append(ListedRow(*columns))
        return rows, total

    def find_opening(self, row: ListedRow) -> Opening | None:
        """Return the beginning of a file, or None if it is empty."""
        query = (
            f"SELECT heading, text, session_key, channel FROM {self.prefix}chunks"
            " WHERE source = ? AND path = ? ORDER BY start_line, row LIMIT ?"
        )
        chunks: list[Any] = self.db.execute(query, (row.source, row.path, FIRST_CHUNKS)).fetchall()
        if not chunks:
            return None
        heading, _, session_key, channel = chunks[0]
        return Opening(heading, tuple(chunk[1] for chunk in chunks), session_key, channel)

    def count_days(self, filters: Filter) -> list[tuple[str, Source, int]]:
        """Return how many passages of each source are from each day of the local time zone, by day."""
        where, values = filter_sql(filters)
        query = (
            "SELECT date(c.timestamp / 1000, 'unixepoch', 'localtime') AS day, c.source, count(*)"
            f" FROM {self.prefix}chunks c WHERE {where} GROUP BY day, c.source ORDER BY day, c.source"
        )
        rows: list[Any] = self.db.execute(query, values).fetchall()
        return rows

    def note_paths(self) -> list[str]:
        query = f"SELECT path FROM {self.prefix}files WHERE source = 'memory' ORDER BY path"
        return [path for (path,) in self.db.execute(query)]

    def has_file(self, filters: Filter) -> bool:
        """Return whether any indexed file passes the filter's path."""
        where, values = self._file_filter(replace(filters, sources=()))
        return self.db.execute(f"SELECT 1 FROM {self.prefix}files c WHERE {where} LIMIT 1", values).get is not None

    def entry_rows(self, filters: Filter) -> list[tuple[int, str, str, int]]:
        """Return row, source, path and timestamp of every chunk that passes the filter, in the order of the files."""
        where, values = filter_sql(filters)
        query = (
            f"SELECT c.row, c.source, c.path, c.timestamp FROM {self.prefix}chunks c WHERE {where}"
            " ORDER BY c.source, c.path, c.start_line, c.row"
        )
        rows: list[Any] = self.db.execute(query, values).fetchall()
        return rows


def about_files(filters: Filter) -> Filter:
    """Return the part of a filter that is about whole files."""
    return Filter(sources=filters.sources, path=filters.path, scope=filters.scope, viewer=filters.viewer)
