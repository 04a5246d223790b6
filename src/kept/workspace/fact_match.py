"""Compares a new fact with the lines of a note: does it repeat one, or does it seem to change one?

Two facts are about the same if they begin with the same subject and share most of their words. If each then has words
that the other lacks, the value differs: "Staging is on port 6000" changes "Staging is on port 5433". This is a guess by
words. Nothing is decided by it, except that a fact with the same words in the same order is not written twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kept.records import FactRelation, NearFact
from kept.values import frozen
from kept.workspace.common_ends import count_common_ends

if TYPE_CHECKING:
    from kept.workspace.statements import Statement

MAX_FACT_CHARS = 400
"""A longer text is not one fact."""
_MAX_NEAR = 3
_LONGEST_WORDS = 4
_MAX_LINES = 20
"""Lines of a note that are compared: the last ones are the newest."""
_MIN_SHARED_WORDS, _MIN_SHARE = 2, 0.5
_NEAR_MEANING_SHARE = 0.34
"""Share of words in common that is enough for two facts that are near in meaning."""
_MIN_FRAME_WORDS = 3
_MAX_OTHER_WORDS = 3


@frozen
class FactWords:
    """A fact by its words."""

    sequence: tuple[str, ...]
    """All words in order, folded."""
    content: frozenset[str]
    subject: str
    """The first content word."""

    @classmethod
    def of(cls, text: str) -> FactWords:
        from kept.words.segment import fold
        from kept.words.stopwords import content_words

        sequence = tuple(re.findall(r"\w+", fold(text).lower()))
        content = content_words(text)
        subject = next((word for word in map(_stem, sequence) if word in content), "")
        return cls(sequence, content, subject)


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def compare_facts(new: FactWords, old: FactWords, *, is_near: bool = False) -> FactRelation | None:
    """Return how a new fact relates to an old one, or None. ``is_near``: their vectors are near to each other."""
    if not new.content or not old.content:
        return "repeats" if new.sequence and new.sequence == old.sequence else None
    if new.sequence == old.sequence:
        return "repeats"
    shared = new.content & old.content
    others = new.content - old.content, old.content - new.content
    if new.content == old.content:
        return "restates"
    is_near = is_near or _has_same_frame(new.sequence, old.sequence)
    least = _NEAR_MEANING_SHARE if is_near else _MIN_SHARE
    shorter = min(len(new.content), len(old.content))
    is_same_subject = new.subject in old.content and old.subject in new.content
    if not is_same_subject or len(shared) < (1 if is_near else _MIN_SHARED_WORDS) or len(shared) < least * shorter:
        return None
    if not others[0] or not others[1]:
        return None  # one of them in more detail
    return "changes" if max(map(len, others)) <= _MAX_OTHER_WORDS else None


def _has_same_frame(left: Sequence[str], right: Sequence[str]) -> bool:
    """Return whether two facts differ in one place only: "The cache is in Paris", "The cache is in Bonn"."""
    return sum(count_common_ends(left, right)) >= max(_MIN_FRAME_WORDS, _MIN_SHARE * min(len(left), len(right)))


def may_be_fact(text: str) -> bool:
    """Return whether a text can be compared: one line, not too long, and not a heading."""
    text = text.strip("\n")
    return len(text) <= MAX_FACT_CHARS and "\n" not in text and not text.startswith("#")


def find_near_facts(text: str, note: str, path: str) -> list[NearFact]:
    """Return the lines of a note that a new fact repeats or seems to change, repetitions first.

    Most notes have no such line, and are not taken apart: `kept add` should not become slower.
    """
    numbers = _may_be_near(text.lower(), note)
    if not numbers:
        return []
    from kept.workspace.mark_words import may_be_marked
    from kept.workspace.statements import read_statements, read_statements_at

    lines = note.split("\n")
    if any(line.startswith("#") and may_be_marked(line) for line in lines):  # what is below it may have ended
        near_lines = set(numbers)
        statements = [
            statement
            for statement in read_statements(note)
            if not near_lines.isdisjoint(range(statement.first_line, statement.last_line + 1))
        ]
    else:
        statements = read_statements_at(lines, numbers)
    return match_statements(text, note, path, statements)


def _may_be_near(text: str, note: str) -> list[int]:
    """Return the numbers of the last lines of a note that have two of the longest words of a text."""
    longest = sorted(set(re.findall(r"\w+", text)), key=len)[-_LONGEST_WORDS:]
    note = note.lower()
    known = [word for word in longest if word in note]
    least = min(_MIN_SHARED_WORDS, len(longest))
    if len(known) < least:
        return []
    lines = enumerate(note.split("\n"), 1)
    return [number for number, line in lines if sum(word in line for word in known) >= least][-_MAX_LINES:]


def match_statements(
    text: str, note: str, path: str, statements: Iterable[Statement], *, is_near: bool = False
) -> list[NearFact]:
    """Return those of the statements of a note that a fact repeats or seems to change, except if they ended."""
    from kept.workspace.validity import read_line

    new, lines = FactWords.of(read_line(text).text), note.split("\n")
    near: list[NearFact] = []
    for statement in statements:
        if statement.kind == "heading" or (statement.validity and statement.validity.is_over):
            continue
        relation = compare_facts(new, FactWords.of(statement.text), is_near=is_near)
        if relation is not None:
            from kept.workspace.line_edit import digest_of_lines

            first, last = statement.first_line, statement.last_line
            raw = "\n".join(lines[first - 1 : last])
            near.append(NearFact(path, first, last, raw.strip(), relation, digest_of_lines(raw)))
    return sort_near(near)


def sort_near(near: Sequence[NearFact]) -> list[NearFact]:
    """Return the nearest facts, repetitions first."""
    order = ("repeats", "changes", "restates")
    return sorted(near, key=lambda fact: order.index(fact.relation))[:_MAX_NEAR]
