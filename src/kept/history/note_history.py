"""`NoteHistory`: records changes of notes and reads them back.

A change is recorded in three steps, under the lock of the workspace: the version before it is stored, unless it is
stored already; the note is written; the line is appended. A process that is killed between the last two leaves a note
that differs from the history. The next sync, or the next write to that note, records the difference as made by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.clock import Clock, new_id
from kept.errors import ChangeNotFound, HistoryDamaged, KeptError
from kept.history.change_log import ChangeLog, state_after
from kept.history.digest import digest_bytes
from kept.history.history_folder import HistoryFolder
from kept.history.note_change import NoteChange, StoredText, utc_text
from kept.history.version_store import PackWriter, VersionReader, store_version
from kept.machine_id import find_machine, get_machine
from kept.workspace.change_recorder import Author, ChangeKind

if TYPE_CHECKING:
    from kept.config import Config
    from kept.workspace.workspace import Workspace

_MIN_PREFIX = 4


class NoteHistory:
    """History of the notes of one workspace. Writers hold the lock of the workspace; readers need none."""

    def __init__(self, workspace: Workspace, home: str, clock: Clock, *, uses_git: bool = False) -> None:
        self.workspace = workspace
        self.uses_git = uses_git
        """True to commit every change that is recorded for an author."""
        self.clock = clock
        self.folder = HistoryFolder(workspace)
        self._home = home
        self._log: ChangeLog | None = None
        self._versions: VersionReader | None = None

    @property
    def log(self) -> ChangeLog:
        if self._log is None:
            self._log = ChangeLog(self.folder, find_machine(self._home))
        return self._log

    def require_machine(self) -> str:
        """Return the name of this machine, for the first change that it records."""
        self.log.machine = self.log.machine or get_machine(self._home)
        return self.log.machine

    @property
    def versions(self) -> VersionReader:
        if self._versions is None:
            self._versions = VersionReader(self.log)
        return self._versions

    @property
    def packs(self) -> PackWriter:
        return PackWriter(self.folder, self.require_machine())

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
        """Return the change with this id, or with the only id that begins so. Raise ChangeNotFound."""
        (change,) = self.find_changes([change_id])
        return change

    def find_changes(self, ids: Sequence[str]) -> list[NoteChange]:
        """Return the changes with these ids, or beginnings of ids, newest first. Raise ChangeNotFound."""
        prefixes = tuple(ids)
        matches: dict[str, NoteChange] = {}
        for change in self.iter_changes():
            if change.id.startswith(prefixes):
                matches[change.id] = change
        for prefix in prefixes:
            names = [prefix] if prefix in matches else [name for name in matches if name.startswith(prefix)]
            if len(prefix) < _MIN_PREFIX or not names:
                raise ChangeNotFound(f"There is no change '{prefix}'.")
            if len(names) > 1:
                raise ChangeNotFound(f"{len(names)} changes begin with '{prefix}'.", hint="Write more of the id.")
        return list(matches.values())

    def read_version(self, digest: str | None) -> bytes | None:
        """Return the bytes of a version, or None for a note that did not exist. Raise HistoryDamaged."""
        return None if digest is None else self.versions.read(digest)

    # recording

    def recorder(self, by: Author, *, why: str = "", undoes: tuple[str, ...] = ()) -> HistoryRecorder:
        """Return the recorder for one author."""
        return HistoryRecorder(self, by, why=why, undoes=undoes)

    def new_change(
        self, path: str, before: str | None, after: str | None, *, kind: ChangeKind, by: Author | None = None
    ) -> NoteChange:
        return NoteChange(new_id(), utc_text(self.clock.now()), path, kind, before, after, by or Author())

    def tail_of(self, path: str, content: bytes | None) -> NoteChange | None:
        """Return the last change of a note on this machine, if it led to ``content``, the note as it is now.

        If the history does not know this content, another program has written the note, or the note is older than
        the history: that is recorded first.
        """
        own, others = self.find_last(path)
        digest = None if content is None else digest_bytes(content)
        known = [change for change in (own, *others) if change is not None]
        if not known and content is None:
            return None
        for change in known:
            if state_after(change, path) == digest:
                return own if change is own else None
        last = max(known, key=lambda change: change.time, default=None)
        before = None if last is None else state_after(last, path)
        change = self.new_change(path, before, digest, kind="baseline" if last is None else "by_hand")
        if content is not None:
            change = replace(change, stored=self.store(content, base=own if last is own else None))
        self.append([change])
        return change

    def find_last(self, path: str) -> tuple[NoteChange | None, list[NoteChange]]:
        """Return the last change of a note on this machine, and the last on each other machine."""
        return self.log.find_last(path)

    def append(self, changes: list[NoteChange]) -> None:
        """Append the lines of changes. The caller holds the lock of the workspace."""
        self.require_machine()
        self.log.append(changes)

    def store(
        self,
        content: bytes,
        *,
        base: NoteChange | None,
        before: bytes | None = None,
        packs: PackWriter | None = None,
    ) -> StoredText:
        """Store a version, as a difference to the version after ``base`` if there is one and it can be read.

        With ``packs``, the caller flushes them before it appends the line of the change.
        """
        writer = packs or self.packs
        if base is None or base.stored is None or base.after is None:
            before = None
        elif before is None:
            try:
                before = self.versions.read(base.after)
            except HistoryDamaged:
                pass
        stored = store_version(writer, before, content, base.stored if base and before is not None else None)
        if packs is None:
            writer.flush()
        return stored


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
    return NoteHistory(workspace, config.home, clock, uses_git=config.agent.history.git)


class HistoryRecorder:
    """Records the changes of one author. A failure never stops a write: it becomes a notice."""

    def __init__(self, history: NoteHistory, by: Author, *, why: str, undoes: tuple[str, ...]) -> None:
        self._history = history
        self._by = by
        self._why = why
        self._undoes = undoes
        self.notices: list[str] = []
        self.changes: list[NoteChange] = []
        """Changes that were recorded."""

    @contextmanager
    def writing(
        self, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind, was: str | None = None
    ) -> Iterator[None]:
        base: NoteChange | None = None
        is_ready = True
        try:
            base = self._history.tail_of(was or path, before)
        except KeptError as exc:
            is_ready = False
            self._report(path, exc)
        yield
        if not is_ready:
            return
        try:
            self._record(path, before, after, kind=kind, was=was, base=base)
        except KeptError as exc:
            self._report(path, exc)
        else:
            self._commit(path, was)

    def _record(
        self,
        path: str,
        before: bytes | None,
        after: bytes | None,
        *,
        kind: ChangeKind,
        was: str | None,
        base: NoteChange | None,
    ) -> None:
        history = self._history
        change = history.new_change(
            path,
            None if before is None else digest_bytes(before),
            None if after is None else digest_bytes(after),
            kind=kind,
            by=self._by,
        )
        change = replace(change, why=self._why, was=was, undoes=self._undoes)
        if base is not None and after is not None and base.after == change.after:  # renamed
            change = replace(change, stored=base.stored)
        elif after is not None:
            change = replace(change, stored=history.store(after, base=base, before=before))
        history.append([change])
        self.changes.append(change)

    def _commit(self, path: str, was: str | None) -> None:
        if not self._history.uses_git:
            return
        from kept.history.git_commits import commit_note, is_repository

        root = self._history.workspace.root
        if is_repository(root):
            names = [path] if was is None else [path, was]
            reasons = [commit_note(root, name, self.changes[-1:]) for name in names]
            self.notices += [reason for reason in reasons if reason is not None]

    def _report(self, path: str, exc: KeptError) -> None:
        self.notices.append(f"The change of {path} is not in the history: {exc.message}")
