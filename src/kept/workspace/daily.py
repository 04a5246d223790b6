"""The log of a day: memory/2026-11-16.md, and memory/2026-11-16-2.md after the first is full."""

from __future__ import annotations

import datetime as dt
import os
import re

from kept.workspace.workspace import MEMORY_FOLDER, Workspace

DAILY_NOTE = re.compile(r"(?:^|/)(\d{4}-\d{2}-\d{2})(?:-([2-9]|[1-9]\d{1,2}))?\.md$", re.IGNORECASE)
"""Groups: the day, and the number of the part, without one for the first."""
_MAX_PARTS = 999


def daily_name(day: dt.date, part: int = 1) -> str:
    return f"{MEMORY_FOLDER}/{day:%Y-%m-%d}{'' if part == 1 else f'-{part}'}.md"


def daily_parts(workspace: Workspace, day: dt.date) -> list[str]:
    """Return the existing files of a day's log, in the order they were written."""
    parts: list[str] = []
    for part in range(1, _MAX_PARTS + 1):
        name = daily_name(day, part)
        if not os.path.lexists(os.path.join(workspace.root, name)):
            break
        parts.append(name)
    return parts


def find_next_part(workspace: Workspace, path: str) -> str | None:
    """Return the part of a daily log that follows ``path``, or None."""
    name = DAILY_NOTE.search(path)
    if name is None:
        return None
    part = int(name[2] or 1) + 1
    after = f"{path[: name.start(1)]}{name[1]}-{part}.md"
    return after if os.path.isfile(os.path.join(workspace.root, after)) else None
