"""Traces a remembered passage back to where it came from.

Three records lead back. A fact that a flush wrote names its lines: ``(from sessions/….jsonl#L3-L5)``. The history of
the notes has the change that brought a line, with its author and session. An imported conversation has the file that it
was imported from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kept.base.records import Passage, parse_citation
from kept.base.values import frozen
from kept.errors import KeptError, UsageError
from kept.memory import Memory
from kept.notes.history.note_change import NoteChange
from kept.notes.history.note_history import NoteHistory
from kept.sessions.store import SessionStore
from kept.sessions.transcript_paths import (
    CITED_FOLDER,
    cite_transcript,
    is_transcript_citation,
    parse_transcript_name,
)

_SOURCE = r"\bsessions/[^\s()#]+\.jsonl(?:#L\d{1,9}(?:-L?\d{1,9})?)?"
_MAX_SOURCES = 50
_MAX_VERSIONS = 1_000
"""Changes of a note that are compared before a line counts as older than the history."""


@frozen
class OriginSession:
    """A conversation that something came from."""

    id: str
    title: str | None
    citation: str
    text: str
    """Cited lines as they are shown; empty if the whole conversation is meant, or if it is gone."""
    imported_from: str | None
    """File that the conversation was imported from."""
    is_missing: bool = False


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
    cited = dict.fromkeys(re.findall(_SOURCE, passage.text)[:_MAX_SOURCES])
    origins = [_origin_of(memory, sessions, citation) for citation in cited]
    known = {origin.id for origin in origins}
    for origin in changes:
        session = origin.change.by.session
        if session and session not in known:
            known.add(session)
            origins.append(_session_origin(sessions, session))
    return PassageOrigin(passage, tuple(origins), tuple(changes), unknown)


def _find_changes(memory: Memory, path: str, texts: dict[int, str]) -> tuple[list[LineOrigin], tuple[int, ...]]:
    """Return the newest change that brought each line, and the lines that none brought."""
    open_lines = {number: text for number, text in texts.items() if text.strip()}
    origins: list[LineOrigin] = []
    for change, before, after in _iter_versions(memory, path):
        new = {text for text in after if text not in before}
        numbers = tuple(number for number, text in open_lines.items() if text in new)
        if numbers:
            origins.append(LineOrigin(change, numbers))
            for number in numbers:
                del open_lines[number]
        if not open_lines:
            break
    return origins, tuple(open_lines)


def _iter_versions(memory: Memory, path: str) -> Iterator[tuple[NoteChange, frozenset[str], frozenset[str]]]:
    """Yield the changes of a note, newest first, with its lines before and after. A renamed note is followed."""
    count = 0
    history = NoteHistory(memory.workspace, memory.config.home, memory.clock)
    for change in history.iter_changes():
        if change.path != path:
            continue
        count += 1
        if count > _MAX_VERSIONS:
            return
        try:
            yield change, _lines_of(history, change.before), _lines_of(history, change.after)
        except KeptError:
            continue  # a damaged version explains nothing; an older one may
        path = change.was or path


def _lines_of(history: NoteHistory, digest: str | None) -> frozenset[str]:
    raw = history.read_version(digest) or b""
    return frozenset(raw.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"))


def _origin_of(memory: Memory, sessions: SessionStore, citation: str) -> OriginSession:
    path, first, last = parse_citation(citation) or (citation, 0, 0)
    origin = _session_origin(sessions, parse_transcript_name(path.removeprefix(CITED_FOLDER))[0], citation)
    if not first or origin.is_missing:
        return origin
    try:
        text = memory.read(path, start=first, lines=last - first + 1).text
    except KeptError:
        text = ""
    return OriginSession(origin.id, origin.title, citation, text, origin.imported_from)


def _session_origin(sessions: SessionStore, session_id: str, citation: str = "") -> OriginSession:
    record = sessions.find_by_id(session_id)
    if record is None:
        return OriginSession(session_id, None, citation, "", None, is_missing=True)
    imported: Any = record.metadata.get("imported")
    source = imported.get("path") if isinstance(imported, dict) else None
    citation = citation or cite_transcript(record.transcript_path)
    return OriginSession(record.id, record.title, citation, "", source if isinstance(source, str) else None)
