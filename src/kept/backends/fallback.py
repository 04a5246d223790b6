"""qmd first, and our own index where qmd does not answer: a search is never without an answer because of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from kept.backends.qmd import Qmd
from kept.config import Query
from kept.errors import KeptError
from kept.records import Dropped, Filter, Hit, SearchResult, SourceFile
from kept.values import frozen

Own = Callable[[Filter], SearchResult]
"""A search of our own index."""
_NARROW = "Answered from Kept's own index: qmd cannot narrow by path or date."


@frozen
class Question:
    text: str
    settings: Query
    filters: Filter
    min_score: float | None
    """What was asked for with the question. The setting is not for qmd, which scores on a scale of its own."""
    with_talk: bool
    """Whether conversations are searched as well."""


class QmdFirst:
    """Notes are found by qmd, conversations in our own index. After a failure qmd is left alone for a while."""

    def __init__(self, qmd: Qmd, *, cooldown_s: float) -> None:
        self.qmd = qmd
        self._cooldown_s = cooldown_s
        self._resting: tuple[float, str] | None = None

    def sync(self, files: Iterable[SourceFile]) -> str | None:
        """Lets qmd take in what changed. Why it did not, where it did not."""
        try:
            self.qmd.update(files, whole=True)
        except KeptError as exc:
            return f"qmd: {exc.message} {exc.hint}".strip()
        self._resting = None
        return None

    def search(self, question: Question, files: Callable[[], Iterable[SourceFile]] | None, own: Own) -> SearchResult:
        """``files`` says what there is to take in first, unless nothing should be."""
        started = time.perf_counter()
        filters = question.filters
        if filters.sources == ("sessions",) or filters.session_key is not None or filters.channel is not None:
            return own(filters)
        if filters.path or filters.since_ms is not None or filters.until_ms is not None:
            return _with_reason(own(filters), _NARROW)
        hits, why = self._ask(question, files)
        if why is not None:
            return _with_reason(own(filters), f"Answered from Kept's own index: {why}")
        talk = own(replace(filters, sources=("sessions",))) if question.with_talk and not filters.sources else None
        found = tuple(_in_turn(hits, talk.hits if talk else ()))
        most = question.settings.max_results
        return SearchResult(
            hits=found[:most],
            degraded=talk.degraded if talk else (),
            provider="qmd",
            model=self.qmd.settings.mode,
            took_ms=(time.perf_counter() - started) * 1000,
            dropped=tuple(Dropped(hit.citation, hit.score, "beyond max_results") for hit in found[most:]),
        )

    def _ask(
        self, question: Question, files: Callable[[], Iterable[SourceFile]] | None
    ) -> tuple[list[Hit], str | None]:
        if self._resting is not None and time.monotonic() < self._resting[0]:
            return [], self._resting[1]
        try:
            if files is not None:
                self.qmd.update(files(), whole=False)
            hits = self.qmd.search(question.text, max_results=question.settings.max_results)
        except KeptError as exc:
            why = f"{exc.message} {exc.hint}".strip()
            self._resting = (time.monotonic() + self._cooldown_s, why)
            return [], why
        self._resting = None
        least = question.min_score or 0.0
        return [hit for hit in hits if hit.score >= least], None


def _with_reason(result: SearchResult, reason: str) -> SearchResult:
    return replace(result, degraded=(reason, *result.degraded))


def _in_turn(notes: Iterable[Hit], talk: Iterable[Hit]) -> Iterator[Hit]:
    """Best of each first: their scores cannot be compared."""
    for pair in zip_longest(notes, talk):
        yield from (hit for hit in pair if hit is not None)
