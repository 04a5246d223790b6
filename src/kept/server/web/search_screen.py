"""Search: hits as you type, with their grades, the words that matched, and why each was found or left out."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from kept.base.records import Dropped, Hit, ScorePart, SearchResult
from kept.base.values import frozen
from kept.errors import KeptError, UsageError
from kept.memory import Memory
from kept.notes.projects import list_projects
from kept.notes.workspace import has_projects
from kept.search.hit_display import hit_headings, query_words, snippet_lines, split_matches
from kept.server.web.note_html import plain_line
from kept.server.web.page_templates import citation_url, reference_url
from kept.server.web.visit import Page, Screen, Site, Visit

PER_PAGE = 20
_MOST_DROPPED = 40
_LINES_SHOWN = 6
_RECENT = 8
_FENCES = ("```", "~~~")
_CHOICES_S = 10.0
"""How long the choices of the filters are kept: a search as you type asks for them with every letter."""
TIMES = (("", "Any time"), ("today", "Today"), ("7d", "Last 7 days"), ("30d", "Last 30 days"), ("365d", "Last year"))
SOURCES = (("", "Notes and conversations"), ("memory", "Notes"), ("sessions", "Conversations"))

_SCORE_WIDTH = 100.0
"""Width of a score of 1."""
_SMALLEST = 0.2
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

    def fields(self) -> dict[str, str]:
        return {name: value for name in type(self).__annotations__ if (value := getattr(self, name))}

    @property
    def filters(self) -> dict[str, str]:
        return {name: value for name, value in self.fields().items() if name != "q"}

    @property
    def is_empty(self) -> bool:
        return not (self.q or self.since or self.until)

    def url(self, **changes: Any) -> str:
        fields = {name: value for name, value in {**self.fields(), **changes}.items() if value}
        return f"/?{urlencode(fields)}" if fields else "/"


@frozen
class HitView:
    """A hit as the page shows it."""

    hit: Hit
    url: str
    title: str
    lines: tuple[MatchedLine, ...]
    more_lines: int
    bar: ScoreBar
    further: tuple[HitView, ...] = ()


def show_search(visit: Visit) -> Response:
    form = SearchForm.read(visit.query)
    choices = find_choices(visit)
    if form.is_empty:
        return visit.render("search.html", form=form, **choices, **_overview(visit.memory))
    limit = visit.number("show", PER_PAGE, least=1, most=200)
    problem: KeptError | None = None
    result, views = SearchResult(()), []
    try:
        result = run_search(visit.memory, form, limit)
        views = view_hits(result, form.q)
    except UsageError as exc:
        problem = exc
    return visit.render(
        "search.html",
        form=form,
        **choices,
        result=result,
        problem=problem,
        certain=[view for view in views if view.hit.grade != "weak"],
        weak=[view for view in views if view.hit.grade == "weak"],
        dropped=group_dropped(result.dropped),
        more_url=form.url(show=limit + PER_PAGE) if has_more(result, limit) else None,
    )


def add_entry(visit: Visit) -> Response:
    """Add a text to today's notes, as `kept add` does."""
    written = visit.memory.add(visit.form.get("text", ""), author=visit.site.author)
    end = "says so already." if not written.is_new else "has it now. Undo it under Changes."
    return visit.redirect("/", notice=f"{written.citation} {end}")


def run_search(memory: Memory, form: SearchForm, limit: int) -> SearchResult:
    """Search with the filters of the form, as the command line does."""
    return memory.search(
        form.q,
        max_results=limit,
        source=form.source or None,
        since=form.since or None,
        until=form.until or None,
        as_of=form.as_of or None,
        tags=[form.tag] if form.tag else (),
        channel=form.channel or None,
        project=form.project or None,
    )


def has_more(result: SearchResult, limit: int) -> bool:
    if result.period:
        return result.period.total > len(result.hits)
    return len(result.hits) >= limit and any(dropped.reason == "beyond max_results" for dropped in result.dropped)


