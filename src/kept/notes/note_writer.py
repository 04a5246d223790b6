"""Appends to notes and reads them: the daily log, long-term memory, and any other note."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import partial

from kept.base.clock import Clock
from kept.base.durable import append_durably, write_atomic
from kept.base.records import ENTRY_RULE, NearFact, Passage, Written, is_fact_list
from kept.base.values import frozen
from kept.errors import EmptyNote, NoteNotFound, NoteTooLarge, PathRefused, WorkspaceError
from kept.notes.change_recorder import ChangeRecorder, recording
from kept.notes.daily import DailyNotes, find_daily, get_daily_notes
from kept.notes.fact_match import find_near_facts, may_be_fact, sort_near
from kept.notes.opened import OpenWorkspace, decode, encoding_of
from kept.notes.workspace import (
    Workspace,
    find_arrival_fault,
    find_name_fault,
    is_note_name,
    is_persons_own,
    refusal,
    require_tool_may_write,
    show_path,
    writing_to,
)

LOCK_WAIT_S = 10.0
DEFAULT_LINES = 200
MAX_PASSAGE_CHARS = 60_000
Comparison = Callable[[OpenWorkspace, str, str, int], list[NearFact]]
"""Function that compares a text with a note, by its path and text, and with MEMORY.md."""
_NAME_HINT = "Use letters, digits, spaces and punctuation, for example memory/ideas.md."


@frozen
class NoteWriter:
    """Appends texts to the notes of a workspace. ``by_tool`` refuses the files that belong to the person."""

    workspace: Workspace
    clock: Clock
    max_bytes: int
    by_tool: bool = False
    recorder: ChangeRecorder | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self.recorder.notices) if self.recorder else ()

    def add(
        self, text: str, to: str, *, folder: str | None = None, again: bool = False, near: Iterable[NearFact] = ()
    ) -> Written:
        """Append a text to the daily log ('daily'), to MEMORY.md ('memory') or to a note named by its path.

        With ``folder``, that of a project or a person, these are the log and MEMORY.md in it, and a name without a
        folder is a note there. A line that the note or MEMORY.md has already is written only with ``again``. ``near``
        has further lines that it repeats or seems to change.
        """
        if self.by_tool and is_persons_own(to):
            raise refusal(to)
        if len(text) > self.max_bytes:
            raise NoteTooLarge(f"The text has more than the limit of {self.max_bytes:,} bytes for a note.")
        text = decode(text.encode("utf-8", errors="replace"))[0].strip("\n")
        if not text.strip():
            raise EmptyNote("There is nothing to remember.")
        self.workspace.require()
        compare = None
        if not again and may_be_fact(text):
            compare = partial(find_near, self.workspace, text, folder=folder, known=near)
        with writing_to(self.workspace, wait_s=LOCK_WAIT_S):
            return self.append(text, to, folder=folder, compare=compare)

    def append(self, text: str, to: str, *, folder: str | None, compare: Comparison | None = None) -> Written:
        """Append a text, as `add` does. The caller holds the lock of the workspace."""
        if to == "daily":
            return self._append_daily(text, folder, compare)
        if to == "memory":
            text = text if "\n" in text or text.startswith(("-", "*", "#")) else f"- {text}"
            path = f"{folder}/MEMORY.md" if folder else _memory_name(self.workspace)
            opening = "# Memory\n"
        else:
            is_plain_name = folder and "/" not in to and os.sep not in to
            path = _writable(self.workspace, f"{folder}/{to}" if is_plain_name else to)
            opening = ""
        self._require_allowed(path, to)
        return self._append(path, text, opening=opening, compare=compare)

    def _require_allowed(self, path: str, shown: str) -> None:
        if self.by_tool:
            require_tool_may_write(self.workspace, self.workspace.locate(path), shown)

    def _append_daily(self, text: str, folder: str | None, compare: Comparison | None) -> Written:
        """Append to the log of the day."""
        daily = DailyNotes(folder) if folder else get_daily_notes(self.workspace)
        # The date is taken under the lock: two writers around midnight each get the day they wrote on.
        now = self.clock.now()
        # Obsidian and Logseq show the name of a file above its text.
        heading, opening = f"## {now:%H:%M}", "" if daily.program else f"# {now:%Y-%m-%d}\n"
        path = find_daily(self.workspace, now.date(), daily) or daily.name(now.date())
        if self.workspace.layout == "vault":
            _writable(self.workspace, path)
        self._require_allowed(path, "daily")
        return self._append(path, text, heading=heading, opening=opening, compare=compare)

    def _append(
        self, path: str, text: str, *, opening: str, heading: str = "", compare: Comparison | None = None
    ) -> Written:
        """Append a text in one write, set apart from the text before it. Return the lines that hold it.

        If ``compare`` finds the same line in a note, nothing is written, and that line is returned.
        """
        absolute = self.workspace.locate(path)
        with OpenWorkspace(self.workspace) as opened:
            exists = opened.find_state(absolute) is not None
            raw = opened.read_found(absolute, max_bytes=self.max_bytes).raw if exists else b""
            codec = encoding_of(raw)[1]
            # A lone '\r' at the end is half a line end as soon as a '\n' follows it.
            half = "\r".encode(codec)
            is_half_ended = raw.endswith(half)
            before, _ = decode(raw.removesuffix(half))
            near = tuple(compare(opened, path, before, self.max_bytes)) if compare else ()
            # A note that the caller named gets the line even if another note has it.
            if near and near[0].relation == "repeats" and (heading or near[0].path == path):
                return Written(near[0].path, near[0].start_line, near[0].end_line, is_new=False, near=near)
            entry = plan_entry(before, text, heading=heading, ruled=not is_fact_list(path))
            if raw:
                lead = blank_lines(before, entry, ends_line=before.endswith("\n") and not is_half_ended)
            else:
                lead = opening + "\n" if opening else ""
            data = f"{lead}{entry.text}\n".encode(codec)
            if len(raw) + len(data) > self.max_bytes:
                raise NoteTooLarge(f"{path}: with this it would have more than the limit of {self.max_bytes:,} bytes.")
            with recording(self.recorder, path, raw if exists else None, raw + data, kind="add"):
                append_durably(absolute, data, dir_fd=opened.folder_to_write(absolute), break_links=True)
        first = before.count("\n") + lead.count("\n") + 1
        return Written(path, first, first + entry.text.count("\n"), near=near, degraded=self.notices)


def find_near(
    workspace: Workspace,
    text: str,
    opened: OpenWorkspace,
    path: str,
    before: str,
    max_bytes: int,
    *,
    folder: str | None = None,
    known: Iterable[NearFact] = (),
) -> list[NearFact]:
    """Return the lines of a note, and of long-term memory, that a text repeats or seems to change.

    ``known`` are those that the caller found in other notes.
    """
    daily = get_daily_notes(workspace)
    near = find_near_facts(text, before, path, is_log=daily.find_day(path) is not None, is_own=True)
    names = [_memory_name(workspace), *([f"{folder}/MEMORY.md"] if folder else [])]
    for name in names:
        absolute = workspace.locate(name)
        try:
            if name != path and opened.find_state(absolute) is not None:
                note = opened.read_found(absolute, max_bytes=max_bytes).text
                near += find_near_facts(text, note, name, is_log=False, is_own=True)
        except (NoteNotFound, WorkspaceError):
            continue  # a note that cannot be read is no reason not to write another
    near += [fact for fact in known if fact.citation not in {other.citation for other in near}]
    return sort_near(near)


def _memory_name(workspace: Workspace) -> str:
    lower = os.path.join(workspace.root, "memory.md")
    upper = os.path.join(workspace.root, "MEMORY.md")
    return "memory.md" if os.path.isfile(lower) and not os.path.isfile(upper) else "MEMORY.md"


def _writable(workspace: Workspace, to: str) -> str:
    """Return the name to cite a note by. Raise PathRefused if discovery, and so every search, would not find it."""
    absolute = workspace.locate(to)
    name = workspace.cite(absolute)
    fault = find_name_fault(absolute, name)
    if fault:
        raise PathRefused(f"{show_path(to)}: {fault}, so it would not be searched.", hint=_NAME_HINT)
    if not workspace.is_indexed(absolute):
        raise PathRefused(
            f"{show_path(to)}: a note there would not be searched.",
            hint=f"Put it under memory/, for example memory/{_visible_name(name)}.",
        )
    workspace.require_own(absolute, show_path(to))
    if fault := find_arrival_fault(absolute, name):
        raise PathRefused(f"{show_path(to)}: {fault}.", hint=_NAME_HINT)
    return name


def _visible_name(path: str) -> str:
    name = show_path(os.path.basename(path).lstrip("."))
    return name if is_note_name(name) else "ideas.md"


def create_note(workspace: Workspace, path: str, text: str) -> bool:
    """Create a note. Return False, and change nothing, if it exists."""
    absolute = workspace.locate(path)
    with OpenWorkspace(workspace) as opened:
        if opened.find_state(absolute) is not None:
            return False
        write_atomic(absolute, text.encode("utf-8"), dir_fd=opened.folder_to_write(absolute))
    return True


def read_passage(
    workspace: Workspace, path: str, *, start: int = 1, lines: int | None = None, max_bytes: int
) -> Passage:
    """Return lines of a note, at most DEFAULT_LINES unless ``lines`` asks for more."""
    absolute = workspace.locate(path)
    with OpenWorkspace(workspace) as opened:
        note = opened.read(absolute, max_bytes=max_bytes)
    all_lines = note.text.split("\n")
    if all_lines and all_lines[-1] == "":
        all_lines.pop()
    first = max(1, start)
    limit = DEFAULT_LINES if lines is None else max(1, lines)
    passage: list[str] = []
    chars = 0
    for line in all_lines[first - 1 : first - 1 + limit]:
        if passage and chars + len(line) > MAX_PASSAGE_CHARS:
            break
        passage.append(line)
        chars += len(line) + 1
    after = first + len(passage)
    more = after <= len(all_lines) and bool(passage)
    return Passage(
        path=workspace.cite(absolute),
        start=first,
        lines=len(passage),
        text="\n".join(passage),
        truncated=more,
        next_from=after if more else None,
    )


# setting a text apart from what the note already says

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
