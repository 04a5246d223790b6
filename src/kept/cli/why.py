"""kept why"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kept.cli.change_text import SHORT_ID, author_text, kind_text
from kept.cli.output import echo, json_option, local_time, print_json, style
from kept.cli.root import Globals
from kept.wording import plural

if TYPE_CHECKING:
    from kept.history.note_change import NoteChange
    from kept.provenance import OriginSession, PassageOrigin, SessionUse

_SHOWN = 50


@click.command("why")
@click.argument("reference", metavar="REFERENCE")
@json_option
@click.pass_obj
def command(options: Globals, reference: str, as_json: bool) -> None:
    """Show where a passage came from, or what was made of a conversation.

    REFERENCE is a passage (memory/ideas.md#L3-L9) or a whole note, for its conversation lines, the import, and the
    change that brought it. Or it is the id or key of a session, or a citation of its transcript, for the notes that
    name it, and what was written in it.
    """
    from kept.app import open_memory, open_sessions
    from kept.provenance import PassageOrigin, trace
    from kept.tools.tool_text import from_uri

    loaded = options.load_finished()
    with open_memory(loaded) as memory, open_sessions(loaded) as sessions:
        result = trace(memory, sessions, from_uri(reference))
    if isinstance(result, PassageOrigin):
        print_json(_origin_json(result)) if as_json else _print_origin(result)
    else:
        print_json(_use_json(result)) if as_json else _print_use(result)


# text


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


def _print_use(use: SessionUse) -> None:
    _print_session(use.session)
    for passage in use.passages[:_SHOWN]:
        echo(f"{style(passage.citation, fg='cyan')}  {passage.text}")
    for flush in use.flushes[:_SHOWN]:
        note = f", in {flush.note}" if flush.note else ""
        echo(f"{local_time(flush.time)}  flush: {flush.outcome}, {plural(flush.facts, 'fact')}{note}")
    for change in use.changes[:_SHOWN]:
        echo(f"{_change_text(change)}  {change.path}")
    if not (use.passages or use.flushes or use.changes):
        echo("Nothing was made of it.")


def _change_text(change: NoteChange) -> str:
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


# JSON


def _origin_json(origin: PassageOrigin) -> dict[str, Any]:
    from kept.tools.record_json import change_json, passage_json

    return {
        "passage": passage_json(origin.passage),
        "sessions": [_session_json(session) for session in origin.sessions],
        "changes": [{"lines": list(item.lines), "change": change_json(item.change)} for item in origin.changes],
        "unknownLines": list(origin.unknown_lines),
    }


def _session_json(session: OriginSession) -> dict[str, Any]:
    return {
        "sessionId": session.id,
        "title": session.title,
        "citation": session.citation,
        "text": session.text,
        "importedFrom": session.imported_from,
        "missing": session.is_missing,
    }


def _use_json(use: SessionUse) -> dict[str, Any]:
    from kept.tools.record_json import change_json

    return {
        "session": _session_json(use.session),
        "passages": [{"citation": passage.citation, "text": passage.text} for passage in use.passages],
        "flushes": [
            {"time": flush.time, "outcome": flush.outcome, "facts": flush.facts, "note": flush.note}
            for flush in use.flushes
        ],
        "changes": [change_json(change) for change in use.changes],
    }
