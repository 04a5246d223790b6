"""Rewrite and check the history: remove a text from every version and line, find damage.

A rewritten history is stored as a new one would be: versions first, then the lines in one step, then versions that no
line names are deleted. A crash leaves the old lines with the old versions, or the new lines with the new ones. The
caller holds the lock of the workspace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from kept.base.digest import digest_bytes
from kept.base.values import frozen
from kept.base.wording import plural
from kept.errors import HistoryDamaged
from kept.notes.change_recorder import Author
from kept.notes.common_ends import count_common_ends
from kept.notes.history.history_folder import CHANGES
from kept.notes.history.note_change import Forgotten, NoteChange, format_change
from kept.notes.history.note_history import NoteHistory

Scrub = Callable[[bytes, str | None], bytes]
"""Returns a text without what has to be forgotten: a version of the note at a path, or with None a path or a reason."""
_TOGETHER = 200
"""Versions that are written with one sync of the disk."""
_DIGEST = re.compile(rb"[0-9a-f]{64}")


# forgetting


@frozen
class Removal:
    """The forget that a history is scrubbed for: who asked for it, and when, as `utc_text` writes it."""

    by: Author
    since: str


def scrub_history(history: NoteHistory, scrub: Scrub, removal: Removal | None = None) -> int:
    """Remove a text from every version of every note and every line, of all machines. Return how many versions had it.

    Versions without the text keep their hashes. The others get new ones, so that not even a hash of the text stays;
    lines that cannot be read are dropped. A sync notices the removal of the text from a note as made by another
    program: such changes get the author of ``removal``.
    """
    scrubber = _Scrubber(history, scrub, removal)
    for name in history.log.names():
        scrubber.rewrite(name)
    _erase_unnamed(history)
    return scrubber.versions


def _erase_unnamed(history: NoteHistory) -> None:
    """Erase the versions that no line names."""
    named = {digest for name in history.log.names() for digest in _DIGEST.findall(history.folder.read(CHANGES, name))}
    for digest in history.versions.digests():
        if digest.encode() not in named:
            history.versions.erase(digest)


class _Scrubber:
    """Stores the changes of all machines again, without a text."""

    def __init__(self, history: NoteHistory, scrub: Scrub, removal: Removal | None) -> None:
        self._history = history
        self._scrub = scrub
        self._removal = removal
        self._digests: dict[tuple[str, str], str] = {}
        """Hash of each version after scrubbing, by its hash and the path of the note."""
        self._new: list[bytes] = []
        self.versions = 0

    def rewrite(self, name: str) -> None:
        """Rewrite the lines of a machine."""
        lines = self._history.log.iter_oldest(name)
        changes = [self._change(change) for change in lines if change is not None]
        self._store_new()
        with self._history.folder.replacing(CHANGES, name, erase=True) as file:
            file.writelines(map(format_change, changes))

    def _change(self, change: NoteChange) -> NoteChange:
        before = self._digest(change.before, change.was or change.path)
        after = self._digest(change.after, change.path)
        is_scrubbed = (before, after) != (change.before, change.after)
        new = replace(
            change,
            path=self._text(change.path),
            was=None if change.was is None else self._text(change.was),
            why=self._text(change.why) if is_scrubbed else change.why,
        )
        has_lost_text = new != change
        new = replace(new, before=before, after=after)
        is_emptied = before == after and change.before != change.after
        if is_emptied and self._removal and change.kind == "by_hand" and change.time >= self._removal.since:
            new = replace(new, kind="forget", by=self._removal.by)  # it did nothing but remove the text
        loss = self._find_loss(change) if is_scrubbed else None
        return replace(new, forgotten=loss or ("part" if has_lost_text else None) or change.forgotten)

    def _find_loss(self, change: NoteChange) -> Forgotten | None:
        """Return how much of what the change itself did is scrubbed. Other lines of the note do not count."""
        old_path = change.was or change.path
        try:
            before, after = (self._history.read_version(digest) or b"" for digest in (change.before, change.after))
        except HistoryDamaged:
            return "part"
        left = _own_texts(self._scrub(before, old_path), self._scrub(after, change.path))
        if _own_texts(before, after) == left:
            return None
        return "part" if change.was is not None or any(map(bytes.strip, left)) else "all"

    def _digest(self, digest: str | None, path: str) -> str | None:
        """Return the hash of a version of a note after scrubbing, and keep its bytes to be stored."""
        if digest is None:
            return None
        if (digest, path) not in self._digests:
            try:
                content = self._history.versions.read(digest)
            except HistoryDamaged:
                content = scrubbed = b""  # its lines keep the hash of what cannot be read
            else:
                scrubbed = self._scrub(content, path)
            self._digests[digest, path] = digest if scrubbed == content else digest_bytes(scrubbed)
            if scrubbed != content:
                self.versions += 1
                self._new.append(scrubbed)
            if len(self._new) >= _TOGETHER:
                self._store_new()
        return self._digests[digest, path]

    def _store_new(self) -> None:
        self._history.versions.put(self._new)
        self._new = []

    def _text(self, text: str) -> str:
        return self._scrub(text.encode(), None).decode("utf-8", "replace")


def _own_texts(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Return what a change removed, and what it wrote."""
    head, tail = count_common_ends(before, after)
    return before[head : len(before) - tail], after[head : len(after) - tail]


# checking


@frozen
class HistoryState:
    changes: int
    torn: tuple[str, ...] = ()
    """Files with lines that cannot be read. They are left out until the next forget drops them."""
    lost: int = 0
    """Old versions that cannot be read. No repair brings them back."""


def check_history(history: NoteHistory) -> HistoryState:
    """Read every line and every version. Change nothing."""
    torn: list[str] = []
    changes: list[NoteChange] = []
    for name in history.log.names():
        lines = list(history.log.iter_oldest(name))
        changes += [change for change in lines if change is not None]
        if count := lines.count(None):
            torn.append(f"{history.folder.path(CHANGES, name)}: {plural(count, 'line')} cannot be read.")
    digests = {digest for change in changes for digest in (change.before, change.after) if digest is not None}
    return HistoryState(len(changes), tuple(torn), sum(not _is_readable(history, digest) for digest in digests))


def _is_readable(history: NoteHistory, digest: str) -> bool:
    try:
        history.versions.read(digest)
    except HistoryDamaged:
        return False
    return True
