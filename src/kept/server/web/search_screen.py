"""Search: hits as you type, with their grades, the words that matched, and why each was found or left out."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from kept.base.records import Hit, ScorePart, SearchResult
from kept.base.values import frozen
from kept.errors import KeptError, UsageError
from kept.memory import Memory
from kept.notes.projects import list_projects
from kept.notes.workspace import has_projects
from kept.search.hit_display import hit_headings, query_words, snippet_lines, split_matches
from kept.server.web.note_html import plain_line
from kept.server.web.visit import Page, Screen, Visit

PER_PAGE = 20
_MOST_TAGS = 100
_LINES_SHOWN = 6
_RECENT = 8
_FENCES = ("```", "~~~")
TIMES = (("", "Any time"), ("today", "Today"), ("7d", "Last 7 days"), ("30d", "Last 30 days"), ("365d", "Last year"))
SOURCES = (("", "Notes and conversations"), ("memory", "Notes"), ("sessions", "Conversations"))

_SCORE_WIDTH = 100.0
"""Width of a score of 1."""
_HUES = {
    **dict.fromkeys(("words", "coverage", "around", "reach", "answers"), "words"),
    **dict.fromkeys(("meaning", "beside"), "meaning"),
    **dict.fromkeys(("recency", "when"), "time"),
    "exact": "exact",
}
"""Colours of parts of a score by their name, as classes of the style sheet."""

MatchedLine = tuple[tuple[str, bool], ...]


@frozen
class SearchForm:
    """The query and its filters, as the form has them."""

    q: str = ""
    source: str = ""
    since: str = ""
    until: str = ""
    as_of: str = ""
    tag: str = ""
    channel: str = ""
    project: str = ""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> SearchForm:
        return cls(**{name: query.get(name, "").strip()[:1_000] for name in cls.__annotations__})

    @property
    def filters(self) -> dict[str, Any]:
        return {name: value for name in self.__annotations__ if name != "q" and (value := getattr(self, name))}

    @property
    def is_empty(self) -> bool:
        return not (self.q or self.since or self.until)

    def url(self, **changes: Any) -> str:
        fields = {name: value for name, value in {"q": self.q, **self.filters, **changes}.items() if value}
        return f"/?{urlencode(fields)}" if fields else "/"


Stretch = tuple[ScorePart, str, float, float]
"""A part of a score with the class that colours it, where it begins in the bar, and how long it is there."""


@frozen
class HitView:
    """A hit as the page shows it."""

    hit: Hit
    title: str
    lines: tuple[MatchedLine, ...]
    more_lines: int
    bar: tuple[Stretch, ...]
    further: tuple[HitView, ...] = ()


def show_search(visit: Visit) -> Response:
    form = SearchForm.read(visit.query)
    choices = load_choices(visit)
    if form.is_empty:
        return visit.render("search.html", form=form, **choices, **_overview(visit.memory))
    limit = visit.number("show", PER_PAGE, least=1, most=200)
    problem: KeptError | None = None
    result, views = SearchResult(()), []
    try:
        filters = form.filters
        tag = filters.pop("tag", "")
        result = visit.memory.search(form.q, max_results=limit, tags=[tag] if tag else (), **filters)
        words = [] if result.period else query_words(form.q)
        views = [_view(hit, words) for hit in result.hits]
    except UsageError as exc:
        problem = exc
    dropped = sorted(result.dropped, key=lambda entry: (entry.reason, -entry.score))
    has_more = len(result.hits) >= limit and any(entry.reason == "beyond max_results" for entry in dropped)
    if result.period:
        has_more = result.period.total > len(result.hits)
    return visit.render(
        "search.html",
        form=form,
        **choices,
        result=result,
        problem=problem,
        certain=[view for view in views if view.hit.grade != "weak"],
        weak=[view for view in views if view.hit.grade == "weak"],
        dropped=[(reason, [*entries]) for reason, entries in groupby(dropped, key=lambda entry: entry.reason)],
        more_url=form.url(show=limit + PER_PAGE) if has_more else None,
    )


def add_entry(visit: Visit) -> Response:
    """Add a text to today's notes, as `kept add` does."""
    written = visit.memory.add(visit.text, author=visit.site.author)
    end = "says so already." if not written.is_new else "has it now. Undo it under Changes."
    return visit.redirect("/", notice=f"{written.citation} {end}")


def _view(hit: Hit, words: list[str]) -> HitView:
    lines = [plain_line(line) for line in snippet_lines(hit) if not line.lstrip().startswith(_FENCES)]
    also = [*words, *(word.lower() for word in hit.other_words)]
    matched = tuple(tuple(split_matches(line, also)) for line in lines[:_LINES_SHOWN])
    return HitView(
        hit,
        " › ".join(hit_headings(hit)) or posixpath.splitext(posixpath.basename(hit.path))[0],
        matched,
        max(0, len(lines) - _LINES_SHOWN),
        score_bar(hit.parts),
        tuple(_view(passage, words) for passage in hit.further),
    )


def score_bar(parts: Sequence[ScorePart]) -> tuple[Stretch, ...]:
    """Return the bar of a score. What a part takes away is drawn back from where the parts before it ended."""
    bar: list[Stretch] = []
    at = 0.0
    for part in parts:
        start, at = at, at + part.value * _SCORE_WIDTH
        left, right = max(0.0, min(start, at)), min(_SCORE_WIDTH, max(start, at))
        hue = "loss" if part.value < 0 else _HUES.get(part.name, "other")
        bar.append((part, hue, round(left, 2), round(max(0.0, right - left), 2)))
    return tuple(bar)


def load_choices(visit: Visit) -> dict[str, Any]:
    """Return what the filters offer. A part that cannot be read is left out: a search does not depend on it."""
    workspace = visit.memory.workspace
    tags: list[tuple[str, int]] = []
    channels: list[str] = []
    with suppress(KeptError):
        counts = sorted(visit.memory.notes.tags(), key=lambda count: (-count.notes, count.tag))[:_MOST_TAGS]
        tags = sorted((count.tag, count.notes) for count in counts)
        channels = visit.site.sessions.channels()
    projects = [project.name for project in list_projects(workspace)] if has_projects(workspace) else []
    return {"tags": tags, "channels": channels, "projects": projects, "times": TIMES, "sources": SOURCES}


def _overview(memory: Memory) -> dict[str, Any]:
    """Return what the page shows before a search: how much is remembered, and what changed last."""
    recent = memory.list(source=None, order="change", max_results=_RECENT)
    counts, _ = memory.index_service.read(lambda index: index.live.counts())
    embedder = memory.index_service.embedder
    return {
        "recent": recent,
        "counts": counts.by_source,
        "model": embedder.identity.model if embedder else None,
        "warnings": tuple(dict.fromkeys((*recent.degraded, *memory.index_service.reductions()))),
        "workspace": memory.workspace.root,
        "result": None,
        "problem": None,
    }


SCREEN = Screen(
    name="search",
    label="Search",
    home="/",
    pages=(Page("/", show_search, "read"), Page("/add", add_entry, "write notes", ("POST",))),
    key="s",
)
