"""Searches of a memory: check what the caller asks for, then ask the index or qmd, or list a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.clock import Clock
from kept.base.limits import is_utf8
from kept.base.records import SOURCES, Filter, Progress, SearchResult, SeenTail
from kept.base.values import frozen
from kept.base.visibility import Viewer
from kept.config import Config, MemorySearchSettings
from kept.errors import SessionNotFound, UsageError
from kept.notes.workspace import Workspace, has_projects

if TYPE_CHECKING:
    from kept.search.qmd import QmdBackend
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

    config: Config
    workspace: Workspace
    clock: Clock
    service: IndexService
    project: str | None
    viewer: Viewer | None
    qmd: QmdBackend | None

    @property
    def settings(self) -> MemorySearchSettings:
        return self.config.memory_search

    # filters

    def make_filter(
        self,
        source: str | None,
        path: str | os.PathLike[str] | None,
        since: When | None,
        until: When | None,
        *,
        as_of: When | None = None,
        session: str | None = None,
        session_key: str | None = None,
        channel: str | None = None,
        tags: str | Iterable[str] = (),
        project: str | None = None,
    ) -> Filter:
        """Return the filter that the arguments of `Memory.search` describe."""
        path = os.fspath(path) if path else None
        require_text(source=source, path=path, channel=channel, session_key=session_key)
        if source and source not in SOURCES:
            raise UsageError(
                f"There is no source '{source}'.", hint="Use 'memory' (notes) or 'sessions' (conversations)."
            )
        since_ms = until_ms = as_of_ms = full_key = None
        since, until, as_of = (None if when == "" else when for when in (since, until, as_of))
        if any(when is not None for when in (since, until, as_of)):
            from kept.search.query_dates import check_order, parse_when

            now = self.clock.now()
            since_ms = None if since is None else parse_when(since, now=now)
            until_ms = None if until is None else parse_when(until, now=now, end=True)
            as_of_ms = None if as_of is None else parse_when(as_of, now=now, end=True)
            check_order(since, until, since_ms, until_ms)
        if session_key:
            from kept.sessions.session_key import parse_key

            full_key = str(parse_key(session_key, agent_id=self.config.agent_id))
        scope = None
        if project or self.project:
            from kept.search.memory_view import MemoryView

            scope = MemoryView(self.config, self.workspace, self.project).scope(project)
        sources = tuple(self.settings.sources)
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

        if not os.path.isdir(self.config.paths.sessions):
            raise SessionNotFound(f"There is no session '{reference}'.")
        with SessionStore(self.config, clock=self.clock) as sessions:
            record = sessions.get(reference, self.viewer)
        is_key = ":" in reference and reference != record.id
        return replace(
            filters,
            session_key=record.key if is_key else filters.session_key,
            transcript=None if is_key else record.citation,
        )

    # searching

    def search(
        self,
        query: str,
        filters: Filter,
        *,
        max_results: int | None,
        min_score: float | None,
        seen: SeenTail | None,
        progress: Progress | None,
    ) -> SearchResult:
        """Return the hits, as `Memory.search` describes them."""
        from kept.search.query import SearchRequest, parse_query

        require_text(query=query)
        require_number("max_results", max_results, 1, MOST_RESULTS, whole=True)
        require_number("min_score", min_score, 0, 1)
        listed, is_complete = self._list_time(query, filters, max_results, progress)
        if listed is not None and is_complete:
            return _leave_out(listed, seen, query) if seen else listed
        parsed = parse_query(query)
        settings = self.settings.query
        if max_results is not None:
            settings = replace(settings, max_results=max_results)
        if min_score is not None:
            settings = replace(settings, min_score=float(min_score))
        max_results = settings.max_results
        if seen:
            settings = replace(settings, max_results=max_results + _SPARE_HITS)
        service = self.service

        def search_index(narrowed: Filter) -> SearchResult:
            request = SearchRequest(parsed, settings, narrowed)
            return service.search(request, growing=seen.path if seen else None, progress=progress)

        if self.qmd is None:
            result = search_index(filters)
        else:
            result = self.qmd.search(
                query,
                filters,
                search_index,
                files=(lambda: service.scan().files) if self.settings.sync.on_search else None,
                limit=settings.max_results,
                min_score=min_score or 0.0,
                with_sessions="sessions" in self.settings.sources,
            )
        if seen:
            result = _leave_out(result, seen, query, max_results)
        if listed is not None and result.answered == "no":
            return listed  # empty, and it tells how the time was read
        return self._complete(result, filters)

    def _list_time(
        self, query: str, filters: Filter, max_results: int | None, progress: Progress | None
    ) -> tuple[SearchResult | None, bool]:
        """Return the list of a time if the query is only a time, or else None, and whether it is the answer.

        If nothing is from a date, a search may still find something: other notes may mention the date.
        """
        from kept.search.query_dates import narrow_filter, read_time_query

        now = self.clock.now()
        is_empty = query.strip() in ("", "*") and (filters.since_ms is not None or filters.until_ms is not None)
        time_query = None if is_empty else read_time_query(query, now)
        if not is_empty and time_query is None:
            return None, False
        from kept.search.browse import describe_filter, list_period

        narrowed = narrow_filter(filters, time_query) if time_query else filters
        text = time_query.text if time_query else describe_filter(filters)
        result = list_period(self.service, narrowed, text, max_results=max_results or _LISTED, progress=progress)
        is_complete = bool(result.hits) or time_query is None or not time_query.may_be_mentioned(now)
        return self._complete(result, filters), is_complete

    def _complete(self, result: SearchResult, filters: Filter) -> SearchResult:
        """Return a result with the projects of its hits, or the reason if there are none."""
        if self.viewer is not None and result.degraded:
            from kept.search.memory_view import show_problems

            result = replace(result, degraded=show_problems(self.viewer, result.degraded))
        if result.hits and has_projects(self.workspace):
            from kept.search.memory_view import name_projects

            result = name_projects(result, self.config, self.workspace)
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


def require_number(name: str, value: float | None, least: int, most: int | None, *, whole: bool = False) -> None:
    """Raise UsageError if an argument is given and is not a number between the limits."""
    if value is None:
        return
    kinds = int if whole else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool) and least <= value
    if not fits or (most is not None and not value <= most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} is {value!r:.80}.", hint=f"Use a {'whole ' if whole else ''}number {limits}.")


def require_text(**arguments: str | None) -> None:
    """Raise UsageError if an argument is given and is not text, or text that nothing can match."""
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise UsageError(f"The {name} is {value!r:.80}.", hint="Use text.")
        if name not in ("query", "session_key") and not is_utf8(value):
            raise UsageError(f"The {name} is not valid text, so nothing can match it.", hint="Write it in UTF-8.")
