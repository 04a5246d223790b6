"""Addresses of pages, made from paths and citations."""

from __future__ import annotations

import datetime as dt
from urllib.parse import quote

from kept.records import parse_citation
from kept.sessions.transcript_paths import is_transcript_citation, parse_transcript_name

_SAFE = "/"


def place_url(prefix: str, path: str) -> str:
    """Return the address of a page about a note, such as ``/edit/memory/ideas.md``."""
    return f"/{prefix}/{quote(path, safe=_SAFE)}"


def note_url(path: str, line: int | None = None) -> str:
    """Return the address of the page of a note, or of a conversation by the path that cites it."""
    return citation_url(path, line, line)


def citation_url(path: str, start_line: int | None = None, end_line: int | None = None) -> str:
    """Return the address of lines of a note or of a conversation."""
    fragment = f"#L{start_line}" if start_line else ""
    if is_transcript_citation(path):
        session_id, _ = parse_transcript_name(path.rpartition("/")[2])
        query = f"?line={start_line}" if start_line else ""
        return f"{conversation_url(session_id)}{query}{fragment}"
    marked = f"?lines={start_line}-{end_line}" if start_line and end_line else ""
    return f"{place_url('note', path)}{marked}{fragment}"


def reference_url(citation: str) -> str:
    """Return the address of a citation as it is written, with or without lines."""
    cited = parse_citation(citation)
    return citation_url(*cited) if cited else citation_url(citation)


def conversation_url(session_id: str) -> str:
    return f"/conversations/{quote(session_id, safe='')}"


def day_url(day: dt.date) -> str:
    return f"/timeline?day={day:%Y-%m-%d}"
