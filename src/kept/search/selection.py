"""Choosing the hits from the ranking: the threshold, near-duplicates, and the neighbours that are shown with a hit.

An utterance alone is short, and often means nothing without the one it answers. So its neighbours are shown with it, as
many as a snippet has room for, those that fit the query better first. The cited lines are those that are shown, and no
utterance is shown twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from kept.records import DropReason, Filter
from kept.search.evidence import is_utterance
from kept.search.fuse import Scored
from kept.search.snippet import MAX_CHARS
from kept.store.generation import ChunkRow
from kept.values import frozen

DUPLICATE_SHARE = 0.85
"""Two texts that share this much of their words are near-duplicates."""
_TOLERANCE = 1e-9
"""Rounding tolerance: a score equal to min_score passes, in whatever order its parts were added up."""
_WORD = re.compile(r"\w+")

Neighbours = Callable[[ChunkRow], Sequence[ChunkRow]]
"""Returns the chunks around one in its file, itself included, in order."""


@frozen
class Selection:
    hits: tuple[Scored, ...]
    dropped: tuple[tuple[Scored, DropReason], ...]


def select_hits(
    ranked: Sequence[Scored],
    chunks: Mapping[int, ChunkRow],
    windows: Windows,
    *,
    min_score: float,
    max_results: int,
) -> Selection:
    """Return the hits, best first, and the reason why each other candidate is dropped.

    A near-duplicate of a better hit goes after all other hits, and is returned only if there is room.
    """
    hits: list[Scored] = []
    duplicates: list[Scored] = []
    dropped: list[tuple[Scored, DropReason]] = []
    words = _WordSets(chunks)
    for scored in ranked:
        row = scored.candidate.row
        if scored.relevance < min_score - _TOLERANCE:
            dropped.append((scored, "below min_score"))
        elif windows.covers(row):
            dropped.append((scored, "shown with a better hit"))
        elif len(hits) >= max_results:
            dropped.append((scored, "beyond max_results"))
        elif any(words.are_alike(row, hit.candidate.row) for hit in hits):
            duplicates.append(scored)
        else:
            hits.append(scored)
            windows.open(row)
    for scored in duplicates:
        row = scored.candidate.row
        if windows.covers(row):
            dropped.append((scored, "shown with a better hit"))
        elif len(hits) >= max_results:
            dropped.append((scored, "near-duplicate"))
        else:
            hits.append(scored)
            windows.open(row)
    return Selection(tuple(hits), tuple(dropped))


class _WordSets:
    """The words of each chunk, computed once."""

    def __init__(self, chunks: Mapping[int, ChunkRow]) -> None:
        self._chunks = chunks
        self._words: dict[int, frozenset[str]] = {}

    def are_alike(self, row: int, other: int) -> bool:
        left, right = self._get(row), self._get(other)
        if not left or not right:
            return left == right
        shared = len(left & right)
        return shared >= DUPLICATE_SHARE * (len(left) + len(right) - shared)

    def _get(self, row: int) -> frozenset[str]:
        if row not in self._words:
            self._words[row] = frozenset(_WORD.findall(self._chunks[row].text.lower()))
        return self._words[row]


class Windows:
    """The chunks shown for each hit. Open them in the order of the hits, so that the best hit chooses first."""

    def __init__(
        self,
        chunks: Mapping[int, ChunkRow],
        neighbours: Neighbours,
        scores: Mapping[int, float],
        filters: Filter,
    ) -> None:
        self._chunks = chunks
        self._neighbours = neighbours
        self._scores = scores
        self._filters = filters
        self._windows: dict[int, tuple[ChunkRow, ...]] = {}
        self._shown: set[int] = set()

    def covers(self, row: int) -> bool:
        """Return whether a chunk is already shown, as the neighbour of a better hit."""
        return row in self._shown

    def open(self, row: int) -> None:
        """Choose the neighbours to show with a hit."""
        chunk = self._chunks[row]
        window = self._grow(chunk) if is_utterance(chunk) else (chunk,)
        self._windows[row] = window
        self._shown.update(shown.row for shown in window)

    def get(self, row: int) -> tuple[ChunkRow, ...]:
        return self._windows[row]

    def _grow(self, chunk: ChunkRow) -> tuple[ChunkRow, ...]:
        around = self._neighbours(chunk)
        first = last = next(at for at, neighbour in enumerate(around) if neighbour.row == chunk.row)
        room = MAX_CHARS - len(chunk.text)
        while room > 0:
            edges = [(last + 1, last), (first - 1, first)]
            fitting = [at for at, edge in edges if self._may_join(around, at, edge, room)]
            if not fitting:
                break
            # Of two equal neighbours `max` takes the first, which is the later one: that is where an answer is.
            best = max(fitting, key=lambda at: self._scores.get(around[at].row, 0.0))
            room -= len(around[best].text) + 1
            first, last = min(first, best), max(last, best)
        return tuple(around[first : last + 1])

    def _may_join(self, around: Sequence[ChunkRow], at: int, edge: int, room: int) -> bool:
        if not 0 <= at < len(around):
            return False
        neighbour = around[at]
        # Pieces of one message are not joined: neither has the white space between them.
        is_whole = neighbour.start_line != around[edge].start_line and not _is_piece(around, at)
        fits = neighbour.row not in self._shown and len(neighbour.text) < room
        return is_whole and fits and self._passes_filter(neighbour)

    def _passes_filter(self, chunk: ChunkRow) -> bool:
        since, until = self._filters.since_ms, self._filters.until_ms
        return (since is None or chunk.timestamp_ms >= since) and (until is None or chunk.timestamp_ms < until)


def _is_piece(around: Sequence[ChunkRow], at: int) -> bool:
    line = around[at].start_line
    neighbour_lines = (around[near].start_line for near in (at - 1, at + 1) if 0 <= near < len(around))
    return line in neighbour_lines
