"""kept links"""

from __future__ import annotations

from dataclasses import replace

import click

from kept.cli.output import echo, json_option, print_json, progress_bar, style, warn_all
from kept.cli.root import Globals
from kept.errors import UsageError
from kept.limits import one_line
from kept.listings import NoteLink, NoteLinks
from kept.tools.record_json import broken_links_json, links_json
from kept.tools.tool_text import from_citation
from kept.wording import plural


@click.command("links")
@click.argument("note", required=False)
@click.option("--broken", is_flag=True, help="Only links that lead nowhere: of NOTE, or of all notes.")
@json_option
@click.pass_obj
def command(options: Globals, note: str | None, broken: bool, as_json: bool) -> None:
    """List the links of NOTE to other notes, and of other notes to it.

    NOTE is a path, a title, an alias or the name of a file. With --broken and without NOTE, all notes are checked.
    """
    if note is None and not broken:
        raise UsageError("Name a note.", hint="'kept links --broken' lists the links of all notes that lead nowhere.")
    if note is None:
        _list_broken(options, as_json=as_json)
        return
    name, _, _ = from_citation(note, None, None)
    with options.memory() as memory, progress_bar("Indexing") as progress:
        links = memory.notes.links(name, progress=progress)
    if broken:
        links = replace(links, outgoing=tuple(link for link in links.outgoing if link.is_broken), incoming=())
    if as_json:
        print_json(links_json(links))
        return
    warn_all(links.degraded)
    _show(links)


def _list_broken(options: Globals, *, as_json: bool) -> None:
    with options.memory() as memory, progress_bar("Indexing") as progress:
        links = memory.notes.broken_links(progress=progress)
    if as_json:
        print_json(broken_links_json(links))
        return
    warn_all(links.degraded)
    for link in links:
        echo(f"{style(one_line(link.citation), fg='cyan')}  {_target_text(link)}")
    if not links:
        echo("No broken links.")


def _show(links: NoteLinks) -> None:
    title = "" if links.title == links.path else f"  {style(one_line(links.title), dim=True)}"
    echo(f"{style(one_line(links.path), bold=True)}{title}")
    broken = sum(link.is_broken for link in links.outgoing)
    suffix = f" ({broken} broken)" if broken else ""
    echo(f"\n{plural(len(links.outgoing), 'link')} to other notes{suffix}")
    for link in links.outgoing:
        echo(f"  {style(f'L{link.line}', dim=True)}  {_target_text(link)}")
    echo(f"\n{plural(len(links.incoming), 'link')} from other notes")
    for link in links.incoming:
        heading = style(f"  to #{link.heading}", dim=True) if link.heading else ""
        echo(f"  {style(one_line(link.citation), fg='cyan')}{heading}{_kind_text(link)}")


def _target_text(link: NoteLink) -> str:
    heading = f"#{link.heading}" if link.heading else ""
    if link.resolved is None:
        shown = f"{one_line(link.target)}{heading}  {style('broken', fg='red')}"
    else:
        shown = f"{style(one_line(link.resolved), fg='cyan')}{heading}"
    return f"{shown}{_kind_text(link)}"


def _kind_text(link: NoteLink) -> str:
    parts = [f'"{link.label}"'] if link.label else []
    parts += ["embedded"] if link.is_embed else []
    return style(f"  {', '.join(parts)}", dim=True) if parts else ""
