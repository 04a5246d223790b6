"""kept get: a note or a conversation, its links, or where it came from"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

import click

from kept.agent.tools.record_json import change_json, links_json, passage_json, to_json
from kept.agent.tools.tool_text import from_citation, from_uri
from kept.base.limits import one_line
from kept.base.listings import NoteLinks
from kept.base.records import Passage, parse_citation
from kept.base.values import frozen
from kept.base.wording import plural
from kept.cli.history import describe_change
from kept.cli.list import link_kind, link_text
from kept.cli.options import alternative, kept_command, option, person_option
from kept.cli.output import bold, cyan, dim, echo_exactly, progress_bar
from kept.cli.root import Globals
from kept.errors import KeptError, NoteNotFound, UsageError
from kept.gateway.app import open_sessions
from kept.memory import Memory
from kept.notes.history.note_history import NoteChange, NoteHistory
from kept.sessions.store import SessionStore
from kept.sessions.transcript_paths import CITED_FOLDER, is_transcript_citation, parse_transcript_name

_SHOWN = 50
_SOURCE = r"\bsessions/[^\s()#]+\.jsonl(?:#L\d{1,9}(?:-L?\d{1,9})?)?"
_MAX_SOURCES = 50
_MAX_VERSIONS = 1_000
"""Changes of a note that are compared before a line counts as older than the history."""


@kept_command("get")
@click.argument("path", nargs=-1, required=True)
@option("--from", "N", "First line (default: 1).", "start", type=click.IntRange(min=1))
@option("--lines", "N", "Number of lines (default: 200).", type=click.IntRange(min=1))
@alternative("--links", "what", "Show its links and backlinks instead.")
@alternative(
    "--why", "what", "Show where it came from instead: conversation, import, and the change that wrote each line."
)
@person_option
def command(
    options: Globals, path: tuple[str, ...], start: int | None, lines: int | None, what: str | None, person: str | None
) -> None:
    """Print a note or a conversation, or some lines of it.

    PATH may be a citation (memory/ideas.md#L3-L9), a day (today, yesterday, 2026-11-12), or the title or file name of a
    note.

    \b
    kept get yesterday
    kept get memory/ideas.md#L3-L9
    kept get memory/2026-03-02.md#L12 --why
    """
    if what and (start or lines):
        raise UsageError(f"--{what} is about the whole.", hint="Name the lines as in memory/ideas.md#L3-L9.")
    if what == "why":
        _show_why(options, " ".join(path))
        return
    name, start, lines = from_citation(" ".join(path), start, lines)
    if what == "links":
        with options.memory(person=person) as memory, progress_bar("Indexing") as progress:
            links = memory.notes.links(name, progress=progress)
        options.report(links_json(links), _link_lines(links), degraded=links.degraded)
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
    options.report(passage_json(passage), ())
    if not options.as_json:
        echo_exactly(f"{passage.text}\n")
    if passage.truncated and lines is None:
        options.hint(f"… more: kept get {passage.path} --from {passage.next_from}")


# links


def _link_lines(links: NoteLinks) -> Iterator[str]:
    title = "" if links.title == links.path else f"  {dim(one_line(links.title))}"
    yield f"{bold(one_line(links.path))}{title}"
    broken = sum(link.is_broken for link in links.outgoing)
    yield f"\n{plural(len(links.outgoing), 'link')} to other notes" + (f" ({broken} broken)" if broken else "")
    for link in links.outgoing:
        yield f"  {dim(f'L{link.line}')}  {link_text(link)}"
    yield f"\n{plural(len(links.incoming), 'link')} from other notes"
    for link in links.incoming:
        heading = dim(f"  to #{link.heading}") if link.heading else ""
        yield f"  {cyan(one_line(link.citation))}{heading}{link_kind(link)}"


# where it came from
#
# Three records lead back. A fact that a flush wrote names its lines: (from sessions/….jsonl#L3-L5). The history of the
# notes has the change that brought a line, with its author and session. An imported conversation has the file that it
# was imported from.


def _show_why(options: Globals, reference: str) -> None:
    loaded = options.load()
    with Memory.of(loaded) as memory, open_sessions(loaded) as sessions:
        origin = trace_note(memory, sessions, from_uri(reference))
    changes = [{"lines": list(item.lines), "change": change_json(item.change)} for item in origin.changes]
    shape = {"passage": passage_json(origin.passage), "sessions": to_json(origin.sessions), "changes": changes}
    options.report({**shape, "unknownLines": list(origin.unknown_lines)}, _origin_lines(origin))


@frozen
class OriginSession:
    """A conversation that something came from."""

    session_id: str
    title: str | None
    citation: str
    text: str
    """Cited lines as they are shown; empty if the whole conversation is meant, or if it is gone."""
    imported_from: str | None
    """File that the conversation was imported from."""
    missing: bool = False


@frozen
class LineOrigin:
    """The change that brought lines of a note."""

    change: NoteChange
    lines: tuple[int, ...]


@frozen
class PassageOrigin:
    """Origin of a passage of a note."""

    passage: Passage
    sessions: tuple[OriginSession, ...]
    changes: tuple[LineOrigin, ...]
    """Newest first."""
    unknown_lines: tuple[int, ...]
    """Lines that are older than the history, or whose version cannot be read."""


def trace_note(memory: Memory, sessions: SessionStore, reference: str) -> PassageOrigin:
    """Return the origin of a note, or of the lines that a citation names."""
    path, first, last = parse_citation(reference) or (reference, 1, 0)
    if is_transcript_citation(path):
        raise UsageError(f"{reference} is a conversation.", hint="Name a note or lines of one: memory/ideas.md#L3")
    passage = memory.read(path, start=first, lines=last - first + 1 if last else None)
    if not passage.lines:
        raise UsageError(f"{passage.path} has no line {first}.", hint=f"'kept get {passage.path}' shows it.")
    texts = dict(enumerate(passage.text.split("\n"), passage.start))
    changes, unknown = _find_changes(memory, passage.path, texts)
    origins = []
    for citation in dict.fromkeys(re.findall(_SOURCE, passage.text)[:_MAX_SOURCES]):
        name, first, last = parse_citation(citation) or (citation, 0, 0)
        origin = _session_origin(sessions, parse_transcript_name(name.removeprefix(CITED_FOLDER))[0], citation)
        if first and not origin.missing:
            with suppress(KeptError):
                origin = replace(origin, text=memory.read(name, start=first, lines=last - first + 1).text)
        origins.append(origin)
    known = {origin.session_id for origin in origins}
    for line in changes:
        session = line.change.by.session
        if session and session not in known:
            known.add(session)
            origins.append(_session_origin(sessions, session))
    return PassageOrigin(passage, tuple(origins), tuple(changes), unknown)


def _find_changes(memory: Memory, path: str, texts: dict[int, str]) -> tuple[list[LineOrigin], tuple[int, ...]]:
    """Return the newest change that brought each line, and the lines that none brought. A renamed note is followed."""
    open_lines = {number: text for number, text in texts.items() if text.strip()}
    origins: list[LineOrigin] = []
    history, versions = memory.history, 0
    for change in history.iter_changes():
        if not open_lines or versions == _MAX_VERSIONS:
            break
        if change.path != path:
            continue
        versions += 1
        try:
            new = _lines_of(history, change.after) - _lines_of(history, change.before)
        except KeptError:
            continue  # a damaged version explains nothing; an older one may
        path = change.was or path
        if numbers := tuple(number for number, text in open_lines.items() if text in new):
            origins.append(LineOrigin(change, numbers))
            open_lines = {number: text for number, text in open_lines.items() if number not in numbers}
    return origins, tuple(open_lines)


def _lines_of(history: NoteHistory, digest: str | None) -> frozenset[str]:
    raw = history.read_version(digest) or b""
    return frozenset(raw.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"))


def _session_origin(sessions: SessionStore, session_id: str, citation: str = "") -> OriginSession:
    record = sessions.find_by_id(session_id)
    if record is None:
        return OriginSession(session_id, None, citation, "", None, missing=True)
    imported: Any = record.metadata.get("imported")
    source = imported.get("path") if isinstance(imported, dict) else None
    citation = citation or record.citation
    return OriginSession(record.id, record.title, citation, "", source if isinstance(source, str) else None)


def _origin_lines(origin: PassageOrigin) -> Iterator[str]:
    passage = origin.passage
    lines = tuple(range(passage.start, passage.start + passage.lines))
    yield bold(f"{passage.path}, {_lines_text(lines)}")
    for item in origin.changes:
        why = f" ({item.change.why})" if item.change.why else ""
        yield f"{describe_change(item.change)}{why}  {_lines_text(item.lines)}"
    if origin.unknown_lines:
        yield f"{_lines_text(origin.unknown_lines)}: from before the history began, or from another program"
    for session in origin.sessions[:_SHOWN]:
        title = f" '{session.title}'" if session.title else ""
        state = " (deleted, or on another machine)" if session.missing else ""
        yield f"\n{bold('Conversation')} {session.session_id}{title}{state}"
        imported = f"imported from {session.imported_from}" if session.imported_from else ""
        text = session.text and "  " + session.text.replace("\n", "\n  ")
        yield from filter(None, (session.citation, imported, text))


def _lines_text(lines: tuple[int, ...]) -> str:
    """Return line numbers as ranges: 'lines 3-5, 9'."""
    runs = ([line for _, line in run] for _, run in groupby(enumerate(sorted(lines)), lambda item: item[1] - item[0]))
    shown = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"{'line' if len(lines) == 1 else 'lines'} {shown}"
