"""Adds texts to notes and reads them: the daily log, long-term memory, and any other note."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from kept.base.records import ENTRY_RULE, NearFact, Passage, Written, is_fact_list
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER
from kept.errors import EmptyNote, NoteNotFound, NoteTooLarge, PathRefused, StorageConflict
from kept.notes.daily import DailyNotes, daily_name, get_daily_notes
from kept.notes.fact_match import find_near_facts, may_be_fact
from kept.notes.history.note_history import HistoryRecorder, NoteEdit, commit_notes
from kept.notes.workspace import (
    LONG_TERM,
    Workspace,
    decode,
    encoding_of,
    find_arrival_fault,
    find_name_fault,
    is_persons_own,
    refusal,
    require_tool_may_write,
    show_path,
)
from kept.storage.contract import ABSENT, Change, Write, retried

if TYPE_CHECKING:
    from kept.notes.history.note_history import NoteChange

DEFAULT_LINES = 200
MAX_PASSAGE_CHARS = 60_000
Also = Callable[[Sequence["NoteChange"]], Sequence[Change]]
"""Function that returns what else to commit, for the changes that the history gets."""
_NAME_HINT = "Use letters, digits, spaces and punctuation, for example memory/ideas.md."


@frozen
class Addition:
    """A text to add to a note, as a value that can be stored, and written now or later."""

    text: str
    to: str | None = None
    """'daily', 'memory' or the path of a note; None is today's log, or beside the line that is replaced."""
    replaces: str | None = None
    """Citation of a line that is struck through."""
    again: bool = False
    """True to write a line that the notes have already."""
    project: str | None = None
    private: str | None = None
    """Folder in memory/private of the person or group that it is for."""


@frozen
class NotePlan:
    """Plan of an addition. There are no edits if the notes say the same already."""

    written: Written
    edits: tuple[NoteEdit, ...] = ()


