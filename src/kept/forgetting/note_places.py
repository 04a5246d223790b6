"""Notes: the passages that name something, and their removal. Each note is replaced atomically."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from kept.base.durable import erase_file, replace_erasing
from kept.base.records import cite
from kept.base.values import frozen
from kept.errors import KeptError, NoteNotFound, PathRefused
from kept.forgetting.name_lists import take_out
from kept.forgetting.needles import Matcher, words_of
from kept.forgetting.plan import ForgetOrder, LineCut, Place, ScrubResult, digest_of
from kept.index.chunking.properties import read_properties
from kept.notes.line_edit import remove_lines
from kept.notes.note_writer import LOCK_WAIT_S
from kept.notes.opened import NoteText, OpenWorkspace
from kept.notes.scan import scan_workspace
from kept.notes.workspace import Workspace, is_persons_own, writing_to

_LARGEST_NOTE = 1 << 28
_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_CITED_LINES = re.compile(r"(sessions/[^\s()\[\]#]+\.jsonl)(?:#L(\d{1,9})(?:-L?(\d{1,9}))?)?")


@frozen
class NotePassage:
    """Paragraph, list item, row of a table, heading or property of a note."""

    start_line: int
    text: str
    is_property: bool = False

    @property
    def end_line(self) -> int:
        return self.start_line + self.text.count("\n")


def split_passages(text: str) -> list[NotePassage]:
    """Return the properties, paragraphs, list items, rows of tables and headings of a text."""
    lines = text.split("\n")
    properties = read_properties(lines).lines if lines[0].rstrip() == "---" else 0
    passages = _split_properties(lines[: properties - 1]) if properties else []
    current: list[str] = []
    start, fenced = 1, False

    def close() -> None:
        if current:
            passages.append(NotePassage(start, "\n".join(current)))
            current.clear()

    for number, line in enumerate(lines[properties:], properties + 1):
        is_heading = not fenced and line.startswith("#")
        if not fenced and (not line.strip() or is_heading or line.startswith("|") or _ITEM.match(line)):
            close()
        if _FENCE.match(line):
            fenced = not fenced
        if is_heading:
            passages.append(NotePassage(number, line))
        if is_heading or (not line.strip() and not fenced):
            continue
        if not current:
            start = number
        current.append(line)
    close()
    return passages


def _split_properties(lines: list[str]) -> list[NotePassage]:
    """Return each property and each item of a list of front matter, which is without its last line here."""
    starts = [at for at, line in enumerate(lines) if at and (not line[:1].isspace() or line.lstrip().startswith("- "))]
    pairs = itertools.pairwise([*starts, len(lines)])
    return [NotePassage(at + 1, "\n".join(lines[at:end]), True) for at, end in pairs]


@frozen
class NoteHunt:
    """Notes of a workspace that a search for places looks at."""

    workspace: Workspace
    is_visible: Callable[[str], bool]
    """False for notes of another project, which are neither shown nor changed."""
    by_tool: bool = False

    def iter_texts(self) -> Iterator[tuple[str, str, NoteText]]:
        """Yield path, citation and text of each note, also of those in extra paths and of large ones."""
        with OpenWorkspace(self.workspace) as opened:
            for file in scan_workspace(self.workspace, max_bytes=_LARGEST_NOTE).files:
                if self.is_visible(file.path):
                    try:
                        yield file.absolute, file.path, opened.read(file.absolute, max_bytes=_LARGEST_NOTE)
                    except KeptError:
                        continue  # the search through all bytes reports what it has

    def is_writable(self, absolute: str, path: str) -> bool:
        try:
            self.workspace.require_own(absolute, path)
        except PathRefused:
            return False
        return not (self.by_tool and is_persons_own(path))

    def find(self, matcher: Matcher, *, is_person: bool = False) -> tuple[list[Place], list[str]]:
        """Return the places in notes, and those that are not changed: extra paths, files of the person, and names of
        folders."""
        places: list[Place] = []
        others: list[str] = []
        for absolute, path, note in self.iter_texts():
            matches = find_in_note(path, note.text, matcher, is_person=is_person)
            folder = os.path.dirname(path)
            if matcher.has_words(words_of(folder)) and (reason := f"{folder}: the name of this folder") not in others:
                others.append(reason)
            if matches and self.is_writable(absolute, path):
                places += matches
            else:
                others += (place.citation for place in matches)
        return places, others


def find_in_note(path: str, text: str, matcher: Matcher, *, is_person: bool = False) -> list[Place]:
    """Return the passages of a note that match, or the whole note if its name does.

    A property that lists it among others stays without it; so does a list of names if it is a person.
    """
    if matcher.has_words(name_words(path)):
        return [whole_note(path, text)]
    if not matcher.matches(text):
        return []
    places = []
    for passage in matching_passages(text, matcher):
        new = take_out(passage.text, matcher.matches, is_property=passage.is_property)
        is_list = new is not None and (is_person or passage.is_property)
        place = note_place(path, passage.start_line, passage.text, text, new if is_list and new else "")
        places.append(replace(place, is_property=passage.is_property))
    return places


def matching_passages(text: str, matcher: Matcher) -> list[NotePassage]:
    passages = [passage for passage in split_passages(text) if matcher.matches(passage.text)]
    lines = text.split("\n")
    removed = {number for passage in passages for number in range(passage.start_line, passage.end_line + 1)}
    rest = "\n".join("" if number in removed else line for number, line in enumerate(lines, 1))
    if matcher.matches(rest):  # the words run over two passages
        passages += _passages_between(rest, matcher)
    return sorted(passages, key=lambda passage: passage.start_line)


def _passages_between(text: str, matcher: Matcher) -> list[NotePassage]:
    """Return all passages that touch a pair of neighbours which only match together."""
    passages = split_passages(text)
    joined = [
        (left, right) for left, right in itertools.pairwise(passages) if matcher.matches(f"{left.text}\n{right.text}")
    ]
    return list({passage.start_line: passage for pair in joined for passage in pair}.values())


def name_words(path: str) -> str:
    """Return the name of a note as words."""
    return words_of(os.path.basename(path))


def note_place(path: str, start_line: int, text: str, note: str, new: str = "") -> Place:
    """Return the place of lines of a note, and how often it has them."""
    own, lines = text.split("\n"), note.split("\n")
    copies = sum(lines[at : at + len(own)] == own for at in range(len(lines) - len(own) + 1))
    citation = cite(path, start_line, start_line + len(own) - 1)
    return Place("note", path, citation, text, digest_of(text), start_line, len(own), copies=copies, new=new)


def whole_note(path: str, text: str) -> Place:
    return Place("note", path, path, text, digest_of(text), 1, text.count("\n") + 1, whole=True)


def find_made_of(text: str, path: str, forgotten: Callable[[str, int, int], bool]) -> list[Place]:
    """Return the passages of a note that cite only transcript lines which are forgotten: facts made of them."""
    places = []
    for passage in split_passages(text) if "sessions/" in text else ():
        cited = [
            (match[1], int(match[2] or 1), int(match[3] or match[2] or 1_000_000_000))
            for match in _CITED_LINES.finditer(passage.text)
        ]
        if cited and all(forgotten(*lines) for lines in cited):
            places.append(note_place(path, passage.start_line, passage.text, text))
    return places


# removing


@frozen
class NoteStore:
    """Scrubs the notes of a workspace."""

    name: ClassVar[str] = "notes"
    workspace: Workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        result = ScrubResult()
        self.workspace.require()
        with writing_to(self.workspace, wait_s=LOCK_WAIT_S):
            for path in order.notes:
                result += _each(lambda path=path: self._remove_note(path))  # type: ignore[misc]
            for path in dict.fromkeys(cut.path for cut in order.cuts if cut.path not in order.notes):
                cuts = [cut for cut in order.cuts if cut.path == path]
                result += _each(lambda path=path, cuts=cuts: self._cut(path, cuts))  # type: ignore[misc]
        return result

    def _remove_note(self, path: str) -> ScrubResult:
        absolute = self.workspace.locate(path)
        self.workspace.require_own(absolute, path)
        with OpenWorkspace(self.workspace) as opened:
            try:
                opened.read(absolute, max_bytes=_LARGEST_NOTE)
            except NoteNotFound:
                return ScrubResult()
            is_erased = erase_file(absolute, dir_fd=opened.folder_of(absolute))
        return ScrubResult(removed=1, unreachable=() if is_erased else (keeps_link(path),))

    def _cut(self, path: str, cuts: list[LineCut]) -> ScrubResult:
        absolute = self.workspace.locate(path)
        self.workspace.require_own(absolute, path)
        with OpenWorkspace(self.workspace) as opened:
            try:
                note = opened.read(absolute, max_bytes=_LARGEST_NOTE)
            except NoteNotFound:
                return ScrubResult()
            edits, missing = find_cuts(note.text, cuts)
            if not edits:
                return ScrubResult(changed=tuple(missing))
            data = remove_lines(note.raw, edits, path)
            is_erased = replace_erasing(absolute, data, dir_fd=opened.folder_of(absolute))
        unreachable = () if is_erased else (keeps_link(path),)
        return ScrubResult(len(edits), tuple(missing), unreachable)


def _each(scrub: Callable[[], ScrubResult]) -> ScrubResult:
    """Scrub a note. One that may not be changed, such as a link, is named; one that cannot be written now is tried
    again by the next run."""
    try:
        return scrub()
    except PathRefused as exc:
        return ScrubResult(unreachable=(exc.message,))
    except KeptError as exc:
        return ScrubResult(unreachable=(exc.message,), is_complete=False)


def find_cuts(text: str, cuts: Iterable[LineCut]) -> tuple[dict[tuple[int, int], str], list[str]]:
    """Return the lines to cut, as first and last line, each with the text that takes their place, and citations of
    those whose text is no longer there.

    A text is looked for near the line where it was: lines above it may have been added or removed since. As many copies
    of it stay as were not chosen.
    """
    lines = text.split("\n")
    edits: dict[tuple[int, int], str] = {}
    missing: list[str] = []
    for alike in _group_alike(cuts):
        starts = [
            start
            for start in range(1, len(lines) - alike[0].lines + 2)
            if digest_of("\n".join(lines[start - 1 : start - 1 + alike[0].lines])) == alike[0].digest
        ]
        surplus = len(starts) - max(0, alike[0].copies - len(alike))
        for cut in alike:
            start = min(starts, key=lambda start, cut=cut: abs(start - cut.start_line), default=0)  # type: ignore[misc]
            if surplus > 0:
                starts.remove(start)
                edits[start, start + cut.lines - 1] = cut.new
                surplus -= 1
            else:
                missing.append(cite(cut.path, cut.start_line, cut.start_line + cut.lines - 1))
    return edits, missing


def _group_alike(cuts: Iterable[LineCut]) -> Iterable[list[LineCut]]:
    groups: dict[tuple[str, int], list[LineCut]] = {}
    for cut in cuts:
        groups.setdefault((cut.digest, cut.lines), []).append(cut)
    return groups.values()


def keeps_link(path: str) -> str:
    return f"{path}: the file has another name (a hard link), which keeps the old text"
