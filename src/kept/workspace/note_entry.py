"""Appends a text to a note, so that it stays apart from what the note already says."""

from __future__ import annotations

import re

from kept.records import ENTRY_RULE
from kept.values import frozen

_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_ITEM = re.compile(r"([-*+]) ")
# '---' below a paragraph makes it a heading, and closes the front matter: what follows is apart either way.
_RULE = re.compile(r"(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}|=+\s*)$")


@frozen
class NoteEntry:
    text: str
    """What to append, without the end of its last line."""
    rule: bool = False
    """True if a rule has to separate it from the text above it."""
    tight: bool = False
    """True if it continues a list, without a blank line."""


def plan_entry(before: str, text: str, *, heading: str = "", ruled: bool = True) -> NoteEntry:
    """Return how to append a text to a note that reads ``before``.

    An entry with a ``heading`` goes under the last heading of the note if that is the same. A single line continues a
    list that ends the note. Any other text is separated by a rule, because a blank line alone would make it part of
    the passage above. ``ruled=False`` is for a note that is cut at each paragraph anyway.
    """
    if heading:
        if _last_heading(before) != heading:
            return NoteEntry(f"{heading}\n\n{text}")
    elif marker := _list_marker(before):
        if _ITEM.match(text) and not _RULE.match(text):
            return NoteEntry(text, tight=True)
        if "\n" not in text and not _HEADING.match(text):
            return NoteEntry(f"{marker} {text}", tight=True)
    return NoteEntry(text, rule=ruled and _needs_rule(before, text))


def _needs_rule(before: str, text: str) -> bool:
    last = before.rstrip().rpartition("\n")[2]
    return bool(last.strip()) and not any(
        (_HEADING.match(last), _RULE.match(last), _HEADING.match(text), _RULE.match(text))
    )


def _last_heading(text: str) -> str:
    return next((line.rstrip() for line in reversed(text.split("\n")) if _HEADING.match(line)), "")


def _list_marker(text: str) -> str:
    """Return the marker of the list that ends a note, or nothing if it does not end in one."""
    for line in reversed(text.rstrip().split("\n")):
        if not line.startswith((" ", "\t")):
            item = _ITEM.match(line)
            return item[1] if item and not _RULE.match(line) else ""
    return ""


def blank_lines(before: str, entry: NoteEntry, *, ends_line: bool) -> str:
    """Return the text between a note and the entry. ``ends_line``: the last line of the note is whole."""
    lead = "" if ends_line else "\n"
    if not entry.tight and not (ends_line and before.endswith("\n\n")):
        lead += "\n"
    return f"{lead}{ENTRY_RULE}\n\n" if entry.rule else lead
