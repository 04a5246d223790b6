"""What /forget would take out of the notes, and taking it out once that was confirmed.

What would go is written into the session as a state, without the text itself: so the question can be answered after a
restart, and a passage that has changed since is left alone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

from kept.memory import Memory
from kept.records import Hit, cite
from kept.search.query import parse_query
from kept.sessions.entries import StateEntry
from kept.sessions.store import SessionStore
from kept.values import frozen
from kept.workspace.removal import LineRemoval, Removed, remove_passages

STATE = "forget"
_SHOWN = 5
_VALID = dt.timedelta(hours=1)
_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(?:```|~~~)")


@frozen
class ForgetMatch:
    """A paragraph or list item of a note."""

    path: str
    start_line: int
    text: str

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.start_line + self.text.count("\n"))


def find_passages(memory: Memory, query: str) -> tuple[list[ForgetMatch], list[Hit]]:
    """What the notes say about it, cut down to the paragraphs that name it; and where conversations do, which stay."""
    words = {term.text.casefold() for term in parse_query(query).terms}
    found: dict[tuple[str, int], ForgetMatch] = {}
    for hit in memory.search(query, source="memory", max_results=_SHOWN):
        lines = memory.read(hit.path, start=hit.start_line, lines=hit.end_line - hit.start_line + 1)
        passages = split_passages(hit.path, hit.start_line, lines.text)
        telling = [one for one in passages if any(word in one.text.casefold() for word in words)]
        found.update(((one.path, one.start_line), one) for one in telling or passages)
    said: list[Hit] = []
    if "sessions" in memory.settings.sources:
        said = list(memory.search(query, source="sessions", max_results=_SHOWN))
    return list(found.values())[:_SHOWN], said


def split_passages(path: str, first_line: int, text: str) -> list[ForgetMatch]:
    """Paragraphs and list items. Headings are none: they stay, whatever stood below them."""
    passages: list[ForgetMatch] = []
    current: list[str] = []
    start = first_line
    fenced = False

    def close() -> None:
        if current:
            passages.append(ForgetMatch(path, start, "\n".join(current)))
            current.clear()

    for number, line in enumerate(text.split("\n"), first_line):
        heading = not fenced and line.startswith("#")
        if not fenced and (not line.strip() or heading or _ITEM.match(line)):
            close()
        if _FENCE.match(line):
            fenced = not fenced
        if heading or (not line.strip() and not fenced):
            continue
        if not current:
            start = number
        current.append(line)
    close()
    return passages


def remember_question(sessions: SessionStore, session_id: str, passages: Sequence[ForgetMatch]) -> None:
    cuts = [LineRemoval.of(one.path, one.start_line, one.text) for one in passages]
    value = {
        "asked": sessions.clock.now().isoformat(),
        "cuts": [[cut.path, cut.start_line, cut.end_line, cut.digest] for cut in cuts],
    }
    sessions.append(session_id, StateEntry(STATE, value))


def pending_cuts(sessions: SessionStore, session_id: str) -> list[LineRemoval]:
    """What was asked about within the last hour and neither confirmed nor declined."""
    value: Any = sessions.get(session_id).state.get(STATE)
    try:
        if sessions.clock.now() - dt.datetime.fromisoformat(value["asked"]) > _VALID:
            return []
        return [LineRemoval(str(path), int(start), int(end), str(digest)) for path, start, end, digest in value["cuts"]]
    except (TypeError, KeyError, ValueError, OverflowError):
        return []


def withdraw_question(sessions: SessionStore, session_id: str) -> None:
    sessions.append(session_id, StateEntry(STATE, None))


def tombstones_path(memory: Memory) -> str:
    return memory.config.paths.forgotten


def forget(memory: Memory, cuts: Sequence[LineRemoval]) -> Removed:
    return remove_passages(
        memory.workspace,
        cuts,
        kept_in=tombstones_path(memory),
        clock=memory.clock,
        max_bytes=memory.settings.max_file_bytes,
    )
