"""Search: hits as you type, with their grades, the words that matched, and why each was found or left out."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from kept.base.records import Hit, SearchResult
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
_RECENT = 8
_FENCES = ("```", "~~~")


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


def show_search(visit: Visit) -> Response:
    form = SearchForm.read(visit.query)
    choices = load_choices(visit)
    if form.is_empty:
        return visit.render("search.html", form=form, **choices, **_overview(visit.memory))
    limit = visit.number("show", PER_PAGE, least=1, most=200)
    problem: KeptError | None = None
    result, words = SearchResult(()), list[str]()
    try:
        filters = form.filters
        tag = filters.pop("tag", "")
        result = visit.memory.search(form.q, max_results=limit, tags=[tag] if tag else (), **filters)
        words = [] if result.period else query_words(form.q)
    except UsageError as exc:
        problem = exc
    has_more = len(result.hits) >= limit and any(entry.reason == "beyond max_results" for entry in result.dropped)
    if result.period:
        has_more = result.period.total > len(result.hits)
    return visit.render(
        "search.html",
        form=form,
        **choices,
        result=result,
        problem=problem,
        title_of=_title,
        lines_of=partial(_lines, words),
        more_url=form.url(show=limit + PER_PAGE) if has_more else None,
    )


def add_entry(visit: Visit) -> Response:
    """Add a text to today's notes, as `kept add` does."""
    written = visit.memory.add(visit.text, author=visit.site.author)
    end = "says so already." if not written.is_new else "has it now. Undo it under Changes."
    return visit.redirect("/", notice=f"{written.citation} {end}")


def _title(hit: Hit) -> str:
    return " › ".join(hit_headings(hit)) or posixpath.splitext(posixpath.basename(hit.path))[0]


def _lines(words: Sequence[str], hit: Hit) -> list[list[tuple[str, bool]]]:
    """Return the lines of a hit in pieces, each with whether it matched."""
    lines = [plain_line(line) for line in snippet_lines(hit) if not line.lstrip().startswith(_FENCES)]
    also = [*words, *(word.lower() for word in hit.other_words)]
    return [[*split_matches(line, also)] for line in lines]


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
    return {"tags": tags, "channels": channels, "projects": projects}


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
