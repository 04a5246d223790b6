"""Facts in an answer to the flush prompt.

Models answer in many ways: with a list, nested lists, JSON, or in words that there is nothing.
Each fact becomes one line that makes sense without the others. Headings, introductions, questions and courtesies are
left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

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
_LABEL = re.compile(r"\s*(?:#{1,6}\s.*|\*\*[^*]{1,80}\*\*:?|[^.!?|]{1,80}:)\s*$")
"""Line that names what follows: a heading, a line in bold, or words that end with a colon."""
_COURTESY = re.compile(
    r"\s*(?:let me know|i(?:'ve| have| will|'ll| hope| can)\b|is there anything|sure\b|okay\b|ok[,.]|certainly"
    r"|of course|as requested|done\b|noted\b|here (?:are|is)\b|these (?:facts|are)\b|the following\b)",
    re.IGNORECASE,
)
_LASTING = re.compile(r"^\s*[*_\[(]*lasting[*_\])]*\s*[:：-]\s*|\s*[\[(]lasting[\])]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_FENCED_JSON = re.compile(r"^\s*```(?:json)?\s*\n(?P<body>.*?)\n```\s*$", re.DOTALL)


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
    """Return the facts in an answer: its list items, or each line if it has no list."""
    if is_empty_answer(text):
        return []
    entries = _read_json(text)
    if entries is None:
        entries = list(_iter_entries(text))
    facts = (_parse_fact(entry, None, piece) for entry in entries[:_MAX_FACTS])
    return [fact for fact in facts if fact]


def facts_from_call(use: ToolUse, piece: TranscriptPiece) -> list[Fact]:
    """Return the facts of a call to memory_write, one or a list of them."""
    text, lines = use.arguments.get("text"), use.arguments.get("lines")
    if use.name != "memory_write" or not isinstance(text, str):
        return []
    items = [entry for entry in _iter_entries(text) if entry.strip()] if _has_items(text) else [text]
    named = str(lines) if lines is not None else None
    is_lasting = use.arguments.get("lasting") is True
    facts = (_parse_fact(item, named, piece, is_lasting=is_lasting) for item in items[:_MAX_FACTS])
    return [fact for fact in facts if fact]


def _read_json(text: str) -> list[str] | None:
    """Return the texts of an answer in JSON, or None if it is not JSON."""
    fenced = _FENCED_JSON.match(text)
    body = (fenced["body"] if fenced else text).strip()
    if not body.startswith(("[", "{")) or not body.endswith(("]", "}")):
        return None
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return list(_iter_json_texts(tree))


def _iter_json_texts(tree: Any) -> Iterator[str]:
    """Yield the sentences of a list of texts, or of objects that have them as ``fact``, ``text`` or ``content``."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict) and (own := tree.get("fact") or tree.get("text") or tree.get("content")):
        yield f"{own} [{tree['lines']}]" if "lines" in tree else str(own)
    elif isinstance(tree, list | dict):
        for item in tree if isinstance(tree, list) else tree.values():
            yield from _iter_json_texts(item)


def _has_items(text: str) -> bool:
    return any(_ITEM.match(line) for line in text.split("\n"))


def _iter_entries(text: str) -> Iterator[str]:
    lines = text.split("\n")
    if any(map(_ITEM.match, lines)):
        yield from _iter_items(lines)
        return
    sentences = [part for line in lines for part in _SENTENCE_END.split(line) if part.strip()]
    if any(map(is_empty_answer, sentences)) and not any(map(_MARKED_LINES.search, lines)):
        return  # "It was small talk. There is nothing to remember."
    for line in lines:
        if line.strip() and not _LABEL.match(line) and not _COURTESY.match(line):
            yield line


def _iter_items(lines: Iterable[str]) -> Iterator[str]:
    """Yield the items of a list. An item that only names those below it is put before each of them."""
    labels: list[tuple[int, str]] = []
    for line in lines:
        match = _ITEM.match(line)
        if match is None:
            continue
        indent, text = len(match["indent"].expandtabs(4)), match["text"].strip()
        labels = [label for label in labels if label[0] < indent]
        if text.rstrip("*_ ").endswith(":") and len(text) <= _LISTED_FACT_CHARS:
            labels.append((indent, text.strip("*_ ").rstrip(":").strip("*_ ")))
            continue
        lead = "".join(f"{label}: " for _, label in labels)
        yield f"{lead}{text}"


def _parse_fact(text: str, lines: str | None, piece: TranscriptPiece, *, is_lasting: bool = False) -> Fact | None:
    """Return a fact, with the lines that are named beside it or at the end of its text."""
    match = _LINES.search(lines) if lines else _MARKED_LINES.search(text)
    if match and not lines:
        text = text[: match.start()]
    is_lasting = is_lasting or _LASTING.search(text) is not None
    text = clean_line(redact(_LASTING.sub("", text)), _LISTED_FACT_CHARS).lstrip("#>-*+ ")
    is_said = not text.endswith(("?", "？")) and not text.startswith(("→", "←")) and not _COURTESY.match(text)
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