def view_hits(result: SearchResult, query: str) -> list[HitView]:
    words = [] if result.period else query_words(query)
    return [_view(hit, words) for hit in result.hits]


def _view(hit: Hit, words: list[str]) -> HitView:
    lines = [plain_line(line) for line in snippet_lines(hit) if not line.lstrip().startswith(_FENCES)]
    also = [*words, *(word.lower() for word in hit.other_words)]
    matched = tuple(tuple(split_matches(line, also)) for line in lines[:_LINES_SHOWN])
    return HitView(
        hit,
        citation_url(hit.path, hit.start_line, hit.end_line),
        " › ".join(hit_headings(hit)) or posixpath.splitext(posixpath.basename(hit.path))[0],
        matched,
        max(0, len(lines) - _LINES_SHOWN),
        make_score_bar(hit.parts),
        tuple(_view(passage, words) for passage in hit.further),
    )


@frozen
class ScoreBar:
    segments: tuple[tuple[float, float, str], ...]
    """Where each part begins in the bar, how long it is, and the class that colours it."""
    parts: tuple[tuple[ScorePart, str], ...]
    """All parts, also those too small to be drawn, each with the class that colours it."""
    label: str
    """The parts in words, for those who do not see the bar."""


def make_score_bar(parts: Sequence[ScorePart]) -> ScoreBar:
    """Return the bar of a score. What a part takes away is drawn back from where the parts before it ended."""
    segments = []
    at = 0.0
    for part in parts:
        start, at = at, at + part.value * _SCORE_WIDTH
        left, right = max(0.0, min(start, at)), min(_SCORE_WIDTH, max(start, at))
        if right - left >= _SMALLEST:
            segments.append((round(left, 2), round(right - left, 2), _hue(part)))
    label = ", ".join(f"{part.name} {part.value:+.2f}" for part in parts)
    return ScoreBar(tuple(segments), tuple((part, _hue(part)) for part in parts), label)


def _hue(part: ScorePart) -> str:
    return "loss" if part.value < 0 else _HUES.get(part.name, "other")


def group_dropped(dropped: tuple[Dropped, ...]) -> list[tuple[str, int, list[tuple[Dropped, str]]]]:
    """Return what was left out by reason: the reason, how many, and the best of them with their addresses."""
    ordered = sorted(dropped, key=lambda entry: (entry.reason, -entry.score))
    groups = []
    for reason, entries in groupby(ordered, key=lambda entry: entry.reason):
        every = list(entries)
        groups.append((reason, len(every), [(entry, reference_url(entry.citation)) for entry in every[:_MOST_DROPPED]]))
    return groups


def find_choices(visit: Visit) -> dict[str, Any]:
    """Return what the filters offer: tags, channels and projects."""
    choices = visit.site.remember("choices", load_choices, for_s=_CHOICES_S)
    return {"choices": choices, "times": TIMES, "sources": SOURCES}


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
        "certain": (),
        "weak": (),
    }


SCREEN = Screen(
    name="search",
    label="Search",
    home="/",
    pages=(Page("/", show_search, "read"), Page("/add", add_entry, "write notes", ("POST",))),
    key="s",
)


_MOST_TAGS = 100


@frozen
class FilterChoices:
    tags: tuple[tuple[str, int], ...] = ()
    """The most frequent tags, each with the number of its notes."""
    channels: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()


def load_choices(site: Site) -> FilterChoices:
    """Return what can be chosen. A part that cannot be read is left out: a search does not depend on it."""
    tags: tuple[tuple[str, int], ...] = ()
    channels: list[str] = []
    try:
        counts = sorted(site.memory.notes.tags(), key=lambda count: (-count.notes, count.tag))[:_MOST_TAGS]
        tags = tuple(sorted((count.tag, count.notes) for count in counts))
        channels = site.sessions.channels()
    except KeptError:
        pass
    workspace = site.memory.workspace
    projects = (project.name for project in list_projects(workspace)) if has_projects(workspace) else ()
    return FilterChoices(tags, tuple(channels), tuple(projects))
