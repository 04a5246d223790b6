"""Searches of a memory: check what the caller asks for, then ask the index or qmd, or list a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.limits import require_number, require_text
from kept.base.records import SOURCES, Filter, Progress, SearchResult, SeenTail
from kept.base.values import frozen
from kept.base.visibility import Viewer
from kept.errors import SessionNotFound, UsageError
from kept.notes.workspace import has_projects

if TYPE_CHECKING:
    from kept.search.query_dates import When
    from kept.search.service import IndexService

MOST_RESULTS = 200
_SPARE_HITS = 3
"""Hits to ask for in addition if some may be left out."""
_LISTED = 20
"""Entries in the list of a time, unless the caller asks for another number."""


@frozen
class MemorySearch:
    """Searches of one memory. ``project`` is the project that it is bound to, ``viewer`` whom it is for."""

    service: IndexService
    project: str | None
    viewer: Viewer | None

    def make_filter(
        self,
        source: str | None = None,
        path: str | os.PathLike[str] | None = None,
        session: str | None = None,
        session_key: str | None = None,
        channel: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | None = None,
        tags: str | Iterable[str] = (),
        project: str | None = None,
    ) -> Filter:
        """Return the filter for what a caller names. `Memory.search` describes each argument."""
        config = self.service.config
        path = os.fspath(path) if path else None
        require_text(source=source, path=path, channel=channel, session_key=session_key)
        if source and source not in SOURCES:
            raise UsageError(
                f"There is no source '{source}'.", hint="Use 'memory' (notes) or 'sessions' (conversations)."
            )
        full_key = scope = since_ms = until_ms = as_of_ms = None
        if not all(when is None or when == "" for when in (since, until, as_of)):
            from kept.search.query_dates import check_order, parse_when

            now = self.service.clock.now()
            since_ms, until_ms, as_of_ms = (
                None if when is None or when == "" else parse_when(when, now=now, end=is_end)
                for when, is_end in ((since, False), (until, True), (as_of, True))
            )
            check_order(since, until, since_ms, until_ms)
        if session_key:
            from kept.sessions.session_key import parse_key

            full_key = str(parse_key(session_key, agent_id=config.agent_id))
        if project or self.project:
            from kept.search.memory_view import MemoryView

            scope = MemoryView(config, self.service.workspace, self.project).scope(project)
        sources = tuple(config.memory_search.sources)
        filters = Filter(
            sources=(source,) if source else sources if len(sources) == 1 else (),
            path=path,
            since_ms=since_ms,
            until_ms=until_ms,
            as_of_ms=as_of_ms,
            session_key=full_key,
            channel=channel or None,
            tags=_tag_keys(tags) if tags else (),
            scope=scope,
            viewer=self.viewer,
        )
        return filters if session is None else self._within_session(filters, session)

    def _within_session(self, filters: Filter, reference: str) -> Filter:
        """Return the filter for one session, or for all sessions of a conversation if the reference is its key."""
        from kept.sessions.store import SessionStore

        if not os.path.isdir(self.service.config.paths.sessions):
            raise SessionNotFound(f"There is no session '{reference}'.")
        with SessionStore(self.service.config, clock=self.service.clock) as sessions:
            record = sessions.get(reference, self.viewer)
        is_key = ":" in reference and reference != record.id
        return replace(
            filters,
            session_key=record.key if is_key else filters.session_key,
            transcript=None if is_key else record.citation,
        )

    def search(
        self,
        query: str,
        filters: Filter,
        max_results: int | None = None,
        min_score: float | None = None,
        seen: SeenTail | None = None,
        progress: Progress | None = None,
    ) -> SearchResult:
        """Return the hits, as `Memory.search` describes them."""
        from kept.search.query import IndexQuery, parse_query

        require_text(query=query)
        require_number("max_results", max_results, 1, MOST_RESULTS, whole=True)
        require_number("min_score", min_score, 0, 1)
        listed, is_complete = self._list_time(query, filters, max_results or _LISTED, progress)
        if listed is not None and is_complete:
            return _leave_out(listed, seen, query) if seen else listed
        settings = self.service.settings.query
        count = max_results or settings.max_results
        least = settings.min_score if min_score is None else float(min_score)
        # Some of the hits are left out afterwards if the caller knows the end of a conversation.
        asked = replace(settings, max_results=count + (_SPARE_HITS if seen else 0), min_score=least)
        index_query = IndexQuery(parse_query(query), asked, filters)

        def search_index(narrowed: Filter) -> SearchResult:
            growing = seen.path if seen else None
            return self.service.search(replace(index_query, filters=narrowed), growing=growing, progress=progress)

        if qmd := self.service.qmd:
            scan = self.service.scan if self.service.settings.sync.on_search else None
            result = qmd.search(query, filters, search_index, scan, limit=asked.max_results, min_score=min_score or 0.0)
        else:
            result = search_index(filters)
        if seen:
            result = _leave_out(result, seen, query, count)
        if listed is not None and result.answered == "no":
            return listed  # empty, and it tells how the time was read
        return self._complete(result, filters)

    def _list_time(
        self, query: str, filters: Filter, most: int, progress: Progress | None
    ) -> tuple[SearchResult | None, bool]:
        """Return the list of a time if the query is only a time, or else None, and whether it is the answer.

        If nothing is from a date, a search may still find something: other notes may mention the date.
        """
        from kept.search.query_dates import describe_ms, narrow_filter, read_time_query

        now = self.service.clock.now()
        is_empty = query.strip() in ("", "*") and (filters.since_ms is not None or filters.until_ms is not None)
        time_query = None if is_empty else read_time_query(query, now)
        if not is_empty and time_query is None:
            return None, False
        from kept.search.browse import list_period

        narrowed = narrow_filter(filters, time_query) if time_query else filters
        text = time_query.text if time_query else describe_ms(filters.since_ms, filters.until_ms)
        result = list_period(self.service, narrowed, text, max_results=most, progress=progress)
        is_complete = bool(result.hits) or time_query is None or not time_query.may_be_mentioned(now)
        return self._complete(result, filters), is_complete

    def _complete(self, result: SearchResult, filters: Filter) -> SearchResult:
        """Return a result with the projects of its hits, or the reason if there are none."""
        config, workspace = self.service.config, self.service.workspace
        if self.viewer is not None and result.degraded:
            from kept.search.memory_view import show_problems

            result = replace(result, degraded=show_problems(self.viewer, result.degraded))
        if any(hit.source == "sessions" for hit in result.hits) and has_projects(workspace):
            from kept.search.memory_view import transcripts_by_project

            owners = transcripts_by_project(config, workspace)
            hits = (replace(hit, project=hit.project or owners.get(hit.path)) for hit in result.hits)
            result = replace(result, hits=tuple(hits))
        if result.hits or not (filters.path or filters.channel or filters.tags):
            return result
        from kept.search.browse import explain_no_hits

        reasons = explain_no_hits(self.service, filters)
        return replace(result, degraded=tuple(dict.fromkeys([*result.degraded, *reasons])))


def _leave_out(result: SearchResult, seen: SeenTail, query: str, max_results: int | None = None) -> SearchResult:
    """Leave out what the caller knows, and messages that tell an agent nothing: questions, and those with nothing but
    the words of the query. An earlier greeting does not answer a greeting."""
    from kept.search.repetitions import tells_nothing

    hits = (hit for hit in result.hits if not seen.has(hit))
    news = (hit for hit in hits if hit.source != "sessions" or hit.listed or not tells_nothing(hit.snippet, query))
    return replace(result, hits=tuple(news)[:max_results])


# arguments


def _tag_keys(tags: str | Iterable[str]) -> tuple[str, ...]:
    from kept.base.words.segment import tag_key

    names = [tags] if isinstance(tags, str) else list(tags)
    for name in names:
        require_text(tag=name)
        if not tag_key(name):
            raise UsageError(f"'{name}' is not a tag.", hint="Write it as work or area/home, with or without '#'.")
    return tuple(dict.fromkeys(map(tag_key, names)))
