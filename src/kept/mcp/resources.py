"""Notes and daily logs as resources that a client can browse: kept://notes/PATH and kept://daily/DATE.

Every path goes through the same containment as those that tools are given.
"""

from __future__ import annotations

import datetime as dt
import os
from urllib.parse import quote, unquote

from kept.errors import NoteNotFound, UsageError
from kept.memory import Memory
from kept.records import SourceFile
from kept.values import frozen
from kept.workspace.daily import DAILY_NOTE, daily_name, daily_parts
from kept.workspace.scan import scan_workspace

NOTES = "kept://notes/"
DAILY = "kept://daily/"
PAGE = 500
MIME_TYPE = "text/markdown"


@frozen
class Listed:
    uri: str
    name: str
    title: str
    size: int
    modified: str


def list_notes(memory: Memory, cursor: str | None) -> tuple[list[Listed], str | None]:
    """A page of the notes there are, by name, and where the next begins. Without a workspace there are none."""
    if not os.path.isdir(memory.workspace.root):
        return [], None
    found = scan_workspace(memory.workspace, max_bytes=memory.settings.max_file_bytes).files
    files = sorted(found, key=lambda file: file.path)
    after = _decode(cursor) if cursor else ""
    rest = [file for file in files if file.path > after]
    page = rest[:PAGE]
    more = quote(page[-1].path, safe="") if len(rest) > PAGE else None
    return [_listed(file) for file in page], more


def _listed(file: SourceFile) -> Listed:
    daily = DAILY_NOTE.search(file.path)
    title = os.path.basename(file.path)
    if daily:
        title = f"Daily log {daily[1]}" + (f", part {daily[2]}" if daily[2] else "")
    modified = dt.datetime.fromtimestamp(file.mtime_ns / 1e9, dt.UTC)
    return Listed(uri_of(file.path), file.path, title, file.size, f"{modified:%Y-%m-%dT%H:%M:%SZ}")


def uri_of(path: str) -> str:
    return NOTES + quote(path)


def read_resource(memory: Memory, uri: str) -> str:
    """The whole text of a note or of a day's log. A name is decoded once, so what was encoded twice names nothing."""
    texts = []
    for path in _paths_of(memory, uri):
        start: int | None = 1
        while start is not None:
            passage = memory.read(path, start=start, lines=1_000_000)
            texts.append(passage.text)
            start = passage.next_from
    return "\n".join(texts)


def _paths_of(memory: Memory, uri: str) -> list[str]:
    if uri.startswith(NOTES):
        return [_decode(uri.removeprefix(NOTES))]
    if uri.startswith(DAILY):
        return _daily_paths(memory, _decode(uri.removeprefix(DAILY)))
    raise NoteNotFound(f"{uri}: there is no such resource.", hint="They begin with kept://notes/ or kept://daily/.")


def _daily_paths(memory: Memory, date: str) -> list[str]:
    from kept.tools.toolbox import find_day

    day = find_day(date, memory.clock.now())
    return daily_parts(memory.workspace, day) or [daily_name(day)]


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UsageError("That is not UTF-8, percent-encoded.", hint="Encode the path as UTF-8.") from None
