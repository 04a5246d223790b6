"""kept search: the best passages, and how they are shown"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import click

from kept.agent.tools.record_json import result_json
from kept.base.records import SOURCES, Grade, Hit, SearchResult, cite
from kept.base.wording import plural, short_list
from kept.cli.options import kept_command, max_results_option, note_options, option, person_option, switch
from kept.cli.output import bold, cyan, dim, printable, progress_bar, style
from kept.cli.root import Globals
from kept.cli.terminal_layout import columns, cut, text_width, wrap
from kept.search.hit_display import (
    day_and_time,
    hit_headings,
    is_match,
    query_words,
    snippet_lines,
    split_matches,
    time_text,
)

LINES_SHOWN = 8
_INDENT = 6
_MOST_OCCURRENCES = 3
_LINES_BEFORE = 2
"""Lines shown before the first match of a long text."""

_LEAD_STYLES: dict[Grade, dict[str, Any]] = {
    "strong": {"fg": "green", "bold": True},
    "likely": {"fg": "yellow", "bold": True},
    "weak": {"dim": True},
}
_WORDS = re.compile(r"\w+").findall


def hit_text(hit: Hit, words: Iterable[str], *, max_lines: int = LINES_SHOWN) -> str:
    """Return a hit with the words of the query highlighted."""
    stems = [*words, *hit.other_words]
    lines = [row for line in snippet_lines(hit) for row in wrap(_plain(line), indent=_INDENT)]
    first, count = 0, len(lines)
    if count > max_lines + 1:  # saying that there is one more takes as much room as the line
        before, count = min(_LINES_BEFORE, max_lines // 4), max_lines
        first = min(max(0, _best_line(lines, stems, max_lines - before) - before), len(lines) - max_lines)
    more = len(lines) - first - count
    others = [
        f"{lead} {short_list([other.citation for other in occurrences], _MOST_OCCURRENCES)}"
        for lead, occurrences in (("newer than", hit.newer_than), ("also in", hit.also_in))
        if occurrences
    ]
    shown = lines[first : first + count]
    return "\n".join(
        [
            _header(hit),
            *([dim(f"{'':<{_INDENT}}…")] if first else []),
            *(dim(line) if _has_ended(hit, line) else highlight(line, stems) for line in shown),
            *([dim(f"{'':<{_INDENT}}… {plural(more, 'more line')}")] if more else []),
            *_remarks(hit, *others),
            *(_further_line(passage, stems) for passage in hit.further),
        ]
    )


def _has_ended(hit: Hit, line: str) -> bool:
    """Return whether a line of a hit is struck through, or says that it ended."""
    body = line.lstrip(" -*+>0123456789.)[]x|")
    if hit.validity and not hit.validity.holds and "(until " in line:
        return True
    held_then = hit.validity is not None and hit.validity.holds and hit.validity.until is not None
    return body.startswith("~~") and not held_then


def _further_line(passage: Hit, stems: list[str]) -> str:
    """Return one line for a further passage of the note: its lines, score, last heading and first line that matches."""
    lines, score = cite("", passage.start_line, passage.end_line).removeprefix("#"), f"{passage.score:.2f}"
    rows = [_plain(line).strip() for line in snippet_lines(passage)]
    text = rows[_best_line(rows, stems, 1)] if rows else ""
    room = columns() - _INDENT - text_width(f"also {lines}  {score}  ")
    about = cut(": ".join([*map(_plain, hit_headings(passage)[-1:]), text]), max(10, room))
    about = dim(about) if _has_ended(passage, text) else highlight(about, stems)
    lead = f"{'':<{_INDENT}}{dim('also')} {cyan(lines)}  {dim(score)}"
    return "\n".join([f"{lead}  {about}", *_remarks(passage)])


def _remarks(hit: Hit, *others: str) -> list[str]:
    """Return the lines of remarks about a hit, first whether its fact was replaced or replaced another."""
    remark, validity = "", hit.validity
    if validity and validity.holds:
        remark = f"before: {', '.join(validity.before)}" if validity.before else ""
    elif validity and validity.until:
        remark = f"until {validity.until}" + (f", then {validity.replaced_by}" if validity.replaced_by else "")
    elif validity:
        remark = f"only since {validity.since}" if validity.since else "no longer holds"
    return [dim(line) for text in filter(None, (remark, *others)) for line in wrap(_plain(text), indent=_INDENT)]


def parts_text(hit: Hit) -> str:
    width = max((len(part.name) for part in hit.parts), default=len("score"))
    rows = [(f"{part.name:<{width}} {part.value:+.3f}  ", part.detail) for part in hit.parts]
    lines = [line for lead, detail in rows for line in wrap(lead + detail, indent=_INDENT, hang=len(lead))]
    return dim("\n".join([*lines, f"{'':<{_INDENT}}{'score':<{width}} {hit.score:+.3f}"]))


def highlight(line: str, words: list[str]) -> str:
    """Return a line with the words highlighted, in any case, with any accents and usual endings."""
    pieces = split_matches(line, words)
    return "".join(style(piece, fg="yellow", bold=True) if matches else piece for piece, matches in pieces)


def _best_line(lines: list[str], words: list[str], count: int) -> int:
    """Return the first of ``count`` lines that have the most of the words; of several, the one with most of them."""
    matches = [{word for word in words if any(is_match(other, [word]) for other in _WORDS(line))} for line in lines]
    matching = (at for at, in_line in enumerate(matches) if in_line)
    return max(matching, key=lambda at: (len(set().union(*matches[at : at + count])), len(matches[at]), -at), default=0)


def _header(hit: Hit) -> str:
    """Return the first line of a hit: its score or time, its place, and what the place does not tell."""
    where = _plain(hit.citation)
    parts = [f"project {hit.project}" if hit.project else "", " > ".join(hit_headings(hit))]
    if hit.listed:
        lead = time_text(hit)
    else:
        lead = f"{hit.score:.2f} {hit.grade}"
        day, time = day_and_time(hit)
        has_time = hit.source == "sessions" or time in hit.heading.split(" > ")
        parts.append(f"{'' if day in hit.path else day} {time if has_time else ''}".strip())
    about = _plain("  ".join(filter(None, parts)))
    room = columns() - text_width(lead) - text_width(where) - 4
    header = f"{style(lead, **_LEAD_STYLES[hit.grade])}  {style(where, fg='cyan', bold=True)}"
    if hit.title and text_width(about) > room:  # the name of a transcript leaves little room
        return f"{header}\n{dim(' ' * _INDENT + cut(about, columns() - _INDENT))}"
    about = cut(about, room)
    return f"{header}  {dim(about)}" if about else header


def _plain(text: str) -> str:
    return printable(text).replace("\t", "    ").replace("\n", " ").replace("\r", "")


_DROPPED_SHOWN = 20


@kept_command("search")
@click.argument("query", nargs=-1)
@max_results_option(None, 200, note=" (default: memory_search.query.max_results, 6)")
@option(
    "--min-score",
    "SCORE",
    "Minimum score of a hit (default: memory_search.query.min_score, 0).",
    type=click.FloatRange(0, 1),
)
@click.option("--source", type=click.Choice(SOURCES), help="Only notes (memory), or only conversations (sessions).")
@note_options
@option("--session", "ID", "Only one conversation: its id or the beginning of it, or telegram:5054.")
@option("--channel", "NAME", "Only conversations on this channel.")
@option("--as-of", "WHEN", "Answer as it was on that day: facts that held then, nothing written later.")
@option(
    "--project",
    "NAME",
    "Search as in this project: nothing of others. none: only shared notes; all: everything."
    " (default: the project of the current folder, if any)",
)
@person_option
@switch("--explain", "Show the parts of each score, and candidates that were left out.")
def command(
    options: Globals, /, query: tuple[str, ...], project: str | None, person: str | None, explain: bool, **filters: Any
) -> None:
    """Search notes and conversations by meaning and by word.

    QUERY is a question or words, in any language. A QUERY that is only a time ("what did I do yesterday", "last week"),
    or none with --since, lists that time.

    \b
    kept search 'which port is staging on?'
    kept search backups --since '2 weeks ago' -n 3
    """
    words = " ".join(query)
    with options.memory(person=person) as memory, progress_bar("Indexing") as progress:
        project = project or memory.notes.find_project()
        result = memory.search(words, project=project, progress=progress, **filters)
    lines = _result_lines(result, words, explain=explain)
    options.report(lambda: result_json(result, explain=explain), lines, degraded=result.degraded)


def _result_lines(result: SearchResult, query: str, *, explain: bool) -> Iterator[str]:
    """Yield the hits, those that are weak after the others."""
    hits, period = sorted(result.hits, key=lambda hit: hit.grade == "weak"), result.period
    if period:
        yield bold(printable(period.text))
    if not hits:
        yield "Nothing from that time." if period else "Nothing found."
    words = query_words(query) if hits and not period else []
    first_weak = next((at for at, hit in enumerate(hits) if hit.grade == "weak"), len(hits))
    for at, hit in enumerate(hits):
        if at == first_weak:
            yield bold("Less certain:" if at else "Nothing certain. Closest:")
        yield hit_text(hit, words, max_lines=1 if 0 < first_weak <= at else LINES_SHOWN)
        if explain:
            yield parts_text(hit)
        yield ""
    if explain and result.dropped:
        yield bold(f"Left out: {plural(len(result.dropped), 'candidate')}")
        for dropped in result.dropped[:_DROPPED_SHOWN]:
            yield f"  {dropped.score:.2f}  {dropped.citation}  {dropped.reason}"
    if period and hits:
        total = plural(period.total, "entry", "entries")
        is_all = len(hits) >= period.total
        yield dim(total if is_all else f"The latest {len(hits):,} of {total}; -n shows more.")
    elif hits:
        yield dim(f"{plural(len(hits), 'hit')} in {result.took_ms:.0f} ms")
