"""Looking without a question: what is from a time, lists of notes, a note by its day or title, tags and links."""

from __future__ import annotations

import datetime as dt
import os
import posixpath
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from kept.base.limits import require_text, time_from_ms
from kept.base.listings import BrokenLinks, FileSummary, FoundLink, Listing, NoteLink, NoteLinks, TagCount, TagList
from kept.base.records import Filter, ListedPeriod, Passage, Progress, SearchResult, parse_citation
from kept.base.values import frozen
from kept.base.words.segment import fold, name_key, normalise
from kept.errors import NoteNotFound, PathRefused, UsageError
from kept.index.sqlite.file_list import Opening
from kept.index.sqlite.rows import ALIAS, FILE, HEADING, TITLE, link_key
from kept.notes.daily import DailyNotes, daily_name, find_daily, get_daily_notes
from kept.notes.scan import scan_workspace
from kept.notes.workspace import has_projects, is_markdown, may_be_title, show_path
from kept.sessions.transcript_paths import is_transcript_citation

if TYPE_CHECKING:
    from kept.index.sqlite.file_list import ListedRow
    from kept.index.sqlite.index import Index
    from kept.index.sqlite.rows import NoteTables
    from kept.search.memory_view import MemoryView
    from kept.search.query_dates import TimeQuery
    from kept.search.service import IndexService

Order = Literal["time", "change"]
_EXCERPT_CHARS = 160
_SPEAKER = r"\[[^\]]*\] \w+: "
_MAX_CANDIDATES = 10


# what is from a time


def list_time(
    service: IndexService, filters: Filter, time_query: TimeQuery, *, max_results: int, progress: Progress | None = None
) -> SearchResult:
    """Return what is from the time of a query and within the filter, oldest first."""
    from kept.search.pipeline import list_hits
    from kept.search.query_dates import narrow_filter

    started = time.perf_counter()
    narrowed, daily = narrow_filter(filters, time_query), get_daily_notes(service.workspace)
    (hits, total), degraded = service.read(
        lambda index: list_hits(index, narrowed, daily, max_results=max_results), progress=progress
    )
    since, until = (None if ms is None else time_from_ms(ms) for ms in (narrowed.since_ms, narrowed.until_ms))
    period = ListedPeriod(since, until, time_query.text, total)
    return service.complete_result(SearchResult(tuple(hits), degraded, period=period), started)


def explain_no_hits(service: IndexService, filters: Filter) -> tuple[str, ...]:
    """Return the reasons if a filter names tags, a path or a channel that nothing in the index has."""
    with service.inspecting() as (index, _), index.reading():
        live = index.live
        known = {key for key, _, _ in live.notes.count_tags(filters)} if filters.tags else set[str]()
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
    opening = opening or Opening("", (), None, None)
    if row.source == "sessions":
        title, known = own_title or opening.heading, ""
    else:
        title = known = own_title or _stem(row.path)
    return FileSummary(
        path=row.path,
        source=row.source,
        title=title,
        excerpt=_excerpt("\n".join(opening.texts), known),
        timestamp=time_from_ms(row.timestamp_ms),
        changed=time_from_ms(row.mtime_ns // 1_000_000),
        size=row.size,
        session_key=opening.session_key,
        channel=opening.channel,
    )


def _excerpt(text: str, title: str) -> str:
    """Return the first words that are neither a heading nor the title."""
    for line in text.split("\n"):
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
            shown = ", ".join(sorted(matches)[:_MAX_CANDIDATES])
            more = f" and {len(matches) - _MAX_CANDIDATES:,} more" if len(matches) > _MAX_CANDIDATES else ""
            raise UsageError(f"'{name}' is the name of {len(matches):,} notes: {shown}{more}.", hint="Give the path.")
    if day:
        raise NoteNotFound(
            f"There is no daily note of {day:%Y-%m-%d} ({daily_name(service.workspace, day)}).",
            hint=f"'kept search {day:%Y-%m-%d}' lists everything from that day.",
        )
    return None


def read_reference(
    view: MemoryView,
    reference: str,
    find_note: Callable[[str], str | None],
    *,
    start: int | None = None,
    lines: int | None = None,
) -> Passage:
    """Return lines of a note or a conversation. ``find_note`` is asked for the path of a note by its day or title."""
    path = reference
    if cited := parse_citation(reference):
        path, first, last = cited
        start, lines = start or first, lines or max(1, last - first + 1)
    start = start or 1
    if is_transcript_citation(path):
        from kept.sessions.spoken import read_transcript
        from kept.sessions.transcript import open_transcripts

        view.require_visible(path)
        return read_transcript(open_transcripts(view.config), path, start=start, lines=lines)
    from kept.notes.note_writer import read_passage

    if may_be_title(path):
        path = find_note(path) or path
        if "." not in path:
            raise NoteNotFound(f"No note has the path, name or title '{path}'.")
    view.require_visible(path)
    read = partial(
        read_passage, view.workspace, start=start, lines=lines, max_bytes=view.config.memory_search.max_file_bytes
    )
    if "/" in path and not is_markdown(path):
        with suppress(NoteNotFound, PathRefused):  # memory/ideas is memory/ideas.md
            return read(f"{path}.md")
    return read(path)


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


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0] or path


def _plain(name: str) -> str:
    return fold(normalise(name)).casefold().strip()


def _spaced(name: str) -> str:
    """Return a name with spaces in place of hyphens: red-door.md is called "red door"."""
    return name.replace("-", " ").replace("_", " ")


# tags and links


