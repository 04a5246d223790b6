"""The history of the notes: versions that had what is forgotten are written anew without it."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import ClassVar

from kept.base.digest import digest_bytes
from kept.base.values import frozen
from kept.base.wording import plural
from kept.errors import HistoryDamaged
from kept.forgetting.needles import Matcher
from kept.forgetting.note_places import NoteHunt, find_cuts, matching_passages, name_words
from kept.forgetting.plan import ForgetOrder, LineCut, Place, ScrubResult, digest_of
from kept.notes.change_recorder import Author
from kept.notes.history.note_change import utc_text
from kept.notes.history.note_history import NoteHistory
from kept.notes.history.rewrite import Removal, scrub_history
from kept.notes.line_edit import remove_lines
from kept.notes.note_writer import LOCK_WAIT_S
from kept.notes.opened import decode
from kept.notes.workspace import Workspace, writing_to

_MOST_READ = 5_000
"""Versions that are read to show the places, unless none has it. Of a longer history, all are scrubbed."""


def iter_versions(history: NoteHistory) -> Iterator[tuple[str, str, bytes]]:
    """Yield id of the change, path and bytes of each version, each once. One that cannot be read is left out."""
    seen: set[str | None] = {None}
    for name in history.log.names():
        for change in history.log.iter_oldest(name):
            for digest in (change.before, change.after) if change else ():
                if change is None or digest is None or digest in seen:
                    continue
                seen.add(digest)
                with suppress(HistoryDamaged):
                    yield change.id, change.path, history.versions.read(digest)


def find_in_history(history: NoteHistory, matcher: Matcher, known: Iterable[Place]) -> list[Place]:
    """Return the notes with old versions that match, except for what goes with places of the notes themselves."""
    whole = {place.path for place in known if place.whole}
    texts = {(place.path, place.text) for place in known}
    versions: dict[str, list[bytes]] = {}
    for number, (_, path, data) in enumerate(iter_versions(history)):
        if number >= _MOST_READ and versions:
            break
        text = decode(data)[0]
        passages = (passage.text for passage in (matching_passages(text, matcher) if matcher.matches(text) else ()))
        is_named = matcher.has_words(name_words(path))
        if path not in whole and (is_named or any((path, passage) not in texts for passage in passages)):
            versions.setdefault(path, []).append(data)
    return [
        Place("history", path, f"{path} (history)", plural(len(data), "old version"), digest_of(b"\0".join(data)))
        for path, data in versions.items()
    ]


@frozen
class HistoryStore:
    """Scrubs the history, after the notes were changed and the change was noticed."""

    name: ClassVar[str] = "history"
    history: NoteHistory
    workspace: Workspace
    agent: str

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        if not self.history.log.names():
            return ScrubResult()
        matcher = Matcher(order.needles)
        with writing_to(self.workspace, wait_s=LOCK_WAIT_S):
            hunt = NoteHunt(self.workspace, lambda path: True)
            current = {path: digest_bytes(note.raw) for _, path, note in hunt.iter_texts()}
            cuts, whole = _cuts_by_path(self.history, order.cuts), _with_earlier_names(self.history, order.notes)
            searched = _with_earlier_names(self.history, order.chosen("history"))

            def scrub(data: bytes, path: str | None) -> bytes:
                if path is None:
                    return _scrub_name(data, matcher, whole | searched)
                if current.get(path) == digest_bytes(data):
                    return data
                if path in whole or (path in searched and matcher.has_words(name_words(path))):
                    return b""
                return _scrub_version(data, matcher if path in searched else None, cuts.get(path, ()))

            by = Author(agent=self.agent, tool="memory_forget" if order.by_tool else "kept forget")
            since = utc_text(dt.datetime.fromisoformat(order.started))
            versions = scrub_history(self.history, scrub, Removal(by, since))
            present = frozenset(current.values())
            left = [
                path
                for _, path, data in iter_versions(self.history)
                if path in searched and matcher.matches(decode(data)[0]) and digest_bytes(data) not in present
            ]
        if left:
            return ScrubResult(versions, unreachable=("the history of the notes",), is_complete=False)
        return ScrubResult(versions)


def _cuts_by_path(history: NoteHistory, cuts: Sequence[LineCut]) -> dict[str, list[LineCut]]:
    """Return the lines to cut from versions of each note, also under its earlier names. Other notes may have the same
    short line, and keep it."""
    by_path: dict[str, list[LineCut]] = {}
    for path in dict.fromkeys(cut.path for cut in cuts):
        own = [cut for cut in cuts if cut.path == path]
        for name in _with_earlier_names(history, [path]):
            by_path.setdefault(name, []).extend(own)
    return by_path


def _with_earlier_names(history: NoteHistory, paths: Iterable[str]) -> set[str]:
    """Return the paths of notes, with those that they had before they were renamed."""
    names = set(paths)
    for change in history.log.iter_newest() if names else ():
        if change.was is not None and change.path in names:
            names.add(change.was)
    return names


def _scrub_name(data: bytes, matcher: Matcher, names: Iterable[str]) -> bytes:
    """Return the path of a note that goes under another name, or the reason of a change without what is forgotten."""
    text = data.decode("utf-8", "replace")
    if text in names:
        return _scrub_path(text, matcher).encode()
    is_path = text.endswith((".md", ".markdown", ".txt")) and "\n" not in text
    return b"" if not is_path and matcher.matches(text) else data


def _scrub_version(data: bytes, matcher: Matcher | None, cuts: Sequence[LineCut]) -> bytes:
    """Return a version without what is forgotten."""
    text = decode(data)[0]
    edits, _ = find_cuts(text, cuts)
    for passage in matching_passages(text, matcher) if matcher else ():
        edits.setdefault((passage.start_line, passage.end_line), "")
    return remove_lines(data, edits, "") if edits else data


def _scrub_path(path: str, matcher: Matcher) -> str:
    """Return the path of a note whose name is forgotten under another name, always the same."""
    if not matcher.matches(name_words(path)):
        return path
    folder, _, name = path.rpartition("/")
    renamed = f"forgotten-{digest_of(path)[:8]}{os.path.splitext(name)[1]}"
    return f"{folder}/{renamed}" if folder else renamed
