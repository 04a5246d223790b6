"""Rewrite the history: drop old changes, and remove a text from every version and line.

A rewritten history is stored as a new one would be: all versions that are still named are read from the old files and
stored in a new pack, then the lines are replaced in one step, then packs that no line names are deleted. A crash leaves
the old lines with the old packs, or the new lines with the new ones. The caller holds the lock of the workspace.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from kept.errors import HistoryDamaged
from kept.file_lock import locked
from kept.history.change_log import ENDING, state_after
from kept.history.digest import digest_bytes
from kept.history.history_folder import CHANGES, OBJECTS
from kept.history.note_change import Forgotten, NoteChange, StoredText, format_change, utc_text
from kept.history.note_history import NoteHistory
from kept.history.version_store import PACK_ENDING, PackWriter, VersionReader, plan_difference, store_version
from kept.values import frozen
from kept.workspace.change_recorder import Author

Scrub = Callable[[bytes, str | None], bytes]
"""Returns a text without what has to be forgotten: a version of the note at a path, or with None a path or a reason."""
_FLUSH_CHANGES = 2_000
LOCK_WAIT_S = 5.0
_PRUNE_TO = 0.8
"""Share of the size limit that is left after a history was pruned."""


@frozen
class RewriteReport:
    changes: int = 0
    """Lines that were dropped, or whose texts changed."""
    versions: int = 0
    """Versions whose bytes changed."""
    dropped_lines: int = 0
    """Damaged lines that were dropped."""


# pruning


def history_size(history: NoteHistory) -> int:
    """Return the number of bytes of the lines and packs of this machine."""
    log, packs = history.log, history.packs
    sizes = [history.folder.size(OBJECTS, packs.name(number)) for number in packs.numbers()]
    return history.folder.size(CHANGES, log.own_name) + sum(sizes)


def prune_if_due(history: NoteHistory, *, max_age_days: int, max_bytes: int) -> RewriteReport:
    """Prune the history if it is too large, or if its oldest change is well beyond the age limit."""
    is_due = bool(max_bytes) and history_size(history) > max_bytes
    if max_age_days and not is_due:
        # Some days of grace: a history is not rewritten every day.
        limit = utc_text(history.clock.now() - dt.timedelta(days=max_age_days + max(1, max_age_days // 10)))
        lines = history.log.iter_oldest(history.log.own_name)
        oldest = next((change for _, _, change in lines if change and change.kind != "baseline"), None)
        is_due = oldest is not None and oldest.time < limit
    if not is_due:
        return RewriteReport()
    with locked(history.workspace.root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
        return prune_history(history, max_age_days=max_age_days, max_bytes=max_bytes)


def prune_history(history: NoteHistory, *, max_age_days: int, max_bytes: int) -> RewriteReport:
    """Drop the oldest changes of this machine, by age and by size. The notes as they were then become the baseline."""
    changes = [change for _, _, change in history.log.iter_oldest(history.log.own_name) if change is not None]
    start = 0
    if max_age_days:
        oldest = utc_text(history.clock.now() - dt.timedelta(days=max_age_days))
        recent = (at for at, change in enumerate(changes) if change.kind != "baseline" and change.time >= oldest)
        start = next(recent, len(changes))
    size = history_size(history)
    if max_bytes and size > max_bytes:
        start = max(start, int(len(changes) * (1 - _PRUNE_TO * max_bytes / size)))
    if not any(change.kind != "baseline" for change in changes[:start]):
        return RewriteReport()
    base = _states(changes[:start])
    for _ in _Rewriter(history, history.log.own_name, None).run([*base, *changes[start:]]):
        pass
    _delete_unnamed_packs(history)
    return RewriteReport(changes=sum(change.kind != "baseline" for change in changes[:start]))


def _states(changes: Sequence[NoteChange]) -> list[NoteChange]:
    """Return the notes that exist after these changes, each as a baseline."""
    last: dict[str, NoteChange] = {}
    for change in changes:
        if change.was is not None:
            last.pop(change.was, None)
        last[change.path] = change
    current = (change for path, change in last.items() if state_after(change, path) is not None)
    return [
        replace(change, kind="baseline", before=None, was=None, undoes=(), by=Author(), why="") for change in current
    ]


# forgetting


@frozen
class Removal:
    """The forget that a history is scrubbed for: who asked for it, and when, as `utc_text` writes it."""

    by: Author
    since: str


def scrub_history(history: NoteHistory, scrub: Scrub, removal: Removal | None = None) -> RewriteReport:
    """Remove a text from every version of every note and from every line, on the files of all machines.

    Versions without the text keep their hashes. The others get new ones, so that not even a hash of the text stays. A
    sync notices the removal of the text from a note as made by another program: such changes get the author of
    ``removal``.
    """
    changed = versions = dropped = 0
    new_names: dict[tuple[str, str], str] = {}
    for name in history.log.names():
        rewriter = _Rewriter(history, name, scrub, new_names, removal)
        changed += sum(rewriter.run(change for _, _, change in history.log.iter_oldest(name)))
        versions += rewriter.changed_versions
        dropped += rewriter.dropped
    _delete_unnamed_packs(history, erase=True)
    return RewriteReport(changed, versions, dropped)


# rewriting


class _Rewriter:
    """Stores the changes of one file again."""

    def __init__(
        self,
        history: NoteHistory,
        name: str,
        scrub: Scrub | None,
        new_names: dict[tuple[str, str], str] | None = None,
        removal: Removal | None = None,
    ) -> None:
        self._history = history
        self._name = name
        self._scrub = scrub
        self._removal = removal
        self._reader = VersionReader(history.log, is_indexed=True)
        self._packs = PackWriter(history.folder, name.removesuffix(ENDING))
        self._packs.begin_new()
        self._last: dict[str, NoteChange] = {}
        self._new_names: dict[tuple[str, str], str] = {} if new_names is None else new_names
        """Hash of each version after scrubbing, by its hash and the path of the note, for the files of all machines."""
        self.changed_versions = 0
        self.dropped = 0
        """Lines that could not be read."""

    def run(self, changes: Iterable[NoteChange | None]) -> Iterator[bool]:
        """Yield for each change whether it differs from what it was. The file is replaced after the last one."""
        with self._history.folder.replacing(CHANGES, self._name, erase=self._scrub is not None) as file:
            for number, change in enumerate(changes, 1):
                if change is None:
                    self.dropped += 1
                    continue
                stored = self._store(change)
                file.write(format_change(stored))
                if number % _FLUSH_CHANGES == 0:
                    self._packs.flush()
                yield replace(stored, stored=None) != replace(change, stored=None)
            self._packs.flush()

    def _store(self, change: NoteChange) -> NoteChange:
        forgotten = self._find_loss(change)
        old_path, new_path = change.was or change.path, change.path
        path, was = self._text(change.path), None if change.was is None else self._text(change.was)
        change = replace(change, path=path, was=was, why=self._text(change.why), by=self._author(change.by))
        content, stored = self._read(change.after, new_path), None
        if content is not None:
            base = self._last.get(was or path)
            before = self._read(change.before, old_path) if base is not None else None
            is_base = base is not None and before is not None and base.after == digest_bytes(before)
            stored = store_version(self._packs, before if is_base else None, content, self._stored_of(base, is_base))
        was_empty = change.before == change.after
        names = self._name_of(change.before, old_path), self._name_of(change.after, new_path)
        change = replace(change, before=names[0], after=names[1], stored=stored)
        change = replace(change, forgotten=forgotten or change.forgotten)
        if not was_empty and change.before == change.after:
            change = self._attribute(change)
        self._last[path] = change
        return change

    def _attribute(self, change: NoteChange) -> NoteChange:
        """Return a change that did nothing but remove the text, with its real author."""
        removal = self._removal
        if removal is None or change.kind != "by_hand" or change.time < removal.since:
            return change
        return replace(change, kind="forget", by=removal.by)

    def _find_loss(self, change: NoteChange) -> Forgotten | None:
        """Return how much of what the change itself did is scrubbed. Other lines of the note do not count."""
        if self._scrub is None:
            return None
        names = (change.path, change.was or "", change.why)
        loses_name = any(self._text(name) != name for name in names) or self._author(change.by) != change.by
        old_path, path = change.was or change.path, change.path
        is_same = self._name_of(change.before, old_path) == change.before and (
            self._name_of(change.after, path) == change.after
        )
        if is_same:
            return "part" if loses_name else None
        try:
            before, after = (
                b"" if digest is None else self._reader.read(digest) for digest in (change.before, change.after)
            )
        except HistoryDamaged:
            return "part"
        left = _own_texts(self._scrub(before, old_path), self._scrub(after, path))
        if _own_texts(before, after) == left:
            return "part" if loses_name else None
        return "part" if change.was is not None or any(map(bytes.strip, left)) else "all"

    def _stored_of(self, base: NoteChange | None, is_base: bool) -> StoredText | None:
        return base.stored if base is not None and is_base else None

    def _read(self, digest: str | None, path: str) -> bytes | None:
        """Return the bytes of a version of a note, scrubbed; None if they are missing."""
        if digest is None:
            return None
        try:
            content = self._reader.read(digest)
        except HistoryDamaged:
            return None
        scrubbed = content if self._scrub is None else self._scrub(content, path)
        if (digest, path) not in self._new_names:
            self._new_names[digest, path] = digest if scrubbed == content else digest_bytes(scrubbed)
            self.changed_versions += scrubbed != content
        return scrubbed

    def _name_of(self, digest: str | None, path: str) -> str | None:
        """Return the hash of a version of a note after scrubbing."""
        if digest is not None and (digest, path) not in self._new_names:
            self._read(digest, path)
        return None if digest is None else self._new_names.get((digest, path), digest)

    def _author(self, by: Author) -> Author:
        parts = (by.agent, by.session, by.tool, by.person, by.client)
        return Author(*(None if part is None else self._text(part) for part in parts))

    def _text(self, text: str) -> str:
        return text if self._scrub is None else self._scrub(text.encode(), None).decode("utf-8", "replace")


def _own_texts(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Return what a change removed, and what it wrote."""
    start, end, piece = plan_difference(before, after)
    return before[start:end], piece


def _delete_unnamed_packs(history: NoteHistory, *, erase: bool = False) -> None:
    named: set[str | None] = set()
    for name in history.log.names():
        lines = history.log.iter_oldest(name)
        named.update(change.stored.pack for _, _, change in lines if change is not None and change.stored is not None)
    for name in history.folder.names(OBJECTS, PACK_ENDING):
        if name not in named:
            history.folder.remove(OBJECTS, name, erase=erase)


def remove_leftovers(history: NoteHistory) -> None:
    """Delete temporary files that a crash left in the folders of the history."""
    for folder in (CHANGES, OBJECTS):
        for name in history.folder.names(folder, ".tmp"):
            if name.startswith(".kept-") and os.path.basename(name) == name:
                history.folder.remove(folder, name)
