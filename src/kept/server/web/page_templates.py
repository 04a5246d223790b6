"""Templates of the pages, and the addresses that they lead to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context

from kept import __version__
from kept.base.clock import Clock
from kept.base.records import parse_citation
from kept.base.values import frozen
from kept.base.wording import plural, size_text
from kept.sessions.transcript_paths import is_transcript_citation, parse_transcript_name

Renderer = Callable[..., str]
"""Makes a page of the name of a template and its values."""
_DIFF_KINDS = {"@": "hunk", "+": "added", "-": "removed", "\\": "aside"}


def place_url(prefix: str, path: str) -> str:
    """Return the address of a page about a note, such as ``/edit/memory/ideas.md``."""
    return f"/{prefix}/{quote(path)}"


def citation_url(path: str, start_line: int | None = None, end_line: int | None = None) -> str:
    """Return the address of a note or of a conversation by the path that cites it, or of lines of it."""
    fragment = f"#L{start_line}" if start_line else ""
    if is_transcript_citation(path):
        session_id, _ = parse_transcript_name(path.rpartition("/")[2])
        query = f"?line={start_line}" if start_line else ""
        return f"{conversation_url(session_id)}{query}{fragment}"
    marked = f"?lines={start_line}-{end_line}" if start_line and end_line else ""
    return f"{place_url('note', path)}{marked}{fragment}"


def reference_url(citation: str) -> str:
    """Return the address of a citation as it is written, with or without lines."""
    cited = parse_citation(citation)
    return citation_url(*cited) if cited else citation_url(citation)


def conversation_url(session_id: str) -> str:
    return f"/conversations/{quote(session_id, safe='')}"


def day_url(day: dt.date) -> str:
    return f"/timeline?day={day:%Y-%m-%d}"


@frozen
class DiffLine:
    kind: str
    """Class of the line: added, removed, hunk, aside or same."""
    text: str


def diff_lines(diff: str) -> list[DiffLine]:
    """Return the lines of a unified diff without its head, each with its class."""
    lines = diff.removesuffix("\n").split("\n") if diff else []
    shown = []
    for line in lines[2 if diff.startswith("--- ") else 0 :]:
        sign, text = line[:1], line[1:].removesuffix("\r")
        if sign == "@":
            text = f"line {line.partition('+')[2].partition(',')[0].partition(' ')[0]}"
        shown.append(DiffLine(_DIFF_KINDS.get(sign, "same"), text))
    return shown


@cache
def _environment() -> Environment:
    """Return the templates, compiled now and not while somebody waits for a page."""
    environment = Environment(
        loader=FileSystemLoader(str(files("kept.server.web").joinpath("templates"))),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    functions = (citation_url, conversation_url, day_url, diff_lines, place_url, reference_url)
    environment.globals.update({function.__name__: function for function in functions}, version=__version__)
    environment.filters.update(
        ago=pass_context(lambda context, when: describe_time(when, context["now"])),
        cost=cost_text,
        count=lambda number: f"{number:,}",
        local=local_text,
        plural=plural,
        size=size_text,
    )
    for name in environment.list_templates():
        environment.get_template(name)
    return environment


def make_renderer(clock: Clock, navigation: Sequence[Any]) -> Renderer:
    """Return what renders templates. ``navigation`` are the screens in its order."""
    templates = _environment()
    return lambda template, **values: templates.get_template(template).render(
        navigation=navigation, now=clock.now(), **values
    )


def cost_text(spent: Any) -> str:
    """Return what something cost, or an empty text if its price is not known."""
    cost: float | None = getattr(spent, "cost_usd", None)
    return "" if cost is None else "free" if cost == 0 else f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"


def local_text(when: dt.datetime | str) -> str:
    """Return a time, perhaps as a record has it, in local time to the minute."""
    try:
        moment = dt.datetime.fromisoformat(when) if isinstance(when, str) else when
    except ValueError:
        return str(when)
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def describe_time(when: dt.datetime, now: dt.datetime) -> str:
    """Return a time as people say it: 15:09 today, a weekday within a week, else the date."""
    when, now = when.astimezone(), now.astimezone()
    days = (now.date() - when.date()).days
    clock_time = "" if (when.hour, when.minute, when.second) == (0, 0, 0) else f" {when:%H:%M}"
    if days == 0:
        return f"today{clock_time}"
    if days == 1:
        return f"yesterday{clock_time}"
    if 1 < days < 7:
        return f"{when:%A}{clock_time}"
    return f"{when.day} {when:%b}{'' if when.year == now.year else f' {when.year}'}"
