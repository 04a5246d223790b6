"""Notes and daily logs as resources that a client can browse: kept://notes/PATH and kept://daily/DATE.

Every path goes through the same containment check as the paths that tools take.
"""

from __future__ import annotations

import datetime as dt
import os
from urllib.parse import quote

import mcp_types as types

from kept.agent.tools.tool_text import NOTES, decode, show_name, uri_of
from kept.base.records import SourceFile
from kept.errors import NoteNotFound
from kept.memory import Memory
from kept.notes.daily import DailyNotes, daily_name, get_daily_notes
from kept.notes.scan import scan_workspace

DAILY = "kept://daily/"
PAGE = 500
"""Notes per page."""
MIME_TYPE = "text/markdown"


def list_notes(memory: Memory, cursor: str | None) -> tuple[list[types.Resource], str | None]:
    """Return one page of the notes, by path, and the cursor of the next page. Without a workspace there are none."""
    if not os.path.isdir(memory.workspace.root):
        return [], None
    scan = scan_workspace(memory.workspace, max_bytes=memory.settings.max_file_bytes)
    visible = memory.visible
    files = sorted((file for file in scan.files if visible.sees_note(file.path)), key=lambda file: file.path)
    after = decode(cursor) if cursor else ""
    rest = [file for file in files if file.path > after]
    page = rest[:PAGE]
    next_cursor = quote(page[-1].path, safe="") if len(rest) > PAGE else None
    daily = get_daily_notes(memory.workspace)
    return [_resource(file, daily) for file in page], next_cursor


def _resource(file: SourceFile, daily: DailyNotes) -> types.Resource:
    """Describe a note. Clients show names and titles to people and models, so unusual characters are escaped."""
    day = daily.find_day(file.path)
    title = f"Daily log {day}" if day else show_name(os.path.basename(file.path))
    modified = dt.datetime.fromtimestamp(file.mtime_ns / 1e9, dt.UTC)
    return types.Resource(
        uri=uri_of(file.path),
        name=show_name(file.path),
        title=title,
        mime_type=MIME_TYPE,
        size=file.size,
        annotations=types.Annotations(last_modified=f"{modified:%Y-%m-%dT%H:%M:%SZ}"),
    )


def read_resource(memory: Memory, uri: str) -> str:
    """Return the whole text of a note or of a day's log. The path is decoded once, so that a doubly encoded one is
    not found."""
    texts = []
    path = _path_of(memory, uri)
    start: int | None = 1
    while start is not None:
        passage = memory.read(path, start=start, lines=1_000_000)
        texts.append(passage.text)
        start = passage.next_from
    return "\n".join(texts)


def _path_of(memory: Memory, uri: str) -> str:
    if uri.startswith(NOTES):
        return decode(uri.removeprefix(NOTES))
    if uri.startswith(DAILY):
        return _daily_path(memory, decode(uri.removeprefix(DAILY)))
    raise NoteNotFound(f"{uri}: there is no such resource.", hint="URIs begin with kept://notes/ or kept://daily/.")


def _daily_path(memory: Memory, date: str) -> str:
    from kept.agent.tools.toolbox import find_day

    return daily_name(memory.workspace, find_day(date, memory.clock.now()))