@frozen
class NoteWriter:
    """Adds texts to the notes of a workspace. ``by_tool`` refuses the files that belong to the person."""

    workspace: Workspace
    now: dt.datetime
    """When it is said: the day of a log, and the time above an entry."""
    max_bytes: int
    by_tool: bool = False
    recorder: HistoryRecorder | None = None

    @retried
    def commit(
        self, addition: Addition, similar: Iterable[str] = (), *, also: Also | None = None
    ) -> tuple[Written, tuple[NoteChange, ...]]:
        """Write a text to its note, and in the same commit what ``also`` returns. Return the history's changes too."""
        attempt = self.recorder if self.recorder and self.recorder.change_id else None
        if attempt and (earlier := attempt.find_written()):
            return earlier, ()
        plan = self.plan(addition, similar)
        # Again: another attempt may have been written before the note was read. Later ones are refused by its version.
        if attempt and (earlier := attempt.find_written()):
            return earlier, ()
        if not plan.edits and also is None:
            return plan.written, ()
        recorder = self.recorder if plan.edits else None
        changes, notices = commit_notes(self.workspace, plan.edits, recorder, also=also or (lambda _: ()))
        return replace(plan.written, degraded=notices), changes

    def plan(self, addition: Addition, similar: Iterable[str] = ()) -> NotePlan:
        """Return what writing a text would change. ``similar`` are notes that may have lines which it repeats or seems
        to change, besides the note that it goes to and long-term memory."""
        to, text, reference = "daily" if addition.to is None else addition.to, addition.text, None
        if addition.replaces is not None:
            from kept.notes.replacement import FactReference, plan_replacement

            reference = FactReference.parse(addition.replaces)
        named = reference.path if reference else to
        if self.by_tool and is_persons_own(named):
            raise refusal(named)
        if len(text) > self.max_bytes:
            raise NoteTooLarge(f"The text has more than the limit of {self.max_bytes:,} bytes for a note.")
        text = decode(text.encode("utf-8", errors="replace"))[0].strip("\n")
        if not text.strip():
            raise EmptyNote("There is nothing to remember.")
        self.workspace.require()
        # The folder whose log and MEMORY.md are meant, if not the shared ones.
        folder = f"{PROJECTS_FOLDER}/{addition.project}" if addition.project else None
        if addition.private is not None:
            folder = f"{PRIVATE_FOLDER}/{addition.private}"
        if reference:
            return plan_replacement(self, reference, text.strip(), to=addition.to, folder=folder)
        is_compared = not addition.again and may_be_fact(text)
        return self.plan_append(text, to, folder=folder, similar=similar if is_compared else None)

    def plan_append(self, text: str, to: str, *, folder: str | None, similar: Iterable[str] | None = None) -> NotePlan:
        """Append a text to the daily log ('daily'), to MEMORY.md ('memory') or to a note named by its path, set apart
        from what it has. If a note has the same line, nothing is written, and that line is returned.

        With ``folder``, that of a project or a person, these are the log and MEMORY.md in it, and a name without a
        folder is a note there. The text is compared with no note if ``similar`` is None.
        """
        path, opening, heading = self._find_place(to, folder)
        if to == "memory" and "\n" not in text and not text.startswith(("-", "*", "#")):
            text = f"- {text}"
        raw = None
        if self.workspace.find(path):
            with suppress(NoteNotFound):  # it may be removed in between
                raw = self.workspace.read(path, max_bytes=self.max_bytes).raw
        old = raw or b""
        codec = encoding_of(raw)[1] if raw else "utf-8"
        # A lone '\r' at the end is half a line end as soon as a '\n' follows it.
        half = "\r".encode(codec)
        before, _ = decode(old.removesuffix(half))
        near: tuple[NearFact, ...] = ()
        if similar is not None:
            names = [_memory_name(self.workspace), *([f"{folder}/MEMORY.md"] if folder else []), *similar]
            near = find_near_facts(self.workspace, text, path, before, names, max_bytes=self.max_bytes)
        # A note that the caller named gets the line even if another note has it.
        if near and near[0].relation == "repeats" and (heading or near[0].path == path):
            return NotePlan(Written(near[0].path, near[0].start_line, near[0].end_line, is_new=False, near=near))
        ends_line = before.endswith("\n") and not old.endswith(half)
        lead, entry = plan_entry(before, text, heading=heading, ruled=not is_fact_list(path), ends_line=ends_line)
        if not raw:
            lead = opening + "\n" if opening else ""
        data = f"{lead}{entry}\n".encode(codec)
        if len(old) + len(data) > self.max_bytes:
            raise NoteTooLarge(f"{path}: with this it would have more than the limit of {self.max_bytes:,} bytes.")
        first = before.count("\n") + lead.count("\n") + 1
        written = Written(path, first, first + entry.count("\n"), near=near)
        return NotePlan(written, (NoteEdit(path, raw, old + data, "add"),))

    def _find_place(self, to: str, folder: str | None) -> tuple[str, str, str]:
        """Return the note that a text goes to, the text that opens it if it is new, and the heading of an entry."""
        heading = opening = ""
        if to == "daily":
            day = self.now.date()
            daily = DailyNotes(folder) if folder else get_daily_notes(self.workspace)
            # Obsidian shows the name of a file above its text.
            heading, opening = f"## {self.now:%H:%M}", "" if daily.program else f"# {day:%Y-%m-%d}\n"
            path = daily.name(day)
            if self.workspace.layout == "vault":
                path = _writable(self.workspace, daily_name(self.workspace, day, daily))
        elif to == "memory":
            path = f"{folder}/MEMORY.md" if folder else _memory_name(self.workspace)
            opening = "# Memory\n"
        else:
            is_plain_name = folder and "/" not in to and os.sep not in to
            path = _writable(self.workspace, f"{folder}/{to}" if is_plain_name else to)
        if self.by_tool:
            require_tool_may_write(self.workspace, path, to)
        return path, opening, heading


def _memory_name(workspace: Workspace) -> str:
    """Return the name of long-term memory. A link of that name counts: it is refused when it is read."""
    for name in LONG_TERM:
        try:
            if workspace.find(name):
                return name
        except PathRefused:
            return name
    return LONG_TERM[0]


