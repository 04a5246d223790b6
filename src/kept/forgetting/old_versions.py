"""The history of the notes: old versions that have something, and the history without it.

A version that had what is forgotten gets another hash, so that not even a hash of the text stays. The lines of all
machines are written anew, and versions that no line names are erased.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from kept.base.clock import new_id
from kept.base.digest import digest_bytes
from kept.base.wording import plural
from kept.errors import HistoryDamaged, KeptError
from kept.forgetting.needles import Matcher
from kept.forgetting.passages import find_cuts, matching_passages, name_words
from kept.forgetting.plan import ForgetOrder, Place, digest_of
from kept.notes.history.line_changes import count_common_ends
from kept.notes.history.note_history import (
    CHANGES,
    OBJECTS,
    VERSION_LEVEL,
    Author,
    Forgotten,
    NoteChange,
    format_change,
    parse_change,
    read_version,
    version_path,
)
from kept.notes.line_edit import remove_lines
from kept.notes.workspace import decode
from kept.storage.contract import Append, Change, Erase, LogPosition, Rewrite, Storage, Write

_DIGEST = re.compile(rb"[0-9a-f]{64}")
_TOGETHER = 200
"""New versions that are written together. Those that no line names yet do no harm."""


# reading


def iter_versions(notes: Storage) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of each version, each once. One that cannot be read is left out."""
    seen: set[str | None] = {None}
    for log in notes.logs.list(CHANGES):
        for change in filter(None, (parse_change(line.data) for line in notes.logs.read(log.name))):
            for digest in (change.before, change.after):
                if digest is not None and digest not in seen:
                    seen.add(digest)
                    with suppress(HistoryDamaged):
                        yield change.path, read_version(notes, digest)


def find_in_history(notes: Storage, matcher: Matcher, known: Iterable[Place]) -> list[Place]:
    """Return the notes with old versions that match, except for what goes with places of the notes themselves."""
    whole = {place.path for place in known if place.whole}
    texts = {(place.path, place.text) for place in known}
    versions: dict[str, list[str]] = {}
    for path, data in iter_versions(notes):
        text = decode(data)[0]
        passages = matching_passages(text, matcher) if matcher.matches(text) else []
        is_named = matcher.has_words(name_words(path))
        if path not in whole and (is_named or any((path, passage.text) not in texts for passage in passages)):
            versions.setdefault(path, []).append(digest_of(data))
    return [
        Place("history", path, f"{path} (history)", plural(len(digests), "old version"), digest_of("".join(digests)))
        for path, digests in versions.items()
    ]


# scrubbing


