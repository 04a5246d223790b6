"""Search with qmd, and with Kept's own index when qmd fails: a search always has an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from kept.backends.qmd import QmdBackend
from kept.clock import Clock
from kept.config import QuerySettings
from kept.errors import KeptError
from kept.records import Dropped, Filter, Hit, SearchResult, SourceFile
from kept.values import frozen

SearchIndex = Callable[[Filter], SearchResult]
"""Function that searches Kept's own index."""
_NO_FILTERS = "Answered from Kept's own index: qmd cannot narrow by path, date or tag."


@frozen
class BackendQuery:
    text: str
    settings: QuerySettings
    filters: Filter
    min_score: float | None
    """Threshold of this query. The configured one is not applied to qmd, which scores on another scale."""
    with_sessions: bool
    """True if conversations are searched too."""


class QmdWithFallback:
    """Finds notes with qmd and conversations in Kept's own index. After a failure qmd is left alone for a while."""

    def __init__(self, qmd: QmdBackend, clock: Clock, *, cooldown_s: float) -> None:
        self.qmd = qmd
        self._clock = clock
        self._cooldown_s = cooldown_s
        self._failure: tuple[int, str] | None = None
        """Time of the last failure in nanoseconds, and its reason, until qmd works again."""

    def sync(self, files: Iterable[SourceFile]) -> str | None:
        """Let qmd index the changes. Return the reason if it could not."""
        try:
            self.qmd.update(files, complete=True)
        except KeptError as exc:
            return f"qmd: {exc.message} {exc.hint}".strip()
        self._failure = None
        return None

    def search(
        self, query: BackendQuery, files: Callable[[], Iterable[SourceFile]] | None, search_index: SearchIndex
    ) -> SearchResult:
        """Search notes and conversations. ``files`` lists the notes for an update before the search; None skips it."""
        started = time.perf_counter()
        filters = query.filters
        if filters.sources == ("sessions",) or filters.session_key is not None or filters.channel is not None:
            return search_index(filters)
        if filters.path or filters.tags or filters.since_ms is not None or filters.until_ms is not None:
            return _with_reason(search_index(filters), _NO_FILTERS)
        notes, failure = self._search_qmd(query, files)
        if failure is not None:
            return _with_reason(search_index(filters), f"Answered from Kept's own index: {failure}")
        with_sessions = query.with_sessions and not filters.sources
        sessions = search_index(replace(filters, sources=("sessions",))) if with_sessions else None
        hits = tuple(_interleave(notes, sessions.hits if sessions else ()))
        limit = query.settings.max_results
        return SearchResult(
            hits=hits[:limit],
            degraded=sessions.degraded if sessions else (),
            provider="qmd",
            model=self.qmd.settings.mode,
            took_ms=(time.perf_counter() - started) * 1000,
            dropped=tuple(Dropped(hit.citation, hit.score, "beyond max_results") for hit in hits[limit:]),
        )

    def _search_qmd(
        self, query: BackendQuery, files: Callable[[], Iterable[SourceFile]] | None
    ) -> tuple[list[Hit], str | None]:
        """Return the hits, or the reason why there are none."""
        if self._failure is not None and self._is_cooling_down(self._failure[0]):
            return [], self._failure[1]
        try:
            if files is not None:
                self.qmd.update(files(), complete=False)
            hits = self.qmd.search(query.text, max_results=query.settings.max_results)
        except KeptError as exc:
            reason = f"{exc.message} {exc.hint}".strip()
            self._failure = (self._clock.time_ns(), reason)
            return [], reason
        self._failure = None
        min_score = query.min_score or 0.0
        return [hit for hit in hits if hit.score >= min_score], None

    def _is_cooling_down(self, failed_ns: int) -> bool:
        # A clock that was set back ends the pause: it must not last for hours.
        return 0 <= self._clock.time_ns() - failed_ns < self._cooldown_s * 1_000_000_000


def _with_reason(result: SearchResult, reason: str) -> SearchResult:
    return replace(result, degraded=(reason, *result.degraded))


def _interleave(notes: Iterable[Hit], sessions: Iterable[Hit]) -> Iterator[Hit]:
    """Yield hits of both in turn, the best of each first: their scores cannot be compared."""
    for pair in zip_longest(notes, sessions):
        yield from (hit for hit in pair if hit is not None)
