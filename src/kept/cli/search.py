"""kept search"""

from __future__ import annotations

import re

import click

from kept.cli.output import echo, json_option, plural, print_json, printable, progress_bar, style, warn
from kept.cli.root import Globals
from kept.records import SOURCES, Hit, ListedPeriod, SearchResult
from kept.tools.record_json import result_json

_LINES_SHOWN = 8
_DROPPED_SHOWN = 20


@click.command("search")
@click.argument("query", nargs=-1)
@click.option("-n", "--max-results", type=click.IntRange(1, 200), metavar="N", help="Maximum number of hits.")
@click.option("--min-score", type=click.FloatRange(0, 1), metavar="SCORE", help="Minimum score of a hit.")
@click.option("--source", type=click.Choice(SOURCES), help="Only notes (memory), or only conversations (sessions).")
@click.option(
    "--path", metavar="GLOB", help="Only these notes: a path, a folder, or a pattern such as 'memory/2026-*'."
)
@click.option("--session", metavar="KEY", help="Only one conversation, such as telegram:5054, or its full key.")
@click.option("--channel", metavar="NAME", help="Only conversations on this channel.")
@click.option("--since", metavar="WHEN", help="Only from this time on: 2026-03-01, 'last Thursday', 7d.")
@click.option("--until", metavar="WHEN", help="Only up to this time, that day included.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only notes with this tag; repeat it for several.")
@click.option("--explain", is_flag=True, help="Show the parts of each score, and candidates that were left out.")
@json_option
@click.pass_obj
def command(
    options: Globals,
    query: tuple[str, ...],
    max_results: int | None,
    min_score: float | None,
    source: str | None,
    path: str | None,
    session: str | None,
    channel: str | None,
    since: str | None,
    until: str | None,
    tags: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Search notes and conversations by meaning and by word.

    QUERY is a question or words, in any language. A QUERY that is only a time ("what did I do yesterday", "last week"),
    or none with --since, lists that time.
    """
    words = " ".join(query)
    with options.memory() as memory, progress_bar("Indexing") as progress:
        result = memory.search(
            words,
            max_results=max_results,
            min_score=min_score,
            source=source,
            path=path,
            session_key=session,
            channel=channel,
            since=since,
            until=until,
            tags=tags,
            progress=progress,
        )
    if as_json:
        print_json(result_json(result, explain=explain))
    else:
        show_result(result, words, explain=explain)


def show_result(result: SearchResult, query: str, *, explain: bool) -> None:
    for reason in result.degraded:
        warn(reason)
    if result.period:
        echo(style(printable(result.period.text), bold=True))
    if not result.hits:
        echo("Nothing from that time." if result.period else "Nothing found.")
    for hit in result.hits:
        echo(hit_text(hit, query))
        if explain:
            echo(parts_text(hit))
        echo()
    if explain and result.dropped:
        echo(style(f"Left out: {plural(len(result.dropped), 'candidate')}", bold=True))
        for dropped in result.dropped[:_DROPPED_SHOWN]:
            echo(f"  {dropped.score:.2f}  {dropped.citation}  {dropped.reason}")
    if result.period and result.hits:
        echo(style(_count_text(result.period, len(result.hits)), dim=True))
    elif result.hits:
        echo(style(f"{plural(len(result.hits), 'hit')} in {result.took_ms:.0f} ms", dim=True))


def _count_text(period: ListedPeriod, shown: int) -> str:
    total = plural(period.total, "entry", "entries")
    return total if shown >= period.total else f"The latest {shown:,} of {total}; -n shows more."


def hit_text(hit: Hit, query: str) -> str:
    lead = _time_text(hit.timestamp) if hit.listed else f"{hit.score:.2f}"
    where = f"{style(lead, fg='green', bold=True)}  {style(hit.citation, fg='cyan', bold=True)}"
    about = "  ".join(part for part in (hit.heading, "" if hit.listed else hit.timestamp[:10]) if part)
    lines = [line for line in hit.snippet.split("\n") if line.strip()]
    shown = [f"      {_with_bold_words(line, query)}" for line in lines[:_LINES_SHOWN]]
    if len(lines) > _LINES_SHOWN:
        shown.append(style(f"      … {plural(len(lines) - _LINES_SHOWN, 'more line')}", dim=True))
    return "\n".join([f"{where}  {style(about, dim=True)}", *shown])


def _time_text(timestamp: str) -> str:
    """Return date and time. Midnight is the time of a note that has only a date."""
    return timestamp[:10] if timestamp[11:16] == "00:00" else f"{timestamp[:10]} {timestamp[11:16]}"


def parts_text(hit: Hit) -> str:
    rows = [f"      {part.name:<8} {part.value:+.3f}  {part.detail}" for part in hit.parts]
    return style("\n".join([*rows, f"      {'score':<8} {hit.score:+.3f}"]), dim=True)


def _with_bold_words(line: str, query: str) -> str:
    words = sorted({re.escape(word) for word in re.findall(r"\w{3,}", query)}, key=len, reverse=True)
    if not words:
        return line
    return re.sub("|".join(words), lambda word: style(word.group(), bold=True), line, flags=re.IGNORECASE)
