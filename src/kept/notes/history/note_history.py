"""`NoteHistory`: records changes of notes and reads them back.

A change is recorded in steps, under the lock of the workspace: the version before it is stored, unless it is stored
already; the note is written; the version after it is stored; the line is appended. A process that is killed before the
last leaves a note that differs from the history. The next sync, or the next write to that note, records the difference
as made by hand.

The lines are appended at the end, read from the end, and searched by path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.clock import Clock, new_id
from kept.base.digest import digest_bytes
from kept.base.durable import write_atomic
from kept.errors import HistoryDamaged, KeptError, NotFound
from kept.notes.change_recorder import Author, ChangeKind
from kept.notes.history.history_folder import CHANGES, HistoryFolder, VersionStore
from kept.notes.history.note_change import NoteChange, format_change, parse_change, utc_text

if TYPE_CHECKING:
    from kept.config import Config
    from kept.notes.workspace import Workspace

ENDING = ".jsonl"
_OLDER_LINES = 64
"""Lines of an earlier time after which a reader stops: a clock may have been set back."""


class ChangeLog:
    """All lines of the history. Those of this machine can be appended to; each machine has a file of its own.

    A line that cannot be read is skipped, so the rest is still served.
    """

    def __init__(self, folder: HistoryFolder, machine: str) -> None:
        self.folder = folder
        self.machine = machine

    @property
    def own_name(self) -> str:
        return f"{self.machine}{ENDING}"

    def names(self) -> list[str]:
        return self.folder.names(CHANGES, ENDING)

    def append(self, changes: list[NoteChange]) -> None:
        """Append lines and return when they are on disk. The caller holds the lock of the workspace."""
        lead = b""
        with self.folder.reading(CHANGES, self.own_name) as handle:
            if handle is not None and (size := os.fstat(handle).st_size):
                # A line that a crash cut short stays a line by itself.
                lead = b"" if os.pread(handle, 1, size - 1) == b"\n" else b"\n"
        self.folder.append(CHANGES, self.own_name, lead + b"".join(map(format_change, changes)))

    def iter_newest(self, *, since: str | None = None) -> Iterator[NoteChange]:
        """Yield changes, newest first. Only the last lines of each file are parsed for the changes since a time."""
        import heapq  # not needed to record a change

        files = [self._iter_file(name, since) for name in self.names()]
        seen: set[str] = set()
        for change in heapq.merge(*files, key=lambda change: change.time, reverse=True):
            if change.id not in seen:  # a copy that a synchronising program made of a file
                seen.add(change.id)
                yield change

    def iter_oldest(self, name: str) -> Iterator[NoteChange | None]:
        """Yield the change of each line of a file in order, None for a damaged line."""
        for line in self.folder.read(CHANGES, name).split(b"\n"):
            if line and not line.startswith(b'{"rewritten": '):
                yield parse_change(line)

    def find_last(self, path: str) -> tuple[NoteChange | None, list[NoteChange]]:
        """Return the last change of a note on this machine, and the last on each other machine."""
        patterns = _patterns(path)
        own: NoteChange | None = None
        others: list[NoteChange] = []
        for name in self.names():
            change = self._find_last_in(name, path, patterns)
            if name == self.own_name:
                own = change
            elif change is not None:
                others.append(change)
        return own, others

    def _iter_file(self, name: str, since: str | None) -> Iterator[NoteChange]:
        older = 0
        for line in reversed(self.folder.read(CHANGES, name).split(b"\n")):
            change = parse_change(line)
            if change is None:
                continue
            if since is None or change.time >= since:
                older = 0
                yield change
                continue
            older += 1
            if older > _OLDER_LINES:
                return

    def _find_last_in(self, name: str, path: str, patterns: tuple[bytes, ...]) -> NoteChange | None:
        data = self.folder.read(CHANGES, name)
        end = len(data)
        while (match := max(data.rfind(pattern, 0, end) for pattern in patterns)) >= 0:
            stop, end = data.find(b"\n", match), data.rfind(b"\n", 0, match) + 1
            change = parse_change(data[end : stop if stop >= 0 else None])
            if change is not None and path in (change.path, change.was):
                return change
        return None


def state_after(change: NoteChange, path: str) -> str | None:
    """Return the hash of a note after the change, or None if there is no note at that path."""
    return change.after if change.path == path else None


def _patterns(path: str) -> tuple[bytes, ...]:
    quoted = json.dumps(path, ensure_ascii=False).encode("utf-8", "replace")
    return b'"path":' + quoted, b'"was":' + quoted


# the history

_MIN_PREFIX = 4


class NoteHistory:
    """History of the notes of one workspace. Writers hold the lock of the workspace; readers need none."""

    def __init__(self, workspace: Workspace, home: str, clock: Clock) -> None:
        self.workspace = workspace
        self.clock = clock
        self.folder = HistoryFolder(workspace)
        self.versions = VersionStore(self.folder)
        self._home = home
        self._log: ChangeLog | None = None

    @property
    def log(self) -> ChangeLog:
        if self._log is None:
            self._log = ChangeLog(self.folder, find_machine(self._home))
        return self._log

    def require_machine(self) -> str:
        """Return the name of this machine, for the first change that it records."""
        self.log.machine = self.log.machine or get_machine(self._home)
        return self.log.machine

    # reading

    def iter_changes(
        self, *, since: str | None = None, path: str | None = None, by: str | None = None, session: str | None = None
    ) -> Iterator[NoteChange]:
        """Yield changes, newest first, without the baseline.

        ``since`` is a time as `utc_text` writes it. ``by`` is an agent, tool, person or client. ``session`` is an id
        or the beginning of one.
        """
        undone: set[str] = set()
        for entry in self.log.iter_newest(since=since):
            change = entry
            if entry.id in undone:
                change = replace(entry, is_undone=True)
            elif entry.undoes:
                undone.update(entry.undoes)
            if (
                change.kind != "baseline"
                and (path is None or path in (change.path, change.was))
                and (by is None or by in (change.by.agent, change.by.tool, change.by.person, change.by.client))
                and (session is None or (change.by.session or "").startswith(session))
            ):
                yield change

    def get_change(self, change_id: str) -> NoteChange:
        """Return the change with this id, or with the only id that begins so. Raise NotFound."""
        (change,) = self.find_changes([change_id])
        return change

    def find_changes(self, ids: Sequence[str]) -> list[NoteChange]:
        """Return the changes with these ids, or beginnings of ids, newest first. Raise NotFound."""
        prefixes = tuple(ids)
        matches: dict[str, NoteChange] = {}
        for change in self.iter_changes():
            if change.id.startswith(prefixes):
                matches[change.id] = change
        for prefix in prefixes:
            names = [prefix] if prefix in matches else [name for name in matches if name.startswith(prefix)]
            if len(prefix) < _MIN_PREFIX or not names:
                raise NotFound(f"There is no change '{prefix}'.", hint="'kept history' lists the changes.")
            if len(names) > 1:
                raise NotFound(f"{len(names)} changes begin with '{prefix}'.", hint="Write more of the id.")
        return list(matches.values())

    def read_version(self, digest: str | None) -> bytes | None:
        """Return the bytes of a version, or None for a note that did not exist. Raise HistoryDamaged."""
        return None if digest is None else self.versions.read(digest)

    def diff(self, change: NoteChange) -> str:
        """Return the unified diff of a change. A version that cannot be read is named instead."""
        from kept.notes.history.line_changes import diff_versions

        try:
            before, after = self.read_version(change.before), self.read_version(change.after)
        except HistoryDamaged as exc:
            return f"({exc.message})\n"
        diff = diff_versions(before, after, change.was or change.path, change.path)
        return f"{diff}(text of this change was forgotten)\n" if change.forgotten else diff

    # recording

    def recorder(self, by: Author, *, why: str = "", undoes: tuple[str, ...] = ()) -> HistoryRecorder:
        """Return the recorder for one author."""
        return HistoryRecorder(self, by, why=why, undoes=undoes)

    def new_change(
        self, path: str, before: str | None, after: str | None, *, kind: ChangeKind, by: Author | None = None
    ) -> NoteChange:
        return NoteChange(new_id(), utc_text(self.clock.now()), path, kind, before, after, by or Author())

    def record_unknown(self, path: str, content: bytes | None) -> None:
        """Store a note as it is now, and record it if the history does not know it so.

        Then another program has written the note, or the note is older than the history.
        """
        if content is not None:
            self.versions.put([content])
        own, others = self.log.find_last(path)
        digest = None if content is None else digest_bytes(content)
        known = [change for change in (own, *others) if change is not None]
        if any(state_after(change, path) == digest for change in known) or (not known and content is None):
            return
        last = max(known, key=lambda change: change.time, default=None)
        before = None if last is None else state_after(last, path)
        self.append([self.new_change(path, before, digest, kind="baseline" if last is None else "by_hand")])

    def append(self, changes: list[NoteChange]) -> None:
        """Append the lines of changes. The caller holds the lock of the workspace."""
        self.require_machine()
        self.log.append(changes)


def open_recorder(
    config: Config, workspace: Workspace, clock: Clock, author: Author, *, why: str = ""
) -> HistoryRecorder | None:
    """Return the recorder for changes by an author, or None if the settings turn the history off."""
    if not config.agent.history.enabled:
        return None
    return open_history(config, workspace, clock).recorder(author, why=why)


def python_author(config: Config) -> Author:
    """Return the author of changes by a program that names none."""
    return Author(config.agent_id, tool="python")


def open_history(config: Config, workspace: Workspace, clock: Clock) -> NoteHistory:
    return NoteHistory(workspace, config.home, clock)


class HistoryRecorder:
    """Records the changes of one author. A failure never stops a write: it becomes a notice."""

    def __init__(self, history: NoteHistory, by: Author, *, why: str, undoes: tuple[str, ...]) -> None:
        self._history = history
        self._by = by
        self._why = why
        self._undoes = undoes
        self.next_id = new_id()
        """Id of the change that is recorded next."""
        self._part_of: str | None = None
        """Id of the change that the next one is a part of."""
        self.notices: list[str] = []
        self.changes: list[NoteChange] = []
        """Changes that were recorded."""

    @contextmanager
    def writing(
        self, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind, was: str | None = None
    ) -> Iterator[None]:
        is_ready = True
        try:
            self._history.record_unknown(was or path, before)
        except KeptError as exc:
            is_ready = False
            self._report(path, exc)
        yield
        if not is_ready:
            return
        try:
            self._record(path, before, after, kind=kind, was=was)
        except KeptError as exc:
            self._report(path, exc)

    def _record(
        self, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind, was: str | None
    ) -> None:
        history = self._history
        old, new = (None if content is None else digest_bytes(content) for content in (before, after))
        change = replace(
            history.new_change(path, old, new, kind=kind, by=self._by),
            id=self.next_id,
            why=self._why,
            was=was,
            undoes=self._undoes,
            part_of=self._part_of,
        )
        self.next_id, self._part_of = new_id(), None
        if after is not None:
            history.versions.put([after])
        history.append([change])
        self.changes.append(change)

    def join(self) -> None:
        self._part_of = self.changes[-1].id if self.changes else None

    def _report(self, path: str, exc: KeptError) -> None:
        self.notices.append(f"The change of {path} is not in the history: {exc.message}")


# the name of this machine

MACHINE_FILE = "machine-id"


def find_machine(home: str) -> str:
    """Return the random name of this machine, which the home folder keeps; empty if there is none yet."""
    path = os.path.join(home, MACHINE_FILE)
    try:
        with open(path, "rb", buffering=0) as file:
            name = (file.read(64) or b"").strip().decode("utf-8", "replace")
        return name if name.isascii() and name.isalnum() else ""
    except OSError:
        return ""


def get_machine(home: str) -> str:
    """Return the random name of this machine. Create it if there is none."""
    name = find_machine(home)
    if not name:
        name = new_id()
        write_atomic(os.path.join(home, MACHINE_FILE), f"{name}\n".encode())
    return name
