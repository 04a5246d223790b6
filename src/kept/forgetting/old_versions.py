"""The history of the notes: old versions that have something, and the history without it.

A version that had what is forgotten gets another hash, so that not even a hash of the text stays. The lines of all
machines are written anew, and versions that no line names are erased.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from kept.base.clock import new_id
from kept.base.digest import digest_bytes
from kept.base.values import frozen
from kept.base.wording import plural
from kept.errors import DocumentNotFound, KeptError
from kept.forgetting.needles import Matcher
from kept.forgetting.passages import find_cuts, matching_passages, name_words
from kept.forgetting.plan import ForgetOrder, Place, digest_of
from kept.notes.history.line_changes import count_common_ends
from kept.notes.history.note_change import Author, Forgotten, NoteChange, format_change, parse_change
from kept.notes.line_edit import remove_lines
from kept.notes.note_text import decode
from kept.storage.contract import Append, Change, Erase, LogPosition, Rewrite, Storage, Write

CHANGES, OBJECTS = ".kept/history/changes/", ".kept/history/objects/"
_ENDING = ".z"
_LEVEL = 1
_LARGEST = 1 << 30
_DIGEST = re.compile(rb"[0-9a-f]{64}")
_TOGETHER = 200
"""New versions that are written together. Those that no line names yet do no harm."""


# reading


def version_path(digest: str) -> str:
    return f"{OBJECTS}{digest[:2]}/{digest[2:]}{_ENDING}"


def read_version(notes: Storage, digest: str) -> bytes | None:
    """Return the bytes of a version, or None if they are missing or damaged."""
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(notes.documents.read(version_path(digest)).data, _LARGEST)
    except (DocumentNotFound, zlib.error):
        return None
    return content if unpacker.eof and digest_bytes(content) == digest else None


def iter_changes(notes: Storage) -> Iterator[NoteChange]:
    for log in notes.logs.list(CHANGES):
        for line in notes.logs.read(log.name):
            if change := parse_change(line.data):
                yield change


def iter_versions(notes: Storage) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of each version, each once. One that cannot be read is left out."""
    seen: set[str | None] = {None}
    for change in iter_changes(notes):
        for digest in (change.before, change.after):
            if digest is not None and digest not in seen:
                seen.add(digest)
                if (content := read_version(notes, digest)) is not None:
                    yield change.path, content


def find_in_history(notes: Storage, matcher: Matcher, known: Iterable[Place]) -> list[Place]:
    """Return the notes with old versions that match, except for what goes with places of the notes themselves."""
    whole = {place.path for place in known if place.whole}
    texts = {(place.path, place.text) for place in known}
    versions: dict[str, list[bytes]] = {}
    for path, data in iter_versions(notes):
        text = decode(data)[0]
        passages = (passage.text for passage in (matching_passages(text, matcher) if matcher.matches(text) else ()))
        is_named = matcher.has_words(name_words(path))
        if path not in whole and (is_named or any((path, passage) not in texts for passage in passages)):
            versions.setdefault(path, []).append(data)
    return [
        Place("history", path, f"{path} (history)", plural(len(data), "old version"), digest_of(b"\0".join(data)))
        for path, data in versions.items()
    ]


# scrubbing


@frozen
class _Log:
    name: str
    end: LogPosition
    lines: list[bytes]
    changes: list[NoteChange | None]