@frozen
class MemoryNotes:
    """Tags, links and projects of the notes that a memory sees."""

    _service: IndexService
    _view: MemoryView

    def tags(self, *, progress: Progress | None = None) -> TagList:
        """Return the tags of all notes, each with the number of notes that have it or a tag below it."""
        visible = self._view.filter()
        counts, degraded = self._service.read(lambda index: index.live.notes.count_tags(visible), progress=progress)
        counts.sort(key=lambda count: count[0].split("/"))
        return TagList(tuple(TagCount(tag, notes) for _, tag, notes in counts), degraded)

    def links(self, note: str | os.PathLike[str], *, progress: Progress | None = None) -> NoteLinks:
        """Return the links in a note and those of other notes to it. ``note`` is a path, a title, an alias or the name
        of a file. Raise NoteNotFound if there is no such note."""
        name = os.path.expanduser(os.fspath(note))
        require_text(note=name)
        if os.path.isabs(name):
            name = self._view.workspace.cite(os.path.normpath(name))
        path = find_note(self._service, name, self._view.filter())
        if path is None:
            hint = self.name_nearest(name) or "Name it by its path, title or alias."
            raise NoteNotFound(f"There is no note called '{name}'.", hint=hint)
        sees = self._view.sees

        def read(index: Index) -> NoteLinks:
            notes = index.live.notes
            resolver, own_keys = LinkResolver(notes, sees), {key.rpartition("/")[2] for key, _ in notes.names_of(path)}
            visible = [item for item in notes.links_by_key(own_keys) if item[0] != path and sees(item[0])]
            incoming = [link for link in resolver.resolve(visible) if link.resolved == path]
            outgoing = resolver.resolve(notes.links_from(path))
            return NoteLinks(path, notes.find_title(path) or "", tuple(outgoing), tuple(incoming))

        links, degraded = self._service.read(read, progress=progress)
        return replace(links, degraded=degraded)

    def name_nearest(self, name: str) -> str:
        """Return a question with the visible note whose name is closest to a name that no note has, or nothing."""
        import difflib

        wanted = _spaced(_plain(name.rpartition("/")[2].removesuffix(".md")))
        if not any(char.isalpha() for char in wanted):  # another day is not what was meant
            return ""
        limit = self._service.settings.max_file_bytes
        paths = [note.path for note in scan_workspace(self._view.workspace, max_bytes=limit).files]
        by_name = {_spaced(_plain(_stem(path))): path for path in paths if self._view.sees(path)}
        near = difflib.get_close_matches(wanted, by_name, n=1, cutoff=0.7)
        near = near or sorted((other for other in by_name if wanted in other), key=len)
        return f"Did you mean '{show_path(by_name[near[0]])}'?" if near else ""

    def broken_links(self, *, progress: Progress | None = None) -> BrokenLinks:
        """Return the links of all notes that lead nowhere, by path and line, as if hidden notes did not exist."""
        sees = self._view.sees

        def read(index: Index) -> list[NoteLink]:
            notes = index.live.notes
            return LinkResolver(notes, sees).resolve(item for item in notes.all_links() if sees(item[0]))

        links, degraded = self._service.read(read, progress=progress)
        return BrokenLinks(tuple(link for link in links if link.is_broken), degraded)

    def find_project(self, folder: str | os.PathLike[str] = ".") -> str | None:
        """Return the name of the project that a folder belongs to, by the remote of its repository, or None."""
        if not has_projects(self._view.workspace):
            return None
        from kept.notes.projects import find_project

        return find_project(self._view.workspace, os.fspath(folder))


class LinkResolver:
    """Finds the note that a link means, as Obsidian does it: by path, else by the name of a file, else by title or
    alias. Names that were looked up are remembered. A link to a hidden note is broken."""

    def __init__(self, notes: NoteTables, sees: Callable[[str], bool]) -> None:
        self._sees = sees
        self._find = cache(notes.paths_named)
        self._resolve = cache(self._by_name)

    def resolve(self, links: Iterable[tuple[str, FoundLink]]) -> list[NoteLink]:
        """Return links with the paths of the notes that they mean. Each is given with the path of its own note."""
        resolved = []
        for source, link in links:
            path = self._resolve(link.target, link.is_path, posixpath.dirname(source))
            path = path if path and self._sees(path) else None
            resolved.append(NoteLink(source, link.line, link.target, path, link.heading, link.label, link.is_embed))
        return resolved

    def _by_name(self, target: str, is_path: bool, folder: str) -> str | None:
        titles = (path for path, kind in self._find(name_key(target)) if kind != FILE)
        return self._by_file(target, is_path, folder) or next(titles, None)

    def _by_file(self, target: str, is_path: bool, folder: str) -> str | None:
        paths = [path for path, kind in self._find(link_key(target)) if kind == FILE]
        by_key = {_path_key(path): path for path in reversed(paths)}
        beside, rooted = _path_key(posixpath.join(folder, target)), _path_key(target)
        is_relative = is_path or target.startswith(("./", "../"))
        for exact in (beside, rooted) if is_relative else (rooted, beside):
            if exact in by_key:
                return by_key[exact]
        ending = "/" + rooted.lstrip("/")
        fitting = [path for path in paths if f"/{_path_key(path)}".endswith(ending)]
        return min(fitting, key=lambda path: (path.count("/"), len(path), path), default=None)


def _path_key(path: str) -> str:
    """Return the key of a path without its ending, for paths with and without one."""
    return name_key(posixpath.normpath(path.strip().removesuffix(".md").removesuffix(".markdown")))
