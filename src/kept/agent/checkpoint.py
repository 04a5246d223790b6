"""Before anything leaves the context: is it on disk, and can a search find it? The receipt says what is so.

Turns are in the transcript already, word for word, and stay there. What a checkpoint does is to bring the index up to
date with them and to see for itself that every line that says something is in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from kept.agent.journal import SessionLog, hash_lines
from kept.context.view import LoggedMessage
from kept.errors import KeptError
from kept.indexing.sources import CITED_FOLDER
from kept.memory import Memory


def make_checkpoint(memory: Memory, journal: SessionLog, leaving: Sequence[LoggedMessage]) -> dict[str, Any]:
    """A receipt: where the messages stand, the hash of those lines, and whether a search finds them."""
    ranges = ranges_of(leaving)
    receipt: dict[str, Any] = {
        "path": journal.path,
        "lines": [list(one) for one in ranges],
        "sha256": journal.hash_lines(ranges),
        "messages": len(leaving),
    }
    reason = _why_not_searchable(memory, journal.path, ranges)
    return receipt | ({"searchable": True} if reason is None else {"searchable": False, "reason": reason})


def ranges_of(leaving: Sequence[LoggedMessage]) -> list[tuple[int, int]]:
    """Lines in a row, as first and last."""
    ranges: list[tuple[int, int]] = []
    for one in leaving:
        if ranges and one.line == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], one.line)
        else:
            ranges.append((one.line, one.line))
    return ranges


def _why_not_searchable(memory: Memory, path: str, ranges: Sequence[tuple[int, int]]) -> str | None:
    if not memory.settings.enabled or "sessions" not in memory.settings.sources:
        return "conversations are not searched, as it is set"
    try:
        memory.sync()
        missing = _missing(memory, path, ranges)
    except KeptError as exc:
        return exc.message
    return f"{len(missing)} lines are not in the index, the first is {missing[0]}" if missing else None


def _missing(memory: Memory, path: str, ranges: Sequence[tuple[int, int]]) -> list[int]:
    if not ranges:
        return []
    first, last = ranges[0][0], ranges[-1][1]
    found = memory.index_service.find_unindexed(path, first_line=first, last_line=last)
    return [line for line in found if any(low <= line <= high for low, high in ranges)]


def verify_receipt(memory: Memory, sessions_folder: str, receipt: dict[str, Any]) -> str | None:
    """What is no longer as a receipt says; None when all of it is."""
    ranges = [(low, high) for low, high in receipt["lines"]]
    path = os.path.join(sessions_folder, receipt["path"].removeprefix(CITED_FOLDER))
    if hash_lines(path, ranges) != receipt["sha256"]:
        return "the lines are not what they were"
    missing = _missing(memory, receipt["path"], ranges) if receipt["searchable"] else []
    return f"{len(missing)} lines are no longer in the index" if missing else None