class HistoryScrub:
    """Makes the changes of one commit that remove what an order forgets.

    ``notes`` has the new bytes of the notes that the same commit changes, None for those that it removes.
    """

    def __init__(
        self, storage: Storage, order: ForgetOrder, notes: Mapping[str, bytes | None], *, by: Author, time: str
    ) -> None:
        self._storage = storage
        self._matcher = Matcher(order.plan.needles)
        self._notes = notes
        self._by, self._time = by, time
        self._logs: dict[str, tuple[LogPosition, list[bytes]]] = {}
        """End and lines of each log. The end is read first: a line that another process appends meanwhile makes the
        commit fail."""
        for info in storage.logs.list(CHANGES):
            end = storage.logs.end(info.name)
            self._logs[info.name] = end, [line.data for line in storage.logs.read(info.name)]
        changes = filter(None, (parse_change(line) for _, lines in self._logs.values() for line in lines))
        renames = sorted(((c.time, c.path, c.was) for c in changes if c.was is not None), reverse=True)
        self._places: dict[str, list[Place]] = {}
        """Places in a note, by each name that it had. Only versions of the same note lose a line: others may have the
        same short one, and keep it."""
        for place in order.of_kind("note", "history"):
            names = {place.path}
            for _, path, was in renames:
                names |= {was} if path in names else set()
            for name in names:
                self._places.setdefault(name, []).append(place)
        self._digests: dict[tuple[str, str], str] = {}
        """Hash of each version after scrubbing, by its hash and the path of the note."""
        self._new: dict[str, Write] = {}
        self.is_left = False
        """True if a version still has it, which no passage explains."""

    def changes(self) -> list[Change]:
        """Return the changes. Many new versions are committed at once, before any line names them."""
        new_lines: dict[str, list[bytes]] = {}
        last: dict[str, tuple[NoteChange, NoteChange, str]] = {}
        for name, (_, lines) in self._logs.items():
            new_lines[name] = []
            for line in lines:
                old = parse_change(line)
                if old is None:
                    continue  # it may have anything
                new = self._scrub_change(old) if {old.path, old.was} & self._places.keys() else old
                new_lines[name].append(line if new == old else format_change(new))
                if old.path in self._notes and (old.path not in last or last[old.path][0].time <= old.time):
                    last[old.path] = old, new, name
        for path, (old, new, name) in last.items():
            content = self._notes[path]
            after = None if content is None else digest_bytes(content)
            # The history says that the note lost something, if it knows the note as it was before.
            if new.after is not None and (after is None or (after == new.after and old.after != new.after)):
                fields = (new_id(), self._time, new.path, "forget", new.after, after, self._by)
                new_lines[name].append(format_change(NoteChange(*fields, forgotten="all")))
        digests = {digest for lines in new_lines.values() for line in lines for digest in _DIGEST.findall(line)}
        named = {version_path(digest.decode()) for digest in digests}
        unnamed = [info.path for info in self._storage.documents.list(OBJECTS) if info.path not in named]
        changes: list[Change] = [*map(Erase, unnamed), *self._new.values()]
        for name, lines in new_lines.items():
            end, old_lines = self._logs[name]
            if lines != old_lines:
                changes.append(Rewrite(name, lines, end, erase=True))
            elif unnamed:  # no other process has named one of them meanwhile
                changes.append(Append(name, (), end))
        return changes

    # one change

    def _scrub_change(self, change: NoteChange) -> NoteChange:
        before = self._digest(change.before, change.was or change.path)
        after = self._digest(change.after, change.path)
        is_scrubbed = (before, after) != (change.before, change.after)
        new = replace(
            change,
            path=self._scrub_path(change.path),
            was=None if change.was is None else self._scrub_path(change.was),
            why="" if is_scrubbed and self._matcher.matches(change.why) else change.why,
        )
        forgotten = change.forgotten if new == change else "part"
        return replace(
            new, before=before, after=after, forgotten=(is_scrubbed and self._find_loss(change)) or forgotten
        )

    def _find_loss(self, change: NoteChange) -> Forgotten | None:
        """Return how much of what the change itself did is scrubbed. Other lines of the note do not count."""
        old, left = [], []
        for digest, path in ((change.before, change.was or change.path), (change.after, change.path)):
            try:
                data = b"" if digest is None else read_version(self._storage, digest)
            except HistoryDamaged:
                return "part"
            old.append(data)
            left.append(self._scrub(data, path))
        before, after = _own_texts(*old), _own_texts(*left)
        if before == after:
            return None
        return "part" if change.was is not None or any(map(bytes.strip, after)) else "all"

    def _digest(self, digest: str | None, path: str) -> str | None:
        """Return the hash of a version of a note after scrubbing, and keep its bytes to be stored."""
        if digest is None:
            return None
        if (digest, path) not in self._digests:
            self._digests[digest, path] = digest
            with suppress(HistoryDamaged):  # lines keep the hash of what cannot be read
                scrubbed = self._scrub(read_version(self._storage, digest), path)
                new = self._digests[digest, path] = digest_bytes(scrubbed)
                if new != digest:
                    self._new[new] = Write(version_path(new), zlib.compress(scrubbed, VERSION_LEVEL))
            if len(self._new) >= _TOGETHER:
                self._storage.commit([*self._new.values()])
                self._new = {}
        return self._digests[digest, path]

    # texts

    def _scrub(self, data: bytes, path: str) -> bytes:
        """Return a version without what is forgotten. What is the note itself now stays as it is."""
        places = self._places.get(path, [])
        if not places or self._find_note(path) == data:
            return data
        is_searched = any(place.kind == "history" for place in places)
        if any(place.whole for place in places) or (is_searched and self._matcher.has_words(name_words(path))):
            return b""
        text = decode(data)[0]
        edits, _ = find_cuts(text, [place for place in places if place.kind == "note"])
        for passage in matching_passages(text, self._matcher) if is_searched else ():
            edits.setdefault((passage.start_line, passage.end_line), "")
        scrubbed = remove_lines(data, edits, "") if edits else data
        self.is_left = self.is_left or (is_searched and self._matcher.matches(decode(scrubbed)[0]))
        return scrubbed

    def _find_note(self, path: str) -> bytes | None:
        """Return the note as it is after the commit, or None if there is none."""
        if path in self._notes:
            return self._notes[path]
        try:
            return self._storage.documents.read(path).data
        except KeptError:  # it is gone, or something that is no note is in its place
            return None

    def _scrub_path(self, path: str) -> str:
        """Return the path of a note whose name is forgotten under another name, always the same."""
        places = self._places.get(path, ())
        is_note = any(place.whole or place.kind == "history" for place in places)
        if not is_note or not self._matcher.matches(name_words(path)):
            return path
        renamed = f"forgotten-{digest_of(path)[:8]}{os.path.splitext(path)[1]}"
        return os.path.join(os.path.dirname(path), renamed)


def _own_texts(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Return what a change removed, and what it wrote."""
    head, tail = count_common_ends(before, after)
    return before[head : len(before) - tail], after[head : len(after) - tail]
