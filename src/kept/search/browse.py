"""Looking without a question: what is from a time, lists of notes, and a note by its day or title."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from kept.base.limits import time_from_ms
from kept.base.listings import FileSummary, Listing
from kept.base.records import Filter, ListedPeriod, Passage, Progress, SearchResult, parse_citation
from kept.base.words.segment import fold, name_key, normalise
from kept.errors import NoteNotFound, PathRefused, UsageError
from kept.index.sqlite.rows import ALIAS, HEADING, TITLE
from kept.notes.daily import DailyNotes, daily_name, find_daily, get_daily_notes
from kept.notes.scan import scan_workspace
from kept.notes.workspace import Workspace, is_markdown, may_be_title, show_path
from kept.sessions.transcript_paths import is_transcript_citation

if TYPE_CHECKING:
    from kept.config import Config
    from kept.index.sqlite.file_list import ListedRow, Opening
    from kept.index.sqlite.index import Index
    from kept.search.memory_view import MemoryView
    from kept.search.service import IndexService

Order = Literal["time", "change"]
_EXCERPT_CHARS = 160
_SPEAKER = r"\[[^\]]*\] \w+: "
_MAX_CANDIDATES = 10


# what is from a time


def list_period(
    service: IndexService, filters: Filter, text: str, *, max_results: int, progress: Progress | None = None
) -> SearchResult:
    """Return what is from the time of the filter, oldest first. ``text`` says how the time was read."""
    from kept.search.pipeline import list_hits

    started = time.perf_counter()
    daily = get_daily_notes(service.workspace)
    (hits, total), degraded = service.read(
        lambda index: list_hits(index, filters, daily, max_results=max_results), progress=progress
    )
    since, until = (None if ms is None else time_from_ms(ms) for ms in (filters.since_ms, filters.until_ms))
    period = ListedPeriod(since, until, text, total)
    return service.complete_result(SearchResult(tuple(hits), degraded, period=period), started)


def explain_no_hits(service: IndexService, filters: Filter) -> tuple[str, ...]:
    """Return the reasons if a filter names tags, a path or a channel that nothing in the index has."""
    with service.inspecting() as (index, _), index.reading():
        live = index.live
        known = {key for key, _, _ in live.count_tags(filters)} if filters.tags else set[str]()
        reasons = [f"No note has the tag '{key}'." for key in filters.tags if key not in known]
        if filters.path and not live.lists.has_file(filters):
            reasons.append(f"No note matches '{filters.path}'.")
        if filters.channel and not live.rows_matching(Filter(channel=filters.channel, viewer=filters.viewer)):
            reasons.append(f"No conversation is on channel '{filters.channel}'.")
    return tuple(reasons)


# which files there are


def list_files(
    service: IndexService,
    filters: Filter,
    *,
    order: Order,
    max_results: int,
    offset: int = 0,
    progress: Progress | None = None,
) -> Listing:
    """Return notes and conversations by the time that they are from, or by their last change."""
    if order not in ("time", "change"):
        raise UsageError(f"order is {order!r:.80}.", hint="Use 'time' or 'change'.")

    def read(index: Index) -> tuple[tuple[FileSummary, ...], int]:
        live = index.live
        select = live.lists.by_change if order == "change" else live.lists.by_time
        rows, total = select(filters, max_results, offset)
        titles = live.conversation_titles([row.path for row in rows if row.source == "sessions"])
        summaries = (
            _summary(row, live.lists.find_opening(row), titles.get(row.path) or live.notes.find_title(row.path))
            for row in rows
        )
        return tuple(summaries), total

    (files, total), degraded = service.read(read, progress=progress)
    reasons = explain_no_hits(service, filters) if not files and not offset else ()
    return Listing(files, total, (*degraded, *reasons))


def _summary(row: ListedRow, opening: Opening | None, own_title: str | None) -> FileSummary:
    lines = [line for text in (opening.texts if opening else ()) for line in text.split("\n")]
    if row.source == "sessions":
        title = own_title or (opening.heading if opening else "")
    else:
        title = own_title or _stem(row.path)
    return FileSummary(
        path=row.path,
        source=row.source,
        title=title,
        excerpt=_excerpt(lines, "" if row.source == "sessions" else title),
        timestamp=time_from_ms(row.timestamp_ms),
        changed=time_from_ms(row.mtime_ns // 1_000_000),
        size=row.size,
        session_key=opening.session_key if opening else None,
        channel=opening.channel if opening else None,
    )


def _excerpt(lines: Sequence[str], title: str) -> str:
    """Return the first words that are not a heading."""
    for line in lines:
        words = re.sub(_SPEAKER, "", line.strip(), count=1).replace("**", "").lstrip("-*> ").strip()
        if words and not line.startswith("#") and words != title:
            return words if len(words) <= _EXCERPT_CHARS else words[: _EXCERPT_CHARS - 1].rstrip() + "…"
    return ""


# a note by its day or title


def find_note(service: IndexService, name: str, visible: Filter) -> str | None:
    """Return the path of the note that a day, a file name or a title means, or None if it means none.

    Hidden notes are left out. In a project, and for a person, a day means their log, if they have one.

    Raise UsageError if several notes have the name, and NoteNotFound if nothing was written on the day.
    """
    day = _find_day(name, service.clock.now())
    logs = [DailyNotes(folder) for folder in visible.own_folders]
    if day:
        for daily in (*logs, None):
            if path := find_daily(service.workspace, day, daily):
                return path
    plain_name = _plain(f"{day:%Y-%m-%d}" if day else name)
    spaced_name = _spaced(plain_name.removesuffix(".md"))
    (paths, named), _ = service.read(
        lambda index: (index.live.lists.note_paths(), index.live.notes.paths_named(name_key(name)))
    )
    if visible:
        paths = [path for path in paths if visible.sees_note(path)]
        named = [(path, kind) for path, kind in named if visible.sees_note(path)]
    for matches in (
        [path for path in paths if _plain(path) == plain_name or _plain(path.rpartition(".")[0]) == plain_name],
        [path for path in paths if _spaced(_plain(_stem(path))) == spaced_name],
        [path for path, kind in named if kind in (TITLE, ALIAS)],
        [path for path, kind in named if kind == HEADING],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise _ambiguous(name, sorted(matches))
    if day:
        raise NoteNotFound(
            f"There is no daily note of {day:%Y-%m-%d} ({daily_name(service.workspace, day)}).",
            hint=f"'kept search {day:%Y-%m-%d}' lists everything from that day.",
        )
    return None


def read_reference(
    reference: str,
    config: Config,
    workspace: Workspace,
    find_note: Callable[[str], str | None],
    *,
    view: MemoryView | None = None,
    start: int | None = None,
    lines: int | None = None,
) -> Passage:
    """Return lines of a note or a conversation. ``find_note`` is asked for the path of a note by its day or title.
    ``view`` is that of a memory that is bound to a project: what belongs to other projects is refused."""
    path = reference
    if cited := parse_citation(reference):
        path, first, last = cited
        start, lines = start or first, lines or max(1, last - first + 1)
    start = start or 1
    if is_transcript_citation(path):
        from kept.sessions.spoken import read_transcript
        from kept.sessions.transcript import open_transcripts

        if view:
            view.require_visible(path)
        return read_transcript(open_transcripts(config), path, start=start, lines=lines)
    from kept.notes.note_writer import read_passage

    max_bytes = config.memory_search.max_file_bytes
    if may_be_title(path):
        path = find_note(path) or path
        if "." not in path:
            raise NoteNotFound(f"No note has the path, name or title '{path}'.")
    if view:
        view.require_visible(path)
    if "/" in path and not is_markdown(path):
        try:  # memory/ideas is memory/ideas.md
            return read_passage(workspace, f"{path}.md", start=start, lines=lines, max_bytes=max_bytes)
        except (NoteNotFound, PathRefused):
            pass
    return read_passage(workspace, path, start=start, lines=lines, max_bytes=max_bytes)


def name_nearest(service: IndexService, name: str, visible: Filter) -> str:
    """Return a hint with the visible note whose name is closest to a name that no note has, or nothing."""
    import difflib

    wanted = _spaced(_plain(name.rpartition("/")[2].removesuffix(".md")))
    if not any(char.isalpha() for char in wanted):  # another day is not what was meant
        return ""
    notes = scan_workspace(service.workspace, max_bytes=service.settings.max_file_bytes).files
    by_name = {_spaced(_plain(_stem(note.path))): note.path for note in notes if visible.sees_note(note.path)}
    near = difflib.get_close_matches(wanted, by_name, n=1, cutoff=0.7)
    near = near or sorted((other for other in by_name if wanted in other), key=len)
    return f"Did you mean '{show_path(by_name[near[0]])}'?" if near else ""


def _find_day(name: str, now: dt.datetime) -> dt.date | None:
    from kept.search.query_dates import describe_period, find_period

    period = find_period(name, now.replace(tzinfo=None))
    if period is None:
        return None
    if period.end - period.start > dt.timedelta(days=1):
        raise UsageError(
            f"'{name}' is more than one day: {describe_period(period.start, period.end)}.",
            hint=f"'kept search {name!r}' lists it.",
        )
    return period.start.date()


def _ambiguous(name: str, paths: Sequence[str]) -> UsageError:
    shown = ", ".join(paths[:_MAX_CANDIDATES])
    more = f" and {len(paths) - _MAX_CANDIDATES:,} more" if len(paths) > _MAX_CANDIDATES else ""
    return UsageError(f"'{name}' is the name of {len(paths):,} notes: {shown}{more}.", hint="Give the path.")


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0] or path


def _plain(name: str) -> str:
    return fold(normalise(name)).casefold().strip()


def _spaced(name: str) -> str:
    """Return a name with spaces in place of hyphens: red-door.md is called "red door"."""
    return name.replace("-", " ").replace("_", " ")
