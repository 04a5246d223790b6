"""kept search"""

from __future__ import annotations

import os
import time

import click

from kept.cli.command_arguments import TextCommand
from kept.cli.output import (
    echo,
    json_option,
    max_results_option,
    person_option,
    print_json,
    printable,
    progress_bar,
    style,
    use_colour,
    warn_all,
)
from kept.cli.root import Globals
from kept.config import Config
from kept.records import SOURCES, Hit, ListedPeriod, SearchResult
from kept.sessions.transcript_paths import find_cited_path
from kept.tools.record_json import result_json
from kept.wording import plural
from kept.workspace.workspace import has_projects

_DROPPED_SHOWN = 20
_NOTICEABLE_S = 1.0
"""Time of the whole command from which on it is shown beside that of the search."""


@click.command("search", cls=TextCommand)
@click.argument("query", nargs=-1)
@max_results_option(None, 200, note=" (default: memory_search.query.max_results, 6)")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 1),
    metavar="SCORE",
    help="Minimum score of a hit (default: memory_search.query.min_score, 0).",
)
@click.option("--source", type=click.Choice(SOURCES), help="Only notes (memory), or only conversations (sessions).")
@click.option(
    "--path", metavar="GLOB", help="Only these notes: a path, a folder, or a pattern such as 'memory/2026-*'."
)
@click.option("--session", metavar="ID", help="Only one conversation: its id or the beginning of it, or telegram:5054.")
@click.option("--channel", metavar="NAME", help="Only conversations on this channel.")
@click.option("--since", metavar="WHEN", help="Only from this time on: 2026-03-01, 'last Thursday', 7d.")
@click.option("--until", metavar="WHEN", help="Only up to this time, that day included.")
@click.option(
    "--as-of", metavar="WHEN", help="Answer as it was on that day: facts that held then, nothing written later."
)
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only notes with this tag; repeat it for several.")
@click.option(
    "--project",
    metavar="NAME",
    help="Search as in this project: nothing of others. none: only shared notes; all: everything."
    " (default: the project of the current folder, if any)",
)
@person_option
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
    as_of: str | None,
    tags: tuple[str, ...],
    project: str | None,
    person: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Search notes and conversations by meaning and by word.

    QUERY is a question or words, in any language. A QUERY that is only a time ("what did I do yesterday", "last week"),
    or none with --since, lists that time.
    """
    words = " ".join(query)
    started = time.perf_counter()
    with options.memory(person=person) as memory, progress_bar("Indexing") as progress:
        if not project and has_projects(memory.workspace):
            from kept.workspace.projects import find_project

            project = find_project(memory.workspace, ".")
        result = memory.search(
            words,
            max_results=max_results,
            min_score=min_score,
            source=source,
            path=path,
            session=session,
            channel=channel,
            since=since,
            until=until,
            as_of=as_of,
            tags=tags,
            project=project,
            progress=progress,
        )
    if as_json:
        print_json(result_json(result, explain=explain))
    else:
        took_s = time.perf_counter() - started
        show_result(result, words, memory.config, explain=explain, took_s=took_s)


def show_result(result: SearchResult, query: str, config: Config, *, explain: bool, took_s: float) -> None:
    warn_all(result.degraded)
    if result.period:
        echo(style(printable(result.period.text), bold=True))
    if not result.hits:
        echo("Nothing from that time." if result.period else "Nothing found.")
    _show_hits(result, query, config, explain=explain)
    if explain and result.dropped:
        echo(style(f"Left out: {plural(len(result.dropped), 'candidate')}", bold=True))
        for dropped in result.dropped[:_DROPPED_SHOWN]:
            echo(f"  {dropped.score:.2f}  {dropped.citation}  {dropped.reason}")
    if result.period and result.hits:
        echo(style(_count_text(result.period, len(result.hits)), dim=True))
    elif result.hits:
        echo(style(hits_line(len(result.hits), result.took_ms, took_s), dim=True))


def hits_line(hits: int, search_ms: float, took_s: float) -> str:
    """Return the number of hits with the time of the search, and that of the whole if it is noticeably longer."""
    whole = f" ({took_s:.1f} s with indexing)" if took_s >= _NOTICEABLE_S else ""
    return f"{plural(hits, 'hit')} in {search_ms:.0f} ms{whole}"


def _show_hits(result: SearchResult, query: str, config: Config, *, explain: bool) -> None:
    """Print the hits, those that are weak after the others."""
    from kept.cli.hit_text import LINES_SHOWN, hit_text, parts_text
    from kept.search.hit_display import query_words

    words = query_words(query) if use_colour() and result.hits and not result.period else []
    certain = [hit for hit in result.hits if hit.grade != "weak"]
    weak = [hit for hit in result.hits if hit.grade == "weak"]
    for hit in (*certain, *weak):
        if weak and hit is weak[0]:
            echo(style("Less certain:" if certain else "Nothing certain. Closest:", bold=True))
        lines = 1 if certain and hit.grade == "weak" else LINES_SHOWN
        echo(hit_text(hit, words, locate=lambda hit: path_of(hit, config), max_lines=lines))
        if explain:
            echo(parts_text(hit))
        echo()


def _count_text(period: ListedPeriod, shown: int) -> str:
    total = plural(period.total, "entry", "entries")
    return total if shown >= period.total else f"The latest {shown:,} of {total}; -n shows more."


def path_of(hit: Hit, config: Config) -> str:
    """Return the absolute path of the file that a hit is in."""
    if hit.source == "sessions":
        return find_cited_path(config.paths.sessions, hit.path)
    return os.path.join(config.workspace, hit.path)  # the path of a note outside the workspace is absolute already
