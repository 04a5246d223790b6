"""Durable facts: as a model names them, without those that are remembered already, and as they stand in a note."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from kept.agent.asking import says_nothing
from kept.context.fence import one_line
from kept.context.talk import Piece
from kept.errors import KeptError
from kept.llm.base import ToolUse
from kept.memory import Memory
from kept.records import cite
from kept.redact import redact
from kept.values import frozen

MAX_FACT_CHARS = 600
_COMPARED = 8
"""Notes that are nearest to a fact, in which it may stand already."""
_ITEM = re.compile(r"^\s{0,8}(?:[-*+•]|\d{1,3}[.)])\s+(?P<text>.*)$")
_LINES = re.compile(r"\s*[\[(]?\bL?(?P<first>\d{1,9})(?:\s*[-–]\s*L?(?P<last>\d{1,9}))?[\])]?\.?\s*$")
_MARKED_LINES = re.compile(r"\s*[\[(]?\bL(?P<first>\d{1,9})(?:\s*[-–]\s*L?(?P<last>\d{1,9}))?[\])]?\.?\s*$")
_PROVENANCE = re.compile(r"\s*\(from sessions/[^()\s]*\)\s*$")


@frozen
class Fact:
    text: str
    first_line: int
    last_line: int

    def stand(self, path: str) -> str:
        """As a line of a note, with where it is from."""
        return f"- {self.text} (from {cite(path, self.first_line, self.last_line)})"


def facts_in_text(text: str, piece: Piece) -> list[Fact]:
    """What an answer lists, or each of its lines where it is no list; nothing where it says that there is nothing."""
    if says_nothing(text):
        return []
    lines = text.splitlines()
    items = [found["text"] for found in map(_ITEM.match, lines) if found]
    return [fact for item in items or lines if (fact := _fact(item, None, piece))]


def fact_of_call(use: ToolUse, piece: Piece) -> Fact | None:
    text, lines = use.arguments.get("text"), use.arguments.get("lines")
    if use.name != "memory_write" or not isinstance(text, str):
        return None
    return _fact(text, str(lines) if lines is not None else None, piece)


def _fact(text: str, lines: str | None, piece: Piece) -> Fact | None:
    found = _LINES.search(lines) if lines else _MARKED_LINES.search(text)
    if found and not lines:
        text = text[: found.start()]
    text = one_line(redact(text), MAX_FACT_CHARS).lstrip("#>-*+ ")
    if says_nothing(text):
        return None
    first, last = _within(found, piece)
    return Fact(text, first, last)


def _within(found: re.Match[str] | None, piece: Piece) -> tuple[int, int]:
    """The lines that were named, if the model has seen them; else all it has seen."""
    if found:
        first = int(found["first"])
        last = int(found["last"] or first)
        if piece.first_line <= first <= last <= piece.last_line:
            return first, last
    return piece.first_line, piece.last_line


# what is remembered already


def new_facts(memory: Memory, facts: Iterable[Fact]) -> list[Fact]:
    """Without those that say what a note, or an earlier one of them, says already."""
    known: set[str] = set()
    fresh = []
    for fact in facts:
        norm = normalise(fact.text)
        if norm and norm not in known and not _is_noted(memory, fact.text, norm):
            fresh.append(fact)
        known.add(norm)
    return fresh


def _is_noted(memory: Memory, text: str, norm: str) -> bool:
    try:
        hits = memory.search(text, source="memory", max_results=_COMPARED, min_score=0.0)
    except KeptError:
        return False  # to write something down twice is better than not at all
    return any(norm in _normalised_lines(hit.snippet) for hit in hits)


def _normalised_lines(snippet: str) -> Sequence[str]:
    return [normalise(_PROVENANCE.sub("", line)) for line in snippet.splitlines()]


def normalise(text: str) -> str:
    """A sentence without what does not change what it says: case, width, accents of writing, signs, spaces."""
    plain = unicodedata.normalize("NFKC", _PROVENANCE.sub("", text)).casefold()
    return " ".join("".join(char if char.isalnum() else " " for char in plain).split())
