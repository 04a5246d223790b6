"""The log of a day: memory/2026-11-16.md, and memory/2026-11-16-2.md where the first is full."""

from __future__ import annotations

import datetime as dt
import os
import re

from kept.workspace.workspace import MEMORY_FOLDER, Workspace

DAILY_NOTE = re.compile(r"(?:^|/)(\d{4}-\d{2}-\d{2})(?:-([2-9]|[1-9]\d{1,2}))?\.md$", re.IGNORECASE)
"""The day, and which part of its log it is: none for the first."""
_MOST_PARTS = 999


def daily_name(day: dt.date, part: int = 1) -> str:
    return f"{MEMORY_FOLDER}/{day:%Y-%m-%d}{'' if part == 1 else f'-{part}'}.md"


def daily_parts(workspace: Workspace, day: dt.date) -> list[str]:
    """The files of a day's log that are there, in the order they were written."""
    parts: list[str] = []
    for part in range(1, _MOST_PARTS + 1):
        name = daily_name(day, part)
        if not os.path.lexists(os.path.join(workspace.root, name)):
            break
        parts.append(name)
    return parts


def find_next_part(workspace: Workspace, path: str) -> str | None:
    """Where the log goes on that a file is part of, if it does."""
    name = DAILY_NOTE.search(path)
    if name is None:
        return None
    part = int(name[2] or 1) + 1
    after = f"{path[: name.start(1)]}{name[1]}-{part}.md"
    return after if os.path.isfile(os.path.join(workspace.root, after)) else None
