"""Turns as every provider takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kept.llm.base import Part, TextPart, Turn


def tidy_turns(turns: Iterable[Turn]) -> list[Turn]:
    """Without texts that say nothing, which are refused, and with what one side said in a row as one turn."""
    tidy: list[Turn] = []
    for turn in turns:
        parts = tuple(part for part in turn.parts if not _is_blank(part))
        if parts and tidy and tidy[-1].role == turn.role:
            tidy[-1] = Turn(turn.role, tidy[-1].parts + parts)
        elif parts:
            tidy.append(Turn(turn.role, parts))
    return tidy


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()
