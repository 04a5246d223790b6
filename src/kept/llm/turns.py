"""Turns as every provider takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kept.limits import storable, storable_tree
from kept.llm.base import Part, TextPart, ToolOutput, ToolUse, Turn


def tidy_turns(turns: Iterable[Turn]) -> list[Turn]:
    """Without texts that say nothing, which are refused, and with what one side said in a row as one turn."""
    tidy: list[Turn] = []
    for turn in turns:
        parts = tuple(_sendable(part) for part in turn.parts if not _is_blank(part))
        if parts and tidy and tidy[-1].role == turn.role:
            tidy[-1] = Turn(turn.role, tidy[-1].parts + parts)
        elif parts:
            tidy.append(Turn(turn.role, parts))
    return tidy


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _sendable(part: Part) -> Part:
    """A transcript may hold half surrogate pairs, which have no UTF-8: one would end its conversation for good."""
    match part:
        case TextPart(text):
            return TextPart(storable(text))
        case ToolUse():
            arguments = storable_tree(dict(part.arguments))
            return ToolUse(storable(part.id), storable(part.name), arguments)
        case ToolOutput():
            return replace(part, call_id=storable(part.call_id), text=storable(part.text))
