"""kept get: a note or a conversation, its links, or where it came from"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kept.agent.tools.record_json import passage_json, to_json
from kept.agent.tools.tool_text import from_citation
from kept.base.wording import plural
from kept.cli.output import echo, echo_exactly, local_time, person_option, print_json, style
from kept.cli.root import Globals
from kept.errors import NoteNotFound, UsageError

if TYPE_CHECKING:
    from kept.cli.provenance import OriginSession, PassageOrigin
    from kept.notes.history.note_change import NoteChange

_SHOWN = 50


@click.command("get")
@click.argument("path", nargs=-1, required=True)
@click.option("--from", "start", type=click.IntRange(min=1), metavar="N", help="First line (default: 1).")
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Number of lines (default: 200).")
@click.option("--links", "what", flag_value="links", help="Show its links and backlinks instead.")
@click.option(
    "--why",
    "what",
    flag_value="why",
    help="Show where it came from instead: conversation, import, and the change that wrote each line.",
)
@person_option
@click.pass_obj
def command(
    options: Globals,
    path: tuple[str, ...],
    start: int | None,
    lines: int | None,
    what: str | None,
    person: str | None,
) -> None:
    """Print a note or a conversation, or some lines of it.

    PATH may be a citation (memory/ideas.md#L3-L9), a day (today, yesterday, 2026-11-12), or the title or file name of a
    note.
    """
    if what and (start or lines):
        raise UsageError(f"--{what} is about the whole.", hint="Name the lines as in memory/ideas.md#L3-L9.")
    if what == "why":
        _show_why(options, " ".join(path))
        return
    name, start, lines = from_citation(" ".join(path), start, lines)
    if what == "links":
        _show_links(options, name, person)
        return
    with options.memory(person=person) as memory:
        try:
            passage = memory.read(name, start=start or 1, lines=lines)
        except NoteNotFound as exc:
            raise NoteNotFound(exc.message, hint=memory.notes.name_nearest(name) or exc.hint) from exc
    if not passage.lines and passage.start > 1:
        raise NoteNotFound(
            f"{passage.path} has no line {passage.start}.",
            hint=f"'kept get {passage.path}' shows it from its beginning.",
        )
    if options.as_json:
        print_json(passage_json(passage))
        return
    echo_exactly(f"{passage.text}\n")
    if passage.truncated and lines is None:
        echo(style(f"… more: kept get {passage.path} --from {passage.next_from}", dim=True), err=True)


# links


def _show_links(options: Globals, name: str, person: str | None) -> None:
    from kept.agent.tools.record_json import links_json
    from kept.base.limits import one_line
    from kept.cli.list import link_kind, link_text
    from kept.cli.output import progress_bar, warn_all

    with options.memory(person=person) as memory, progress_bar("Indexing") as progress:
        links = memory.notes.links(name, progress=progress)
    if options.as_json:
        print_json(links_json(links))
        return
    warn_all(links.degraded)
    title = "" if links.title == links.path else f"  {style(one_line(links.title), dim=True)}"
    echo(f"{style(one_line(links.path), bold=True)}{title}")
    broken = sum(link.is_broken for link in links.outgoing)
    echo(f"\n{plural(len(links.outgoing), 'link')} to other notes" + (f" ({broken} broken)" if broken else ""))
    for link in links.outgoing:
        echo(f"  {style(f'L{link.line}', dim=True)}  {link_text(link)}")
    echo(f"\n{plural(len(links.incoming), 'link')} from other notes")
    for link in links.incoming:
        heading = style(f"  to #{link.heading}", dim=True) if link.heading else ""
        echo(f"  {style(one_line(link.citation), fg='cyan')}{heading}{link_kind(link)}")


# where it came from


def _show_why(options: Globals, reference: str) -> None:
    from kept.agent.tools.tool_text import from_uri
    from kept.cli.provenance import trace_note
    from kept.gateway.app import open_memory, open_sessions

    loaded = options.load_finished()
    with open_memory(loaded) as memory, open_sessions(loaded) as sessions:
        origin = trace_note(memory, sessions, from_uri(reference))
    print_json(_origin_json(origin)) if options.as_json else _print_origin(origin)


def _print_origin(origin: PassageOrigin) -> None:
    passage = origin.passage
    lines = tuple(range(passage.start, passage.start + passage.lines))
    echo(style(f"{passage.path}, {_lines_text(lines)}", bold=True))
    for item in origin.changes:
        echo(f"{_change_text(item.change)}  {_lines_text(item.lines)}")
    if origin.unknown_lines:
        echo(f"{_lines_text(origin.unknown_lines)}: from before the history began, or from another program")
    for session in origin.sessions[:_SHOWN]:
        _print_session(session)


def _print_session(session: OriginSession) -> None:
    title = f" '{session.title}'" if session.title else ""
    state = " (deleted, or on another machine)" if session.is_missing else ""
    echo(f"\n{style('Conversation', bold=True)} {session.id}{title}{state}")
    if session.citation:
        echo(session.citation)
    if session.imported_from:
        echo(f"imported from {session.imported_from}")
    for line in session.text.split("\n") if session.text else ():
        echo(f"  {line}")


def _change_text(change: NoteChange) -> str:
    from kept.cli.history import SHORT_ID, author_text, kind_text

    why = f" ({change.why})" if change.why else ""
    state = "  (taken back)" if change.is_undone else ""
    lead = f"{change.id[:SHORT_ID]}  {local_time(change.when)}  {kind_text(change)}"
    return f"{lead} by {author_text(change)}{why}{state}"


def _lines_text(lines: tuple[int, ...]) -> str:
    """Return line numbers as ranges: 'lines 3-5, 9'."""
    ranges: list[list[int]] = []
    for line in sorted(lines):
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"{'line' if len(lines) == 1 else 'lines'} {shown}"


def _origin_json(origin: PassageOrigin) -> dict[str, Any]:
    from kept.agent.tools.record_json import change_json

    return {
        "passage": passage_json(origin.passage),
        "sessions": [_session_json(session) for session in origin.sessions],
        "changes": [{"lines": list(item.lines), "change": change_json(item.change)} for item in origin.changes],
        "unknownLines": list(origin.unknown_lines),
    }


def _session_json(session: OriginSession) -> dict[str, Any]:
    shape: dict[str, Any] = to_json(session)
    return {"sessionId": shape.pop("id"), "missing": shape.pop("isMissing"), **shape}
