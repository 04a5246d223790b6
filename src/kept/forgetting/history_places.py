"""The history of the notes: versions that had what is forgotten are written anew without it."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator

from kept.durable import locked
from kept.errors import KeptError
from kept.forgetting.needles import Matcher
from kept.forgetting.note_places import NoteHunt, find_cuts, matching_passages, name_words
from kept.forgetting.order import ForgetOrder, ScrubResult
from kept.forgetting.places import Place, digest_of
from kept.history.digest import digest_bytes
from kept.history.note_change import utc_text
from kept.history.note_history import NoteHistory
from kept.history.rewrite import Removal, scrub_history
from kept.workspace.change_recorder import Author
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.opened import decode
from kept.workspace.removal import remove_lines
from kept.workspace.workspace import Workspace

_MOST_READ = 5_000
"""Versions that are read to show the places. Of a longer history, all are scrubbed and only some are shown."""


def iter_versions(history: NoteHistory) -> Iterator[tuple[str, str, bytes]]:
    """Yield id of the change, path and bytes of each version, each once. One that cannot be read is left out."""
    seen: set[str] = set()
    for name in history.log.names():
        for _, _, change in history.log.iter_oldest(name):
            for digest in (change.before, change.after) if change else ():
                if change is None or digest is None or digest in seen:
                    continue
                seen.add(digest)
                try:
                    data = history.read_version(digest)
                except KeptError:
                    continue
                if data is not None:
                    yield change.id, change.path, data


def find_in_history(history: NoteHistory, matcher: Matcher) -> list[Place]:
    """Return the changes whose note had what is looked for."""
    places: dict[str, Place] = {}
    for number, (change, path, data) in enumerate(iter_versions(history)):
        if number >= _MOST_READ:
            break
        if matcher.matches(decode(data)[0]) or matcher.has_words(name_words(path)):
            places.setdefault(change, Place("history", path, f"{path} ({change})", "an old version", digest_of(data)))
    return list(places.values())


class HistoryStore:
    """Scrubs the history, after the notes were changed and the change was noticed."""

    name = "history"

    def __init__(self, history: NoteHistory, workspace: Workspace, agent: str) -> None:
        self.history = history
        self.agent = agent
        self.workspace = workspace

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        if not self.history.log.names():
            return ScrubResult()
        matcher = Matcher(order.needles)
        with locked(self.workspace.root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
            hunt = NoteHunt(self.workspace, lambda path: True)
            current = {digest_bytes(note.raw) for _, _, note in hunt.iter_texts()}

            def scrub(data: bytes) -> bytes:
                return data if digest_bytes(data) in current else _scrub_version(data, matcher, order)

            by = Author(agent=self.agent, tool="memory_forget" if order.by_tool else "kept forget")
            since = utc_text(dt.datetime.fromisoformat(order.started))
            report = scrub_history(self.history, scrub, Removal(by, since))
            left = [path for _, path, data in iter_versions(self.history) if scrub(data) != data]
        if left:
            return ScrubResult(report.versions, unreachable=("the history of the notes",), is_complete=False)
        return ScrubResult(report.versions)


def _scrub_version(data: bytes, matcher: Matcher, order: ForgetOrder) -> bytes:
    """Return a version, or a path or a reason of a change, without what is forgotten."""
    text = decode(data)[0]
    if "\n" not in text and text.endswith((".md", ".markdown", ".txt")) and "/" in text + "/":
        return _scrub_path(text, matcher).encode()
    ranges, _ = find_cuts(text, order.cuts)
    ranges += [(passage.start_line, passage.end_line) for passage in matching_passages(text, matcher)]
    return remove_lines(data, ranges, "") if ranges else data


def _scrub_path(path: str, matcher: Matcher) -> str:
    """Return the path of a note whose name is forgotten under another name, always the same."""
    if not matcher.matches(name_words(path)):
        return path
    folder, _, name = path.rpartition("/")
    renamed = f"forgotten-{digest_of(path)[:8]}{os.path.splitext(name)[1]}"
    return f"{folder}/{renamed}" if folder else renamed
