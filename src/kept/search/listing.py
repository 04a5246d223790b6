"""The list of a time: what was written and said in it, in order, without a ranking.

An entry is a section of a daily log, any other note as a whole, or what was said in one conversation. Each is shown by
its beginning, and the cited lines are those that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter

from kept.records import Filter, Hit, ScorePart
from kept.search.pipeline import WINDOW_LINES, IndexSearchResult, make_hit
from kept.search.selection import Windows
from kept.store.file_list import entry_rows
from kept.store.index import Index
from kept.workspace.daily import DailyNotes

_PARTS = (ScorePart("listed", 1.0, "from that time"),)
_Row = tuple[int, str, str, int]
"""Row, source, path and timestamp of a chunk."""


def list_hits(index: Index, filters: Filter, daily: DailyNotes, *, max_results: int) -> tuple[IndexSearchResult, int]:
    """Return the latest entries of a time, oldest first, and how many there are in all."""
    entries = sorted(
        _iter_entries(entry_rows(index.live, filters), daily), key=lambda entry: (entry[3], entry[2], entry[0])
    )
    latest = entries[-max_results:]
    chunks = index.live.get_chunks(row for row, *_ in latest)
    windows = Windows(chunks, partial(index.live.chunks_around, lines=WINDOW_LINES), {}, filters)
    hits: list[Hit] = []
    for row, *_ in latest:
        windows.open(row)
        hits.append(make_hit(windows.get(row), row, index.path, score=1.0, parts=_PARTS, listed=True))
    return IndexSearchResult(tuple(hits), ()), len(entries)


def _iter_entries(rows: list[_Row], daily: DailyNotes) -> Iterator[_Row]:
    """Yield the first chunk of each entry. Rows are in the order of their files."""
    for (source, path), group in groupby(rows, key=itemgetter(1, 2)):
        chunks = list(group)
        if source == "memory" and (daily.find_day(path) or chunks[0][3] != chunks[-1][3]):
            yield from chunks
        else:
            yield chunks[0]
