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
from kept.config import Config
from kept.errors import SessionNotFound, UsageError
from kept.notes.workspace import Workspace, has_projects

if TYPE_CHECKING:
    from kept.search.qmd import QmdBackend
    from kept.search.query import IndexQuery
    from kept.search.query_dates import When
    from kept.search.service import IndexService

MOST_RESULTS = 200
_SPARE_HITS = 3
"""Hits to ask for in addition if some may be left out."""
_LISTED = 20
"""Entries in the list of a time, unless the caller asks for another number."""


@frozen
class SearchRequest:
    """What a caller asks for. `Memory.search` describes each field."""

    query: str = ""
    max_results: int | None = None
    min_score: float | None = None
    source: str | None = None
    path: str | os.PathLike[str] | None = None
    session: str | None = None
    session_key: str | None = None
    channel: str | None = None
    since: When | None = None
    until: When | None = None
    as_of: When | None = None
    tags: str | Iterable[str] = ()
    project: str | None = None
    seen: SeenTail | None = None
    progress: Progress | None = None


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

    # filters

    def make_filter(self, request: SearchRequest) -> Filter:
        """Return the filter that a request describes."""
        source, session_key = request.source, request.session_key
        path = os.fspath(request.path) if request.path else None
        require_text(source=source, path=path, channel=request.channel, session_key=session_key)
        if source and source not in SOURCES:
            raise UsageError(
                f"There is no source '{source}'.", hint="Use 'memory' (notes) or 'sessions' (conversations)."
            )
        since_ms, until_ms, as_of_ms = self._read_times(request)
        full_key = scope = None
        if session_key:
            from kept.sessions.session_key import parse_key

            full_key = str(parse_key(session_key, agent_id=self.config.agent_id))
        if request.project or self.project:
            from kept.search.memory_view import MemoryView

            scope = MemoryView(self.config, self.workspace, self.project).scope(request.project)
        sources = tuple(self.config.memory_search.sources)
        filters = Filter(
            sources=(source,) if source else sources if len(sources) == 1 else (),
            path=path,
            since_ms=since_ms,
            until_ms=until_ms,
            as_of_ms=as_of_ms,
            session_key=full_key,
            channel=request.channel or None,
            tags=_tag_keys(request.tags) if request.tags else (),
            scope=scope,
            viewer=self.viewer,
        )
        return filters if request.session is None else self._within_session(filters, request.session)

    def _read_times(self, request: SearchRequest) -> tuple[int | None, int | None, int | None]:
        """Return ``since``, ``until`` and ``as_of`` in milliseconds."""
        times = request.since, request.until, request.as_of
        if not any(when is not None and when != "" for when in times):
            return None, None, None
        from kept.search.query_dates import check_order, parse_when

        now = self.clock.now()
        since_ms, until_ms, as_of_ms = (
            None if when is None or when == "" else parse_when(when, now=now, end=is_end)
            for when, is_end in zip(times, (False, True, True), strict=True)
        )
        check_order(request.since, request.until, since_ms, until_ms)
        return since_ms, until_ms, as_of_ms

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

    def search(self, request: SearchRequest) -> SearchResult:
        """Return the hits, as `Memory.search` describes them."""
        from kept.search.query import IndexQuery, parse_query

        query, seen = request.query, request.seen
        filters = self.make_filter(request)
        require_text(query=query)
        require_number("max_results", request.max_results, 1, MOST_RESULTS, whole=True)
        require_number("min_score", request.min_score, 0, 1)
        listed, is_complete = self._list_time(request, filters)
        if listed is not None and is_complete:
            return _leave_out(listed, seen, query) if seen else listed
        settings = self.config.memory_search.query
        max_results = request.max_results or settings.max_results
        min_score = settings.min_score if request.min_score is None else float(request.min_score)
        # Some of the hits are left out afterwards if the caller knows the end of a conversation.
        asked = replace(settings, max_results=max_results + (_SPARE_HITS if seen else 0), min_score=min_score)
        index_query = IndexQuery(parse_query(query), asked, filters)
        if self.qmd is None:
            growing = seen.path if seen else None
            result = self.service.search(index_query, growing=growing, progress=request.progress)
        else:
            result = self._ask_qmd(self.qmd, request, index_query)
        if seen:
            result = _leave_out(result, seen, query, max_results)
        if listed is not None and result.answered == "no":
            return listed  # empty, and it tells how the time was read
        return self._complete(result, filters)

    def _ask_qmd(self, qmd: QmdBackend, request: SearchRequest, index_query: IndexQuery) -> SearchResult:
        """Return the notes that the other program finds, and what only Kept's index can answer."""
        settings, growing = self.config.memory_search, request.seen.path if request.seen else None

        def search_index(narrowed: Filter) -> SearchResult:
            narrow_query = replace(index_query, filters=narrowed)
            return self.service.search(narrow_query, growing=growing, progress=request.progress)

        return qmd.search(
            request.query,
            index_query.filters,
            search_index,
            files=(lambda: self.service.scan().files) if settings.sync.on_search else None,
            limit=index_query.settings.max_results,
            min_score=request.min_score or 0.0,
            with_sessions="sessions" in settings.sources,
        )

    def _list_time(self, request: SearchRequest, filters: Filter) -> tuple[SearchResult | None, bool]:
        """Return the list of a time if the query is only a time, or else None, and whether it is the answer.

        If nothing is from a date, a search may still find something: other notes may mention the date.
        """
        from kept.search.query_dates import narrow_filter, read_time_query

        now, query = self.clock.now(), request.query
        is_empty = query.strip() in ("", "*") and (filters.since_ms is not None or filters.until_ms is not None)
        time_query = None if is_empty else read_time_query(query, now)
        if not is_empty and time_query is None:
            return None, False
        from kept.search.browse import describe_filter, list_period

        narrowed = narrow_filter(filters, time_query) if time_query else filters
        text = time_query.text if time_query else describe_filter(filters)
        most = request.max_results or _LISTED
        result = list_period(self.service, narrowed, text, max_results=most, progress=request.progress)
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
