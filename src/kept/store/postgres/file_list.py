"""Lists of indexed files, by generation: by the time that they are from, by their last change, or by name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kept.records import Filter, Source
from kept.store.file_list import FIRST_CHUNKS, ListedRow, Opening, about_files
from kept.store.postgres.filter_sql import filter_sql
from kept.store.postgres.index_session import IndexSession

_OF_FILE = "t.generation = c.generation AND t.source = c.source AND t.path = c.path"
_KEY = f"(SELECT t.session_key FROM chunks t WHERE {_OF_FILE} LIMIT 1)"


class PostgresLists:
    """Lists of the files of one generation. Callers hold the transaction."""

    def __init__(self, session: IndexSession, generation: Callable[[], int]) -> None:
        self._session = session
        self._generation = generation

    def by_time(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]:
        """Return the files with a chunk that passes the filter, newest first, and how many there are in all."""
        generation = self._generation()
        where, values = filter_sql(filters)
        moments = (
            "SELECT source, path, max(timestamp) AS moment FROM chunks c"
            f" WHERE c.generation = %s AND {where} GROUP BY source, path"
        )
        values = [generation, *values]
        if filters == about_files(filters):  # an empty note has no chunk
            file_where, file_values = filter_sql(about_files(filters), key=_KEY)
            moments += (
                " UNION ALL SELECT source, path, mtime_ns / 1000000 FROM index_files c"
                f" WHERE c.generation = %s AND {file_where} AND NOT EXISTS (SELECT 1 FROM chunks t WHERE {_OF_FILE})"
            )
            values += [generation, *file_values]
        query = (
            "SELECT f.source, f.path, f.size, f.mtime_ns, moment, total FROM"
            f" (SELECT *, count(*) OVER () AS total FROM ({moments}) m ORDER BY moment DESC, path LIMIT %s OFFSET %s) n"
            " JOIN index_files f ON f.generation = %s AND f.source = n.source AND f.path = n.path"
            " ORDER BY moment DESC, f.path"
        )
        return self._rows(query, [*values, limit, offset, generation])

    def by_change(self, filters: Filter, limit: int, offset: int = 0) -> tuple[list[ListedRow], int]:
        """Return the files that changed in a time, the last change first, and how many there are in all."""
        where, values = filter_sql(about_files(filters), key=_KEY)
        moments = (
            "SELECT c.source, c.path, c.size, c.mtime_ns, coalesce(CASE c.source WHEN 'sessions' THEN"
            f" (SELECT t.timestamp FROM chunks t WHERE {_OF_FILE} ORDER BY t.start_line DESC LIMIT 1) END,"
            f" c.mtime_ns / 1000000) AS moment FROM index_files c WHERE c.generation = %s AND {where}"
        )
        query = (
            f"SELECT *, count(*) OVER () FROM ({moments}) m WHERE moment >= %s AND moment < %s"
            " ORDER BY moment DESC, path LIMIT %s OFFSET %s"
        )
        since = filters.since_ms if filters.since_ms is not None else -(2**62)
        until = filters.until_ms if filters.until_ms is not None else 2**62
        return self._rows(query, [self._generation(), *values, since, until, limit, offset])

    def _rows(self, query: str, values: list[Any]) -> tuple[list[ListedRow], int]:
        rows = self._session.fetch(query, values)
        return [ListedRow(*columns) for *columns, _ in rows], int(rows[-1][-1]) if rows else 0

    def find_opening(self, row: ListedRow) -> Opening | None:
        """Return the beginning of a file, or None if it is empty."""
        query = (
            "SELECT heading, text, session_key, channel FROM chunks"
            " WHERE generation = %s AND source = %s AND path = %s ORDER BY start_line, row LIMIT %s"
        )
        chunks = self._session.fetch(query, [self._generation(), row.source, row.path, FIRST_CHUNKS])
        if not chunks:
            return None
        heading, _, session_key, channel = chunks[0]
        return Opening(heading.decode(), tuple(chunk[1].decode() for chunk in chunks), session_key, channel)

    def count_days(self, filters: Filter) -> list[tuple[str, Source, int]]:
        """Return how many passages of each source are from each day of the local time zone, by day."""
        where, values = filter_sql(filters)
        query = (
            "SELECT c.timestamp / 60000 AS minute, c.source, count(*) FROM chunks c"
            f" WHERE c.generation = %s AND {where} GROUP BY minute, c.source"
        )
        days: dict[tuple[str, Source], int] = {}
        for minute, source, count in self._session.fetch(query, [self._generation(), *values]):
            key = dt.datetime.fromtimestamp(minute * 60).date().isoformat(), source
            days[key] = days.get(key, 0) + count
        return [(day, source, count) for (day, source), count in sorted(days.items())]

    def note_headings(self) -> dict[str, str]:
        """Return the headings above the first chunk of every note that has some, by path."""
        query = (
            "SELECT DISTINCT ON (path) path, heading FROM chunks"
            " WHERE generation = %s AND source = 'memory' AND heading <> ''::bytea ORDER BY path, start_line, row"
        )
        return {path: heading.decode() for path, heading in self._session.fetch(query, [self._generation()])}

    def note_paths(self) -> list[str]:
        query = "SELECT path FROM index_files WHERE generation = %s AND source = 'memory' ORDER BY path"
        return [path for (path,) in self._session.fetch(query, [self._generation()])]

    def channels(self, filters: Filter) -> list[str]:
        """Return the channels that conversations are on, of those that the viewer sees."""
        where, values = filter_sql(Filter(viewer=filters.viewer))
        query = (
            f"SELECT DISTINCT channel FROM chunks c WHERE generation = %s AND channel IS NOT NULL AND {where}"
            " ORDER BY channel"
        )
        return [channel for (channel,) in self._session.fetch(query, [self._generation(), *values])]

    def has_file(self, filters: Filter) -> bool:
        """Return whether any indexed file passes the filter's path."""
        where, values = filter_sql(about_files(replace(filters, sources=())), key=_KEY)
        query = f"SELECT 1 FROM index_files c WHERE c.generation = %s AND {where} LIMIT 1"
        return bool(self._session.fetch(query, [self._generation(), *values]))

    def entry_rows(self, filters: Filter) -> list[tuple[int, str, str, int]]:
        """Return row, source, path and timestamp of every chunk that passes the filter, in the order of the files."""
        where, values = filter_sql(filters)
        query = (
            f"SELECT c.row, c.source, c.path, c.timestamp FROM chunks c WHERE c.generation = %s AND {where}"
            " ORDER BY c.source, c.path, c.start_line, c.row"
        )
        return self._session.fetch(query, [self._generation(), *values])
