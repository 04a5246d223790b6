"""Replace a fact by a newer one: the old line stays, struck through and dated, and the new one says what it was.

    - Staging is on port 6000 (since 2026-11-03, was 5433)
    - ~~Staging is on port 5433~~ (until 2026-11-03)

The new line goes above the old one. If the old one is in a daily note, which is a log of what was known that day, the
new one goes to today's log instead; with ``to``, it goes where that says.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

from kept.base.limits import clip, one_line, require_text
from kept.base.records import Written, cite
from kept.base.values import frozen
from kept.errors import CitationMismatch, UsageError
from kept.notes.daily import get_daily_notes
from kept.notes.facts import read_fact
from kept.notes.history.line_changes import count_common_ends
from kept.notes.line_edit import digest_of_lines, plan_edit, remove_lines, require_editable
from kept.notes.note_writer import NotePlan, NoteWriter
from kept.notes.validity import Statement, format_marks, read_line, read_statements, split_marker, strike_line
from kept.notes.workspace import show_path

_CITATION = r"(?P<path>.+?)(?:#L|:)(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?(?:@(?P<digest>[0-9a-f]{8}))?"
_HINT = "Cite one line as path#L12 or path:12, as a search shows it."
_MAX_WAS_CHARS = 60
_MAX_WAS_WORDS = 5
_SHOWN_CHARS = 60


@frozen
class FactReference:
    """Citation of the line of a fact, perhaps with a digest of what it says."""

    path: str
    first_line: int
    last_line: int
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> FactReference:
        require_text(replaces=text)
        match = re.fullmatch(_CITATION, text.strip(), re.IGNORECASE | re.DOTALL)
        if match is None:
            raise UsageError(f"'{show_path(text)}' is not the citation of a line.", hint=_HINT)
        first = int(match["first"])
        return cls(match["path"], first, int(match["last"] or first), (match["digest"] or "").lower())

    @property
    def citation(self) -> str:
        return cite(show_path(self.path), self.first_line, self.last_line)


def plan_replacement(
    writer: NoteWriter, reference: FactReference, text: str, *, to: str | None, folder: str | None
) -> NotePlan:
    """Return how to write a text in place of the cited fact. Raise unless the citation is that of one current fact.

    A date in the text (``since 2026-11-03``) is the day from which it holds; without one, it is today.
    """
    workspace = writer.workspace
    if "\n" in text:
        raise UsageError("A fact that replaces another is one line.", hint="Write it in one line, without --replaces.")
    path = require_editable(workspace, reference.path, by_tool=writer.by_tool)
    note = workspace.read(path, max_bytes=writer.max_bytes)
    old = find_fact(note.text, reference)
    if plain_fact(read_line(text).text).rstrip(".") == plain_fact(old.text).rstrip("."):
        hint = "To change only its dates, edit the note."  # after a retry, it would replace itself
        raise CitationMismatch(f"{reference.citation} says the same already, so nothing was written.", hint=hint)
    line, since = _with_marks(text, old, writer.now.date())
    lines = note.text.split("\n")
    place = old.first_line, old.last_line
    struck = strike_lines(lines[old.first_line - 1 : old.last_line], since)
    if to is None and get_daily_notes(workspace).find_day(path) is None:
        ranges, written = _plan_above(path, lines, old, line, struck)
        data = remove_lines(note.raw, ranges, path)
        return NotePlan(written, (plan_edit(path, note.raw, data, writer.max_bytes),))
    plan = writer.plan_append(line, to or "daily", folder=folder)
    written = replace(plan.written, replaced=cite(path, *place))
    if plan.written.path == path:
        # Lines are only appended, so those of the old fact are where they were.
        (edit,) = plan.edits
        data = remove_lines(edit.after or b"", {place: struck}, path)
        return NotePlan(written, (replace(edit, after=data, kind="edit"),))
    edit = plan_edit(path, note.raw, remove_lines(note.raw, {place: struck}, path), writer.max_bytes)
    return NotePlan(written, (*plan.edits, replace(edit, is_part=True)))


def _plan_above(
    path: str, lines: list[str], old: Statement, line: str, struck: str
) -> tuple[dict[tuple[int, int], str], Written]:
    """Return the texts of lines that write a line above the one that is struck through, and where it is then.

    If the note has the new line already, perhaps since a moment ago, that line gets the marks instead.
    """
    place = old.first_line, old.last_line
    words = read_fact(read_line(line).text).sequence
    for statement in read_statements("\n".join(lines)):
        at = statement.first_line
        is_other = at != old.first_line and statement.kind == old.kind and statement.validity is None
        if is_other and at == statement.last_line and read_fact(statement.text).sequence == words:
            text = _above(line, lines[at - 1], statement).rstrip("\n")
            return {place: struck, (at, at): text}, Written(path, at, at, replaced=cite(path, *place))
    above = _above(line, lines[old.first_line - 1], old)
    shift = above.count("\n") + 1
    replaced = cite(path, old.first_line + shift, old.last_line + shift)
    return {place: f"{above}\n{struck}"}, Written(path, old.first_line, old.first_line, replaced=replaced)


def find_fact(note: str, reference: FactReference) -> Statement:
    """Return the fact that a citation means. Raise CitationMismatch unless it is the only one there and holds."""
    lines = note.split("\n")
    cited = "\n".join(lines[reference.first_line - 1 : reference.last_line])
    if not cited.strip():
        count = len(note.splitlines())
        reason = "is empty" if reference.first_line <= count else f"does not exist: the note has {count} lines"
        raise CitationMismatch(f"{reference.citation} {reason}.")
    if reference.digest and digest_of_lines(cited) != reference.digest:
        raise CitationMismatch(f"{reference.citation} has changed since it was read, so nothing was written.")
    first, last = reference.first_line, reference.last_line
    facts = [
        statement
        for statement in read_statements(note)
        if statement.kind != "heading" and statement.first_line <= last and statement.last_line >= first
    ]
    holding = [fact for fact in facts if not (fact.validity and fact.validity.is_over)]
    if len(holding) == 1 and holding[0].kind == "row":
        raise CitationMismatch(f"{reference.citation} is a row of a table.", hint="Change it with an editor.")
    if len(holding) == 1:
        return holding[0]
    if facts and not holding:
        raise CitationMismatch(f"{reference.citation} no longer holds: it was replaced already.")
    if not facts:
        raise CitationMismatch(
            f"{reference.citation} has no fact: it is a heading, code or a horizontal rule.", hint=_HINT
        )
    choices = "; ".join(f"line {fact.first_line}: {clip(one_line(fact.text), _SHOWN_CHARS)}" for fact in holding[:3])
    raise CitationMismatch(f"{reference.citation} has {len(holding)} facts ({choices}).", hint="Cite one line.")


def strike_lines(lines: list[str], until: dt.date) -> str:
    """Return the lines of a statement struck through. Only the last one gets the date."""
    struck = [strike_line(line, until) for line in lines]
    return "\n".join([*(re.sub(r" \(until [\d-]+\)$", "", line) for line in struck[:-1]), struck[-1]])


def _with_marks(text: str, old: Statement, today: dt.date) -> tuple[str, dt.date]:
    """Return the new line with its marks, and the day from which it holds."""
    marked = read_line(text)
    validity = marked.validity
    since = validity.since if validity and validity.since else None
    if since and old.validity and old.validity.since and since < old.validity.since:
        hint = f"Name a later day, or change {old.validity.since} in the old line."
        raise UsageError(f"The old line has held since {old.validity.since}, which is after {since}.", hint=hint)
    was = "" if validity and validity.was else old_value(plain_fact(old.text), plain_fact(marked.text))
    if since and (was == "" or not text.endswith(")")):
        return text, since
    if validity and since:
        return f"{marked.text} {format_marks(since=since, until=validity.until, was=was)}", since
    return f"{text} {format_marks(since=today, was=was)}", since or today


def plain_fact(text: str) -> str:
    """Return a fact on one line, without the marker of its list."""
    return " ".join(split_marker(text)[1].split())


def old_value(old: str, new: str) -> str:
    """Return the words of an old fact that a new one changes, or else its beginning: 5433 of "is on port 5433"."""
    before, after = (text.rstrip(".").split() for text in (old, new))
    head, tail = count_common_ends(*([word.strip(".,;:").lower() for word in words] for words in (before, after)))
    words = before[head : len(before) - tail]
    value = " ".join(words) if 0 < len(words) <= _MAX_WAS_WORDS else old.rstrip(".")
    value = re.sub(r"[()|]", "", value.replace("~~", "")).strip(" ,;")
    return value if len(value) <= _MAX_WAS_CHARS else f"{value[:_MAX_WAS_CHARS].rsplit(' ', 1)[0]}…"


def _above(line: str, old_line: str, old: Statement) -> str:
    """Return a new line in the form of the old one: an item in the same list, or a paragraph of its own."""
    if old.kind == "text":
        return f"{line}\n"
    return f"{split_marker(old_line)[0]}{split_marker(line)[1]}"
