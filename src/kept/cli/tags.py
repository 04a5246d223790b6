"""kept tags"""

from __future__ import annotations

import sys

import click

from kept.cli.output import echo, json_option, print_json, progress_bar, style, warn_all
from kept.cli.root import Globals
from kept.listings import TagCount, TagList
from kept.tools.record_json import tags_json
from kept.wording import plural


@click.command("tags")
@json_option
@click.pass_obj
def command(options: Globals, as_json: bool) -> None:
    """List the tags of your notes, with how many notes have each. A note with #area/home counts for #area too."""
    with options.memory() as memory, progress_bar("Indexing") as progress:
        tags = memory.notes.tags(progress=progress)
    if as_json:
        print_json(tags_json(tags))
        return
    warn_all(tags.degraded)
    if not tags.tags:
        echo("No tags yet. Write #tag in a note, or 'tags: [tag]' in its front matter.")
        return
    _show(tags, as_tree=sys.stdout.isatty())


def _show(tags: TagList, *, as_tree: bool) -> None:
    """Print a tree on a terminal; in a pipe a line for each tag, whole, so that a program can read it."""
    width = len(f"{max(count.notes for count in tags):,}")
    lines = [_line(count, width, as_tree=as_tree) for count in tags]
    if as_tree:
        lines.append(style(plural(len(tags), "tag"), dim=True))
    echo("\n".join(lines))


def _line(count: TagCount, width: int, *, as_tree: bool) -> str:
    depth = count.tag.count("/") if as_tree else 0
    name = count.tag.rpartition("/")[2] if depth else f"#{count.tag}"
    return f"{style(f'{count.notes:>{width},}', dim=True)}  {'  ' * depth}{style(name, fg='cyan')}"
