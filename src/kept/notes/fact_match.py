"""Compares a new fact with the lines of a note: does it repeat one, or does it seem to change one?

Nothing is decided by it, except that a fact with the same words in the same order is not written twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kept.base.records import NearFact, is_fact_list
from kept.errors import WorkspaceError
from kept.notes.daily import get_daily_notes

if TYPE_CHECKING:
    from kept.notes.workspace import Workspace

MAX_FACT_CHARS = 400
"""A longer text is not one fact."""
_MAX_NEAR = 3
_RELATIONS = ("repeats", "changes", "restates")
"""In the order in which lines are told of."""
_MAX_LINES, _MAX_OTHER_LINES = 10, 2
"""Lines that are compared, of the note itself or long-term memory, and of any other note."""
_MANY_WORDS = 4
"""Words of a text from which on a line of another note, with its name, needs two of them."""


def may_be_fact(text: str) -> bool:
    """Return whether a text can be compared: one line, not too long, and not a heading."""
    text = text.strip("\n")
    return len(text) <= MAX_FACT_CHARS and "\n" not in text and not text.startswith("#")


def find_near_facts(
    workspace: Workspace, text: str, path: str, note: str, others: Iterable[str], *, max_bytes: int
) -> tuple[NearFact, ...]:
    """Return the nearest lines that a new fact repeats or seems to change, repetitions first: those of the note that
    it goes to, which has this text, and of other notes as they read now. A note that cannot be read has none."""
    daily = get_daily_notes(workspace)
    near = _compare_lines(text, note, path, is_log=daily.find_day(path) is not None, is_own=True)
    for other in dict.fromkeys(others):
        try:
            note = workspace.read(other, max_bytes=max_bytes).text
        except WorkspaceError:
            continue
        is_log = daily.find_day(other) is not None
        lines = _compare_lines(text, note, other, is_log=is_log, is_own=is_fact_list(other))
        known = {fact.citation for fact in near}
        near += [fact for fact in lines if fact.citation not in known]
    return tuple(sorted(near, key=lambda fact: _RELATIONS.index(fact.relation))[:_MAX_NEAR])


def _compare_lines(text: str, note: str, path: str, *, is_log: bool, is_own: bool) -> list[NearFact]:
    """Return the lines of a note that a new fact repeats or seems to change, except those that ended.

    A log (``is_log``) tells what was so on its day: nothing changes it, and another day repeats nothing. ``is_own`` is
    for the note that the fact goes to, and for long-term memory. Of any other note the name counts: "Phone" in a note
    about Ben is Ben's. Most notes have no such line, and are not taken apart: `kept add` should not become slower.
    """
    numbers = _may_be_near(text, note, path="" if is_own else path)
    if not numbers:
        return []
    from kept.notes.fact_changes import compare_facts
    from kept.notes.facts import read_fact, stem
    from kept.notes.line_edit import digest_of_lines
    from kept.notes.validity import read_line, read_statements

    lines = note.split("\n")
    new = read_fact(read_line(text).text)
    name = frozenset[str]() if is_own else frozenset(map(stem, re.findall(r"\w+", os.path.splitext(path)[0].lower())))
    near: list[NearFact] = []
    by_line = {at: item for item in read_statements(note) for at in range(item.first_line, item.last_line + 1)}
    for statement in dict.fromkeys(by_line[number] for number in numbers if number in by_line):
        if statement.kind == "heading" or (statement.validity and statement.validity.is_over):
            continue
        relation = compare_facts(new, read_fact(statement.text), note=name)
        if relation is not None and not (is_log and (relation == "changes" or not is_own)):
            raw = "\n".join(lines[statement.first_line - 1 : statement.last_line])
            digest = digest_of_lines(raw)
            near.append(NearFact(path, statement.first_line, statement.last_line, raw.strip(), relation, digest))
    return near


def _may_be_near(text: str, note: str, *, path: str) -> list[int]:
    """Return the numbers of those lines of a note that share the most words with a text, the last ones first."""
    from kept.base.words.stopwords import content_words

    words, note, path = content_words(text), note.lower(), path.lower()
    least = 2 if path and len(words) >= _MANY_WORDS else 1
    named = sum(word in path for word in words)
    known = [word for word in words if len(word) > 1 and word in note]
    if not known or len(known) + named < least:
        return []
    shares = [(sum(word in line for word in known), number) for number, line in enumerate(note.split("\n"), 1)]
    shares = [item for item in shares if item[0] and item[0] + named >= least]
    return [number for _, number in sorted(shares, reverse=True)[: _MAX_OTHER_LINES if path else _MAX_LINES]]
