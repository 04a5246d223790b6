"""Notes: the passages that name something, and their removal. Each note is replaced atomically."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from kept.durable import erase_file, replace_erasing
from kept.errors import KeptError, NoteNotFound, PathRefused
from kept.forgetting.needles import Matcher
from kept.forgetting.plan import ForgetOrder, LineCut, Place, ScrubResult, digest_of
from kept.records import cite
from kept.values import frozen
from kept.workspace.line_edit import remove_lines
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.opened import NoteText, OpenWorkspace
from kept.workspace.scan import scan_workspace
from kept.workspace.workspace import Workspace, is_persons_own, writing_to

_LARGEST_NOTE = 1 << 28
_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_CITED_LINES = re.compile(r"(sessions/[^\s()\[\]#]+\.jsonl)(?:#L(\d{1,9})(?:-L?(\d{1,9}))?)?")


@frozen
class NotePassage:
    """Paragraph, list item, row of a table or heading of a note."""

    start_line: int
    text: str

    @property
    def end_line(self) -> int:
        return self.start_line + self.text.count("\n")


def split_passages(text: str) -> list[NotePassage]:
    """Return the paragraphs, list items, rows of tables and headings of a text."""
    passages: list[NotePassage] = []
    current: list[str] = []
    start, fenced = 1, False

    def close() -> None:
        if current:
            passages.append(NotePassage(start, "\n".join(current)))
            current.clear()

    for number, line in enumerate(text.split("\n"), 1):
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

    def find(self, matcher: Matcher) -> tuple[list[Place], list[str]]:
        """Return the places in notes, and those that are not changed: extra paths, and files of the person."""
        places: list[Place] = []
        others: list[str] = []
        for absolute, path, note in self.iter_texts():
            matches = find_in_note(path, note.text, matcher)
            if matches and self.is_writable(absolute, path):
                places += matches
            else:
                others += (place.citation for place in matches)
        return places, others


def find_in_note(path: str, text: str, matcher: Matcher) -> list[Place]:
    """Return the passages of a note that match, or the whole note if its name does."""
    if matcher.has_words(name_words(path)):
        return [whole_note(path, text)]
    if not matcher.matches(text):
        return []
    return [note_place(path, passage.start_line, passage.text) for passage in matching_passages(text, matcher)]


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
    return re.sub(r"[-_.+%]+", " ", os.path.splitext(os.path.basename(path))[0]) + f"\n{os.path.basename(path)}"


def note_place(path: str, start_line: int, text: str) -> Place:
    lines = text.count("\n") + 1
    citation = cite(path, start_line, start_line + lines - 1)
    return Place("note", path, citation, text, digest_of(text), start_line, lines)


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
            places.append(note_place(path, passage.start_line, passage.text))
    return places


# removing


@frozen
class NoteStore:
    """Scrubs the notes of a workspace."""

    name: ClassVar[str] = "notes"
    workspace: Workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher = Matcher(order.words_only)
        hunt = NoteHunt(self.workspace, lambda path: True, order.by_tool)
        result = ScrubResult()
        self.workspace.require()
        with writing_to(self.workspace, wait_s=LOCK_WAIT_S):
            for path in order.notes:
                result += _each(lambda path=path: self._remove_note(path))  # type: ignore[misc]
            for path in dict.fromkeys(cut.path for cut in order.cuts):
                cuts = [cut for cut in order.cuts if cut.path == path]
                result += _each(lambda path=path, cuts=cuts: self._cut(path, cuts, matcher))  # type: ignore[misc]
            if order.words:
                cut_paths = {cut.path for cut in order.cuts}
                for absolute, path, note in hunt.iter_texts() if not order.is_scoped else ():
                    if path in cut_paths or not hunt.is_writable(absolute, path) or not matcher.matches(note.text):
                        continue
                    result += _each(lambda path=path: self._cut(path, [], matcher))  # type: ignore[misc]
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

    def _cut(self, path: str, cuts: list[LineCut], matcher: Matcher) -> ScrubResult:
        absolute = self.workspace.locate(path)
        self.workspace.require_own(absolute, path)
        with OpenWorkspace(self.workspace) as opened:
            try:
                note = opened.read(absolute, max_bytes=_LARGEST_NOTE)
            except NoteNotFound:
                return ScrubResult()
            ranges, missing = find_cuts(note.text, cuts)
            ranges += [(passage.start_line, passage.end_line) for passage in matching_passages(note.text, matcher)]
            if not ranges:
                return ScrubResult(changed=tuple(missing))
            data = remove_lines(note.raw, ranges, path)
            is_erased = replace_erasing(absolute, data, dir_fd=opened.folder_of(absolute))
        unreachable = () if is_erased else (keeps_link(path),)
        return ScrubResult(len(set(ranges)), tuple(missing), unreachable)


def _each(scrub: Callable[[], ScrubResult]) -> ScrubResult:
    """Scrub a note. One that may not be changed, such as a link, is named; one that cannot be written now is tried
    again by the next run."""
    try:
        return scrub()
    except PathRefused as exc:
        return ScrubResult(unreachable=(exc.message,))
    except KeptError as exc:
        return ScrubResult(unreachable=(exc.message,), is_complete=False)


def find_cuts(text: str, cuts: Iterable[LineCut]) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the lines to cut, as first and last line, and citations of those whose text is no longer there.

    A text is looked for near the line where it was: lines above it may have been added or removed since.
    """
    lines = text.split("\n")
    ranges: list[tuple[int, int]] = []
    missing: list[str] = []
    for cut in cuts:
        starts = range(1, len(lines) - cut.lines + 2)
        by_distance = sorted(starts, key=lambda start, cut=cut: abs(start - cut.start_line))  # type: ignore[misc]
        for start in by_distance:
            span = (start, start + cut.lines - 1)
            if span not in ranges and digest_of("\n".join(lines[start - 1 : span[1]])) == cut.digest:
                ranges.append(span)
                break
        else:
            missing.append(cite(cut.path, cut.start_line, cut.start_line + cut.lines - 1))
    return ranges, missing


def keeps_link(path: str) -> str:
    return f"{path}: the file has another name (a hard link), which keeps the old text"
