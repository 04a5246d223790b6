"""Notes of today and yesterday, as part of a conversation.

They go before the first message of a day. The transcript records only which lines were shown, so that later requests
repeat the same text and a provider's cache stays valid, while a line that is corrected or forgotten changes here too.
Lines that are added later in the day are not shown again: either they were written in this conversation, or a search
finds them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping

from kept.agent.services import AgentServices
from kept.context.context import DayExcerpt
from kept.context.view import DAY_NOTES, ConversationView
from kept.errors import KeptError
from kept.limits import CHARS_PER_TOKEN, weigh
from kept.memory import Memory
from kept.workspace.daily import daily_notes_in, daily_parts, get_daily_notes
from kept.workspace.opened import OpenWorkspace

_DAY = "day"
_LINES = "lines"


def plan_day_notes(services: AgentServices, view: ConversationView) -> dict[str, object] | None:
    """Return the metadata of a message that the notes of these days go before.

    Return None if there are no notes, or if they were shown today. If they are too long, the last lines are shown, of
    today first.
    """
    if not services.model.writes:
        return None
    memory, limit_tokens = services.memory, services.budget.days
    today = memory.clock.now().date()
    records = [logged.message.metadata[DAY_NOTES] for logged in view.messages if DAY_NOTES in logged.message.metadata]
    if limit_tokens == 0 or any(isinstance(record, dict) and record.get(_DAY) == str(today) for record in records):
        return None
    shown = {path: last for record in records for path, _, last in _read_lines(record)}
    excerpts: list[list[object]] = []
    left = limit_tokens * CHARS_PER_TOKEN
    for day in (today, today - dt.timedelta(days=1)):
        for path in reversed(_parts_of(memory, day)):
            lines = _read_note(memory, path)
            first, left = _first_fitting(lines, shown.get(path, 0), left)
            if first <= len(lines):
                excerpts.insert(0, [path, first, len(lines)])
    return {_DAY: str(today), _LINES: excerpts} if excerpts else None


def _parts_of(memory: Memory, day: dt.date) -> list[str]:
    """Return the shared notes of a day, and then those of the person that the memory is for."""
    own = memory.visible.own_folders if memory.viewer else []
    logs = (None, *map(daily_notes_in, own))
    return [path for log in logs for path in daily_parts(memory.workspace, day, log)]


def read_day_notes(memory: Memory, view: ConversationView) -> Mapping[str, tuple[DayExcerpt, ...]]:
    """Return the lines that were shown before messages, as the notes have them now, by the ids of these messages."""
    excerpts = {}
    for logged in view.messages:
        if DAY_NOTES in logged.message.metadata:
            shown = tuple(_iter_excerpts(memory, _read_lines(logged.message.metadata[DAY_NOTES])))
            if shown:
                excerpts[logged.entry.id] = shown
    return excerpts


def _iter_excerpts(memory: Memory, ranges: Iterable[tuple[str, int, int]]) -> Iterator[DayExcerpt]:
    daily = get_daily_notes(memory.workspace)
    for path, first, last in ranges:
        if daily.find_day(path) is not None:  # a transcript from elsewhere may name anything
            text = "\n".join(_read_note(memory, path)[first - 1 : last])
            if text.strip():
                yield DayExcerpt(path, first, last, text)


def _read_lines(record: object) -> Iterator[tuple[str, int, int]]:
    lines = record.get(_LINES) if isinstance(record, dict) else None
    for item in lines if isinstance(lines, list) else ():
        match item:
            case [str(path), int(first), int(last)] if 0 < first <= last:
                yield path, first, last


def _read_note(memory: Memory, path: str) -> list[str]:
    """Return the lines of a note. A note that cannot be read has none: `kept doctor` and every sync report it."""
    if memory.viewer is not None and not memory.viewer.sees_note(path):
        return []
    try:
        with OpenWorkspace(memory.workspace) as opened:
            absolute = memory.workspace.locate(path)
            text = opened.read(absolute, max_bytes=memory.settings.max_file_bytes).text
    except KeptError:
        return []
    return text.rstrip("\n").split("\n") if text.strip() else []


def _first_fitting(lines: list[str], after: int, room: int) -> tuple[int, int]:
    """Return the number of the first line after ``after`` from which on the note fits, and the room that is left."""
    first = len(lines) + 1
    while first - 1 > after and weigh(lines[first - 2]) + 1 <= room:
        first -= 1
        room -= weigh(lines[first - 1]) + 1
    return first, room if first - 1 <= after else 0