class HistoryScrub:
    """Makes the changes of one commit that remove what an order forgets.

    ``notes`` has the new bytes of the notes that the same commit changes, None for those that it removes.
    """

    def __init__(
        self, storage: Storage, order: ForgetOrder, notes: Mapping[str, bytes | None], *, by: Author, time: str
    ) -> None:
        self._storage = storage
        self._matcher = Matcher(order.needles)
        self._notes = notes
        self._by, self._time = by, time
        self._logs = [self._read(info.name) for info in storage.logs.list(CHANGES)]
        self._whole = self._with_earlier_names(order.paths("note", whole=True))
        self._searched = self._with_earlier_names(order.paths("history"))
        self._cuts: dict[str, list[Place]] = {}
        cuts = [place for place in order.of_kind("note") if not place.whole]
        # Only versions of the same note lose a line: others may have the same short one, and keep it.
        for path in dict.fromkeys(place.path for place in cuts):
            for name in self._with_earlier_names([path]):
                self._cuts.setdefault(name, []).extend(place for place in cuts if place.path == path)
        self._read_version = lru_cache(maxsize=64)(lambda digest: read_version(storage, digest))
        self._read_note = lru_cache(maxsize=64)(lambda path: _read_note(storage, path))
        self._digests: dict[tuple[str, str], str] = {}
        """Hash of each version after scrubbing, by its hash and the path of the note."""
        self._new: dict[str, bytes] = {}
        self.versions = 0
        """How many versions had it."""
        self.is_left = False
        """True if a version still has it, which no passage explains."""

    def _read(self, name: str) -> _Log:
        lines = [line.data for line in self._storage.logs.read(name)]
        return _Log(name, self._storage.logs.end(name), lines, [parse_change(line) for line in lines])

    def _with_earlier_names(self, paths: Iterable[str]) -> set[str]:
        """Return the paths of notes, with those that they had before they were renamed."""
        names = set(paths)
        renames = [change for log in self._logs for change in log.changes if change and change.was is not None]
        for change in sorted(renames, key=lambda change: change.time, reverse=True) if names else ():
            if change.was is not None and change.path in names:
                names.add(change.was)
        return names

    def changes(self) -> list[Change]:
        """Return the changes. Many new versions are committed at once, before any line names them."""
        affected = self._whole | self._searched | self._cuts.keys()
        lines: dict[str, list[bytes]] = {}
        last: dict[str, tuple[NoteChange, NoteChange, str]] = {}
        for log in self._logs:
            lines[log.name] = new = []
            for raw, change in zip(log.lines, log.changes, strict=True):
                if change is None:
                    continue  # what cannot be read may have anything
                scrubbed = change
                if change.path in affected or change.was in affected:
                    scrubbed = self._scrub_change(change)
                new.append(raw if scrubbed == change else format_change(scrubbed)[:-1])
                if change.path in self._notes and (change.path not in last or last[change.path][0].time <= change.time):
                    last[change.path] = change, scrubbed, log.name
        for path, (old, new_last, name) in last.items():
            lines[name] += self._forget_line(path, old, new_last)
        return [*self._rewrites(lines), *self._writes()]

    def _forget_line(self, path: str, old: NoteChange, new: NoteChange) -> list[bytes]:
        """Return the line that says that a note lost something, if the history knows the note as it was before."""
        content = self._notes[path]
        after = None if content is None else digest_bytes(content)
        if new.after is None or (after is not None and (after != new.after or old.after == new.after)):
            return []
        change = NoteChange(new_id(), self._time, new.path, "forget", new.after, after, self._by, forgotten="all")
        return [format_change(change)[:-1]]

    def _rewrites(self, lines: Mapping[str, list[bytes]]) -> Iterator[Change]:
        named = {digest for own in lines.values() for line in own for digest in _DIGEST.findall(line)}
        stored = (info.path for info in self._storage.documents.list(OBJECTS) if info.path.endswith(_ENDING))
        unnamed = [path for path in stored if _digest_at(path).encode() not in named]
        yield from map(Erase, unnamed)
        for log in self._logs:
            if lines[log.name] != log.lines:
                yield Rewrite(log.name, lines[log.name], log.end, erase=True)
            elif unnamed:  # no other process has named one of them meanwhile
                yield Append(log.name, (), log.end)

    def _writes(self) -> list[Change]:
        writes: list[Change] = [
            Write(version_path(digest), zlib.compress(content, _LEVEL)) for digest, content in self._new.items()
        ]
        self._new = {}
        return writes

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
        loss = self._find_loss(change) if is_scrubbed else None
        return replace(
            new, before=before, after=after, forgotten=loss or ("part" if new != change else change.forgotten)
        )

    def _find_loss(self, change: NoteChange) -> Forgotten | None:
        """Return how much of what the change itself did is scrubbed. Other lines of the note do not count."""
        old_path = change.was or change.path
        before, after = (b"" if name is None else self._read_version(name) for name in (change.before, change.after))
        if before is None or after is None:
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
            content = self._read_version(digest)
            # Lines keep the hash of what cannot be read.
            scrubbed = content if content is None else self._scrub(content, path)
            self._digests[digest, path] = digest
            if scrubbed is not None and scrubbed != content:
                self.versions += 1
                self._digests[digest, path] = digest_bytes(scrubbed)
                self._new[digest_bytes(scrubbed)] = scrubbed
            if len(self._new) >= _TOGETHER:
                self._storage.commit(self._writes())
        return self._digests[digest, path]

    # texts

    def _scrub(self, data: bytes, path: str) -> bytes:
        """Return a version without what is forgotten. What is the note itself now stays as it is."""
        if self._is_present(path, data):
            return data
        if path in self._whole or (path in self._searched and self._matcher.has_words(name_words(path))):
            return b""
        text = decode(data)[0]
        edits, _ = find_cuts(text, self._cuts.get(path, ()))
        if path not in self._searched:
            return remove_lines(data, edits, "") if edits else data
        for passage in matching_passages(text, self._matcher):
            edits.setdefault((passage.start_line, passage.end_line), "")
        scrubbed = remove_lines(data, edits, "") if edits else data
        self.is_left = self.is_left or self._matcher.matches(decode(scrubbed)[0])
        return scrubbed

    def _is_present(self, path: str, data: bytes) -> bool:
        return (self._notes[path] if path in self._notes else self._read_note(path)) == data

    def _scrub_path(self, path: str) -> str:
        """Return the path of a note whose name is forgotten under another name, always the same."""
        if path not in self._whole | self._searched or not self._matcher.matches(name_words(path)):
            return path
        folder, _, name = path.rpartition("/")
        renamed = f"forgotten-{digest_of(path)[:8]}{os.path.splitext(name)[1]}"
        return f"{folder}/{renamed}" if folder else renamed


def _digest_at(path: str) -> str:
    """Return the hash of the version that a document has."""
    return path.removeprefix(OBJECTS).removesuffix(_ENDING).replace("/", "")


def _read_note(notes: Storage, path: str) -> bytes | None:
    try:
        return notes.documents.read(path).data
    except KeptError:  # it is gone, or something that is no note is in its place
        return None


def _own_texts(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Return what a change removed, and what it wrote."""
    head, tail = count_common_ends(before, after)
    return before[head : len(before) - tail], after[head : len(after) - tail]