def _writable(workspace: Workspace, to: str) -> str:
    """Return the name of a note. Raise PathRefused if discovery, and so every search, would not find it."""
    name = workspace.locate(to)
    if fault := find_name_fault(name):
        raise PathRefused(f"{show_path(to)}: {fault}, so it would not be searched.", hint=_NAME_HINT)
    if not workspace.is_indexed(name):
        suggestion = show_path(os.path.basename(name).lstrip("."))
        suggestion = suggestion if suggestion.lower().endswith(".md") else "ideas.md"
        raise PathRefused(
            f"{show_path(to)}: a note there would not be searched.",
            hint=f"Put it under memory/, for example memory/{suggestion}.",
        )
    workspace.require_own(name, show_path(to))
    if fault := find_arrival_fault(name):
        raise PathRefused(f"{show_path(to)}: {fault}.", hint=_NAME_HINT)
    return name


def create_note(workspace: Workspace, path: str, text: str) -> bool:
    """Create a note. Return False, and change nothing, if it exists."""
    try:
        workspace.storage.commit([Write(workspace.locate(path), text.encode("utf-8"), ABSENT)])
    except StorageConflict:
        return False
    return True


def read_passage(
    workspace: Workspace, path: str, *, start: int = 1, lines: int | None = None, max_bytes: int
) -> Passage:
    """Return lines of a note, at most DEFAULT_LINES unless ``lines`` asks for more."""
    name = workspace.locate(path)
    note = workspace.read(name, max_bytes=max_bytes)
    all_lines = note.text.split("\n")
    if all_lines[-1] == "":
        all_lines.pop()
    first = max(1, start)
    chosen = all_lines[first - 1 : first - 1 + (DEFAULT_LINES if lines is None else max(1, lines))]
    ends = accumulate(len(line) + 1 for line in chosen)
    count = max(sum(end <= MAX_PASSAGE_CHARS + 1 for end in ends), 1)
    passage = chosen[:count]
    after = first + len(passage)
    more = after <= len(all_lines) and bool(passage)
    return Passage(name, first, len(passage), "\n".join(passage), more, after if more else None)


# setting a text apart from what the note already says

_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_ITEM = re.compile(r"([-*+]) ")
# '---' below a paragraph makes it a heading, and closes the front matter: what follows is apart either way.
_RULE = re.compile(r"(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}|=+\s*)$")


def plan_entry(before: str, text: str, *, heading: str, ruled: bool, ends_line: bool) -> tuple[str, str]:
    """Return how to append a text to a note that reads ``before``: what sets it apart, and the entry.

    An entry with a ``heading`` goes under the last heading of the note if that is the same. A single line continues a
    list that ends the note. Any other text is separated by a rule, because a blank line alone would make it part of
    the passage above. ``ruled=False`` is for a note that is cut at each paragraph anyway. ``ends_line`` tells whether
    the last line of the note is whole.
    """
    is_tight, marker = False, "" if heading else _list_marker(before)
    if heading:
        headings = (line.rstrip() for line in reversed(before.split("\n")) if _HEADING.match(line))
        if next(headings, "") != heading:
            text, ruled = f"{heading}\n\n{text}", False
    elif marker and _ITEM.match(text) and not _RULE.match(text):
        is_tight = True
    elif marker and "\n" not in text and not _HEADING.match(text):
        is_tight, text = True, f"{marker} {text}"
    last = before.rstrip().rpartition("\n")[2]
    has_end = not last or _HEADING.match(last) or _RULE.match(last) or _HEADING.match(text) or _RULE.match(text)
    lead = "" if ends_line else "\n"
    if is_tight:
        return lead, text
    lead += "" if ends_line and before.endswith("\n\n") else "\n"
    return (lead if has_end or not ruled else f"{lead}{ENTRY_RULE}\n\n"), text


def _list_marker(text: str) -> str:
    """Return the marker of the list that ends a note, or nothing if it does not end in one."""
    for line in reversed(text.rstrip().split("\n")):
        if not line.startswith((" ", "\t")):
            item = _ITEM.match(line)
            return item[1] if item and not _RULE.match(line) else ""
    return ""
