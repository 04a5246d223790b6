"""Facts in an answer to the flush prompt.

The prompt asks for a list. Models also answer with nested lists, or in words that there is nothing. Each fact becomes
one line that makes sense without the others. What is not in a list, and questions, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from kept.agent.answer import is_empty_answer
from kept.context.compaction_plan import TranscriptPiece
from kept.context.fence import clean_line
from kept.llm.base import ToolUse
from kept.redact import REDACTED, redact
from kept.values import frozen

_LISTED_FACT_CHARS = 600
_MAX_FACTS = 100
_ITEM = re.compile(r"^(?P<indent>\s{0,12})(?:[-*+•–]|\d{1,3}[.)]|\(\d{1,3}\))\s+(?:\[[ xX]\]\s+)?(?P<text>.*)$")
_LINES = re.compile(r"\s*[\[(]?\bL?(?P<first>\d{1,9})(?:\s*[-–]\s*L?(?P<last>\d{1,9}))?[\])]?\.?\s*$")
_MARKED_LINES = re.compile(r"\s*[\[(]?\bL(?P<first>\d{1,9})(?:\s*[-–]\s*L?(?P<last>\d{1,9}))?[\])]?\.?\s*$")
_LASTING = re.compile(r"^\s*[*_\[(]*lasting[*_\])]*\s*[:：-]\s*|\s*[\[(]lasting[\])]", re.IGNORECASE)


@frozen
class Fact:
    text: str
    first_line: int
    last_line: int
    changes: str = ""
    """Citation of an older line that it seems to change."""
    is_lasting: bool = False
    """True if it will hold for months, and so belongs into long-term memory."""


def parse_facts(text: str, piece: TranscriptPiece) -> list[Fact]:
    """Return the facts in an answer: the items of its list."""
    if is_empty_answer(text):
        return []
    facts = (_parse_fact(item, None, piece) for item in islice(_iter_items(text), _MAX_FACTS))
    return [fact for fact in facts if fact]


def facts_from_call(use: ToolUse, piece: TranscriptPiece) -> list[Fact]:
    """Return the facts of a call to memory_write, one or a list of them."""
    text, lines = use.arguments.get("text"), use.arguments.get("lines")
    if use.name != "memory_write" or not isinstance(text, str):
        return []
    items = list(_iter_items(text)) or [text]
    named = str(lines) if lines is not None else None
    is_lasting = use.arguments.get("lasting") is True
    facts = (_parse_fact(item, named, piece, is_lasting=is_lasting) for item in items[:_MAX_FACTS])
    return [fact for fact in facts if fact]


def _iter_items(text: str) -> Iterator[str]:
    """Yield the items of a list. An item that only names those below it is put before each of them."""
    labels: list[tuple[int, str]] = []
    for line in text.split("\n"):
        match = _ITEM.match(line)
        if match is None:
            continue
        indent, item = len(match["indent"].expandtabs(4)), match["text"].strip()
        labels = [label for label in labels if label[0] < indent]
        if item.rstrip("*_ ").endswith(":") and len(item) <= _LISTED_FACT_CHARS:
            labels.append((indent, item.strip("*_ ").rstrip(":").strip("*_ ")))
            continue
        lead = "".join(f"{label}: " for _, label in labels)
        yield f"{lead}{item}"


def _parse_fact(text: str, lines: str | None, piece: TranscriptPiece, *, is_lasting: bool = False) -> Fact | None:
    """Return a fact, with the lines that are named beside it or at the end of its text."""
    match = _LINES.search(lines) if lines else _MARKED_LINES.search(text)
    if match and not lines:
        text = text[: match.start()]
    is_lasting = is_lasting or _LASTING.search(text) is not None
    text = clean_line(redact(_LASTING.sub("", text)), _LISTED_FACT_CHARS).lstrip("#>-*+ ")
    is_said = not text.endswith(("?", "？")) and not text.startswith(("→", "←"))
    is_secret = text.rstrip(" .`*_\"')").endswith(REDACTED)  # "The API key is [redacted]" tells nothing
    if is_empty_answer(text) or not is_said or is_secret:
        return None
    return Fact(text, *_lines_within(match, piece), is_lasting=is_lasting)


def _lines_within(match: re.Match[str] | None, piece: TranscriptPiece) -> tuple[int, int]:
    """Return the lines that the model named if it has seen them, else all lines of the piece."""
    if match:
        first = int(match["first"])
        last = int(match["last"] or first)
        if piece.first_line <= first <= last <= piece.last_line:
            return first, last
    return piece.first_line, piece.last_line
