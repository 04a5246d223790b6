"""What is shown of a conversation: the turn that was found, with as many of those beside it as there is room for.

A turn by itself is short, and often says nothing without the one it answers. So its neighbours are shown with it, up to
the length that a snippet may have, those first that fit the query better. The lines that are cited are those that are
shown, and no turn is shown twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kept.records import Filter
from kept.search.snippet import MAX_CHARS
from kept.store.generation import ChunkRow

Neighbours = Callable[[ChunkRow], Sequence[ChunkRow]]
"""The chunks around one in its file, itself among them, in order."""


class Windows:
    """The turns that are shown so far. They are opened in the order of the hits, so the best chooses first."""

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
        self._shown: dict[int, tuple[ChunkRow, ...]] = {}
        self._taken: set[int] = set()

    def covers(self, row: int) -> bool:
        """Whether it is shown already, beside a better one."""
        return row in self._taken

    def open(self, row: int) -> None:
        chunk = self._chunks[row]
        window = self._grow(chunk) if chunk.source == "sessions" else (chunk,)
        self._shown[chunk.row] = window
        self._taken.update(one.row for one in window)

    def of(self, row: int) -> tuple[ChunkRow, ...]:
        return self._shown[row]

    def _grow(self, chunk: ChunkRow) -> tuple[ChunkRow, ...]:
        around = self._neighbours(chunk)
        first = last = next(at for at, one in enumerate(around) if one.row == chunk.row)
        room = MAX_CHARS - len(chunk.text)
        while room > 0:
            edges = [(last + 1, last), (first - 1, first)]
            fitting = [at for at, edge in edges if self._may_join(around, at, edge, room)]
            if not fitting:
                break
            # Where neither fits better, what comes after: that is where an answer is.
            best = max(fitting, key=lambda at: self._scores.get(around[at].row, 0.0))
            room -= len(around[best].text) + 1
            first, last = min(first, best), max(last, best)
        return tuple(around[first : last + 1])

    def _may_join(self, around: Sequence[ChunkRow], at: int, edge: int, room: int) -> bool:
        if not 0 <= at < len(around):
            return False
        one = around[at]
        # Two pieces of one message are not joined: what stood between them is not in either.
        whole = one.start_line != around[edge].start_line and not _is_piece(around, at)
        return whole and one.row not in self._taken and len(one.text) < room and self._is_wanted(one)

    def _is_wanted(self, chunk: ChunkRow) -> bool:
        since, until = self._filters.since_ms, self._filters.until_ms
        return (since is None or chunk.timestamp_ms >= since) and (until is None or chunk.timestamp_ms < until)


def _is_piece(around: Sequence[ChunkRow], at: int) -> bool:
    line = around[at].start_line
    beside = (around[near].start_line for near in (at - 1, at + 1) if 0 <= near < len(around))
    return line in beside
