"""kept list: notes, or tags, projects, broken links or changes instead"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Literal

import click

from kept.agent.tools.record_json import links_json, listing_json, to_json
from kept.base.limits import one_line
from kept.base.listings import NoteLink
from kept.base.records import SOURCES
from kept.base.wording import plural
from kept.cli.options import alternative, kept_command, max_results_option, note_options, person_option, switch
from kept.cli.output import cyan, dim, progress_bar, style
from kept.cli.root import Globals
from kept.cli.terminal_layout import file_lines, table_text
from kept.errors import UsageError

_DEFAULT_RESULTS = 50


@kept_command("list")
@max_results_option(_DEFAULT_RESULTS, 100_000)
@click.option(
    "--source", type=click.Choice((*SOURCES, "all")), help="Notes (memory), conversations (sessions), or all. [memory]"
)
@note_options
@switch("--changed", "Show recent changes of notes and conversations.")
@alternative("--tags", "what", "List tags instead, with the number of notes that have each.")
@alternative("--projects", "what", "List projects instead, with their repositories.")
@alternative("--broken-links", "what", "List links that lead nowhere instead.")
@person_option
def command(
    options: Globals, /, what: Literal["tags", "projects", "broken-links"] | None, changed: bool, **filters: Any
) -> None:
    """List notes, newest first, with title, size and first words.

    \b
    kept list --tag work --since 7d
    kept list --changed -n 10
    kept list --tags
    """
    if what is None:
        _list_files(options, changed=changed, **filters)
        return
    if changed or any(value not in (None, (), _DEFAULT_RESULTS) for value in filters.values()):
        raise UsageError(f"--{what} lists all of them.", hint="Leave out the options that choose notes.")
    if what == "projects":
        _list_projects(options)
        return
    with options.memory() as memory, progress_bar("Indexing") as progress:
        if what == "tags":
            tags = memory.notes.tags(progress=progress)
            width = max((len(f"{count.notes:,}") for count in tags), default=0)
            lines = [f"{dim(f'{count.notes:>{width},}')}  {cyan(f'#{count.tag}')}" for count in tags]
            none = "No tags yet. Write #tag in a note, or 'tags: [tag]' in its front matter."
            options.report(to_json(tags), lines or none, degraded=tags.degraded)
        else:
            links = memory.notes.broken_links(progress=progress)
            lines = [f"{cyan(one_line(link.citation))}  {link_text(link)}" for link in links]
            options.report(links_json(links), lines or "No broken links.", degraded=links.degraded)


def _list_files(options: Globals, *, source: str | None, person: str | None, changed: bool, **filters: Any) -> None:
    source = source or ("all" if changed else "memory")
    with options.memory(person=person) as memory, progress_bar("Indexing") as progress:
        listing = memory.list(
            source=None if source == "all" else source,
            order="change" if changed else "time",
            progress=progress,
            **filters,
        )
    noun = "note" if source == "memory" else "conversation" if source == "sessions" else "file"
    lines = file_lines(listing.files, with_time=changed)
    options.report(listing_json(listing), lines or f"No {noun}s.", degraded=listing.degraded)
    if len(listing) < listing.total:
        options.hint(f"{len(listing):,} of {plural(listing.total, noun)}; -n {listing.total} shows all.")


# links


def link_text(link: NoteLink) -> str:
    """Return where a link leads, and how it is written."""
    heading = f"#{link.heading}" if link.heading else ""
    if link.resolved is None:
        shown = f"{one_line(link.target)}{heading}  {style('broken', fg='red')}"
    else:
        shown = f"{cyan(one_line(link.resolved))}{heading}"
    return f"{shown}{link_kind(link)}"


def link_kind(link: NoteLink) -> str:
    parts = [f'"{link.label}"'] if link.label else []
    parts += ["embedded"] if link.is_embed else []
    return dim(f"  {', '.join(parts)}") if parts else ""


# projects


def _list_projects(options: Globals) -> None:
    from kept.base.visibility import PROJECT_MARKER, project_of_path
    from kept.notes.projects import find_project, list_projects, show_key
    from kept.notes.scan import scan_workspace
    from kept.notes.workspace import Workspace

    config = options.load().config
    workspace = Workspace.of(config)
    workspace.require()
    projects, current = list_projects(workspace), find_project(workspace, os.curdir)
    files = scan_workspace(workspace, max_bytes=config.memory_search.max_file_bytes).files if projects else ()
    notes = (file.path for file in files if not file.path.endswith(f"/{PROJECT_MARKER}"))
    counts = Counter(name for path in notes if (name := project_of_path(path)))
    shapes: list[dict[str, Any]] = []
    rows = []
    for project in projects:
        is_here, remotes = project.name == current, ", ".join(map(show_key, project.keys)) or "none"
        shape = {"name": project.name, "remotes": list(project.keys), "notes": counts[project.name]}
        shapes.append({**shape, "path": os.path.join(workspace.root, project.folder), "current": is_here})
        rows.append((project.name + " (here)" * is_here, remotes, counts[project.name]))
    none = "No projects. 'kept init --project' in the folder of a repository adds one."
    options.report(
        {"projects": shapes, "current": current}, table_text(("Project", "Repository", "Notes"), rows) or none
    )
