"""Pairs of facts in notes that say the same or seem to contradict each other, and what could be done about each."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from kept.errors import WorkspaceError
from kept.records import FactRelation, cite
from kept.values import frozen
from kept.workspace.daily import get_daily_notes
from kept.workspace.fact_match import MAX_FACT_CHARS, FactWords, compare_facts
from kept.workspace.line_edit import LineEdit, Proposal, digest_of_lines
from kept.workspace.opened import OpenWorkspace
from kept.workspace.replacement import old_value, plain_fact, strike_lines
from kept.workspace.scan import scan_workspace
from kept.workspace.statements import Statement, read_statements
from kept.workspace.validity import format_marks
from kept.workspace.workspace import Workspace, is_persons_own

MAX_FACTS = 20_000
MAX_PAIRS = 200
_MAX_SAME_SUBJECT = 1_000
"""A word with which more facts begin is not a subject."""


@frozen
class NoteFact:
    """A fact that holds, with its place and time."""

    path: str
    statement: Statement
    raw: str
    """Its lines as they are in the note."""
    words: FactWords
    day: dt.date | None
    """Date of the daily note that it is in."""

    @property
    def citation(self) -> str:
        return cite(self.path, self.statement.first_line, self.statement.last_line)

    @property
    def since(self) -> dt.date | None:
        return self.statement.validity.since if self.statement.validity else None

    def edit(self, text: str) -> LineEdit:
        first, last = self.statement.first_line, self.statement.last_line
        return LineEdit(self.path, first, last, digest_of_lines(self.raw), text)


@frozen
class FactPair:
    """Two facts about the same. ``old`` is the one that was written first, as far as that is known."""

    old: NoteFact
    new: NoteFact
    relation: FactRelation


def collect_facts(workspace: Workspace, *, max_bytes: int) -> list[NoteFact]:
    """Return the facts of all notes that Kept may change. Files of a system prompt are the person's own."""
    daily = get_daily_notes(workspace)
    facts: list[NoteFact] = []
    files = scan_workspace(workspace, max_bytes=max_bytes).files
    with OpenWorkspace(workspace) as opened:
        for file in sorted(files):
            if is_persons_own(file.path) or not workspace.is_own_note(file.absolute):
                continue
            try:
                text = opened.read_found(file.absolute, max_bytes=max_bytes).text
            except WorkspaceError:
                continue  # 'kept index' names it
            day = daily.find_day(file.path)
            facts += read_facts(file.path, text, day[0] if day else None)
            if len(facts) > MAX_FACTS:
                break
    return facts[:MAX_FACTS]


def read_facts(path: str, text: str, day: dt.date | None) -> Iterator[NoteFact]:
    """Yield the facts of a note that hold: its items, rows and short paragraphs."""
    lines = text.split("\n")
    for statement in read_statements(text):
        is_over = statement.validity is not None and statement.validity.is_over
        if statement.kind == "heading" or is_over or len(statement.text) > MAX_FACT_CHARS:
            continue
        words = FactWords.of(statement.text)
        if words.subject:
            raw = "\n".join(lines[statement.first_line - 1 : statement.last_line])
            yield NoteFact(path, statement, raw, words, day)


def find_pairs(facts: Sequence[NoteFact]) -> list[FactPair]:
    """Return the pairs of facts that say the same or seem to contradict each other.

    Two logs of different days may well say the same, so only contradictions between them count. An item of a log that
    a note repeats is left alone, too: a log tells what was known that day.
    """
    by_word: dict[str, list[int]] = defaultdict(list)
    for number, fact in enumerate(facts):
        for word in fact.words.content:
            by_word[word].append(number)
    pairs: list[FactPair] = []
    for number, fact in enumerate(facts):
        others = by_word[fact.words.subject]
        for other_number in others if len(others) <= _MAX_SAME_SUBJECT else ():
            other = facts[other_number]
            # Both contain the subject of the other, so each pair turns up twice, unless it is the same word.
            if other_number <= number:
                continue
            relation = compare_facts(other.words, fact.words)
            if relation is None or (relation != "changes" and (fact.day or other.day)):
                continue
            old, new = sorted((fact, other), key=_age)
            pairs.append(FactPair(old, new, relation))
            if len(pairs) >= MAX_PAIRS:
                return pairs
    return pairs


def _age(fact: NoteFact) -> tuple[dt.date, str, int]:
    return fact.since or fact.day or dt.date.min, fact.path, fact.statement.first_line


def propose(pair: FactPair, today: dt.date) -> Proposal:
    """Return what to do about a pair by its words alone."""
    old, new = pair.old, pair.new
    if pair.relation == "repeats":
        return Proposal("duplicate", (new.edit(""),), f"{new.citation} repeats {old.citation}.")
    if pair.relation == "restates":
        return Proposal("duplicate", (new.edit(""),), f"{new.citation} has the same words as {old.citation}.")
    return propose_replacement(old, new, today)


def propose_replacement(old: NoteFact, new: NoteFact, today: dt.date, source: str = "words") -> Proposal:
    """Return the proposal to strike through an older fact. The newer one gets a date, unless it is in a log."""
    since = new.since or new.day or today
    edits = [old.edit(strike_lines(old.raw.split("\n"), since))]
    if new.day is None and new.since is None and new.statement.first_line == new.statement.last_line:
        was = old_value(plain_fact(old.statement.text), plain_fact(new.statement.text))
        if not new.raw.rstrip().endswith("|"):
            edits.append(new.edit(f"{new.raw.rstrip()} {format_marks(since=since, was=was)}"))
    return Proposal("replacement", tuple(edits), f"{new.citation} seems to replace {old.citation}.", source)


def propose_merge(old: NoteFact, new: NoteFact, text: str, source: str) -> Proposal:
    """Return the proposal to write one fact in place of two."""
    marker = old.raw[: len(old.raw) - len(old.raw.lstrip())]
    bullet = old.raw.lstrip()[:2] if old.raw.lstrip()[:2] in ("- ", "* ", "+ ") else ""
    edits = (old.edit(f"{marker}{bullet}{text}"), new.edit(""))
    return Proposal("merge", edits, f"{old.citation} and {new.citation} belong together.", source)


def without_overlaps(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Return proposals of which no two change the same line, the first of each."""
    changed: set[tuple[str, int]] = set()
    result = []
    for proposal in proposals:
        lines = {(edit.path, line) for edit in proposal.edits for line in range(edit.start_line, edit.end_line + 1)}
        if changed.isdisjoint(lines):
            changed |= lines
            result.append(proposal)
    return result
