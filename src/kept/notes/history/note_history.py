"""Changes of notes as values and as lines; `NoteHistory`, which plans the lines and versions that record them; and
`commit_notes`, which writes notes together with their history. If another program wrote a note, the history
does not know it so: the next write to that note, or the next sync, records the difference as made by hand.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import dropwhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from kept.base.clock import Clock, new_id
from kept.base.digest import digest_bytes
from kept.base.json_values import from_tree, to_tree
from kept.base.records import ENTRY_RULE, Written
from kept.base.values import frozen
from kept.errors import (
    DocumentNotFound,
    HistoryDamaged,
    KeptError,
    LeaseLost,
    LockBusy,
    NotFound,
    StorageConflict,
    UsageError,
    WorkspaceError,
    WriteUnfinished,
)
from kept.storage.contract import ABSENT, Append, Change, LogLine, LogPosition, Move, Remove, Storage, Write, version_of
from kept.storage.open import open_home

if TYPE_CHECKING:
    from kept.config import Config
    from kept.notes.workspace import Workspace

HISTORY_FOLDER = ".kept/history"
CHANGES = f"{HISTORY_FOLDER}/changes/"
OBJECTS = f"{HISTORY_FOLDER}/objects/"
MAX_VERSION_BYTES = 1 << 30
VERSION_ENDING = ".z"
_LOG_ENDING = ".jsonl"
MACHINE_ID = "machine-id"
VERSION_LEVEL = 1
"""Compression level: levels above it take far more CPU time for a few per cent of space."""
_OLDER_LINES = 64
"""Lines of an earlier time after which a reader stops: a clock may have been set back."""
_MIN_PREFIX = 4
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_DIGEST = r"[0-9a-f]{64}"
_MAX_WHY_CHARS = 1_000


# changes and their lines

Forgotten = Literal["part", "all"]
ChangeKind = Literal["baseline", "add", "edit", "remove", "rename", "import", "undo", "by_hand", "forget"]
"""Kind of a change. ``baseline``: the note as it was when the history first saw it. ``by_hand``: made by another
program, such as an editor, and noticed afterwards. ``forget``: it removed a text for good, and cannot be taken back."""


@frozen
class Author:
    """The author of a change. Every part may be missing."""

    agent: str | None = None
    """Id of the agent whose memory was changed."""
    session: str | None = None
    tool: str | None = None
    """Tool or command that wrote, such as ``memory_write`` or ``kept add``."""
    person: str | None = None
    client: str | None = None
    """Program that called the tool, such as an MCP client."""

    @property
    def description(self) -> str:
        """Who it was, for people: the client or the person, and the tool; or else the agent."""
        names = [name for name in (self.client or self.person, self.tool) if name]
        return ", ".join(names) or self.agent or "another program"


@frozen
class NoteChange:
    """A change of a note. ``before`` and ``after`` are the SHA-256 of its bytes, or None if there was no note."""

    id: str
    time: str
    """UTC, such as 2026-11-16T09:30:00.000Z, so that times can be compared as text."""
    path: str
    kind: str
    before: str | None
    after: str | None
    by: Author = Author()
    why: str = ""
    was: str | None = None
    """Old path, if the note was renamed."""
    undoes: tuple[str, ...] = field(default=())
    """Ids of the changes that this one takes back."""
    part_of: str | None = None
    """Id of an earlier change that is taken back together with this one: both are one replacement."""
    forgotten: Forgotten | None = None
    """True if a part or all of what the change did was forgotten: its versions are not those of then."""
    is_undone: bool = False
    """True if a later change took this one back. Not part of the line."""

    @property
    def is_forgotten(self) -> bool:
        """Return whether all that the change did was forgotten."""
        return self.forgotten == "all"

    @property
    def when(self) -> dt.datetime:
        """Return the time of the change, in the local time zone."""
        return dt.datetime.fromisoformat(self.time).astimezone()


def utc_text(when: dt.datetime) -> str:
    return when.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


def format_change(change: NoteChange) -> bytes:
    """Return the line of a change. Keys are in order and without spaces: `NoteHistory` searches for their bytes."""
    tree = to_tree(replace(change, why=change.why[:_MAX_WHY_CHARS], is_undone=False))
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def parse_change(line: bytes) -> NoteChange | None:
    """Return the change of a line, or None if the line is damaged."""
    try:
        change = from_tree(NoteChange, json.loads(line))
    except (ValueError, RecursionError):
        return None
    is_sound = re.fullmatch(_TIME, change.time) and all(
        digest is None or re.fullmatch(_DIGEST, digest) for digest in (change.before, change.after)
    )
    return change if is_sound else None


# the history of a workspace


@frozen
class NoteHistory:
    """History of the notes of one workspace. A line that cannot be read is skipped, so the rest is still served."""

    config: Config
    workspace: Workspace
    clock: Clock

    # lines

    def own_log(self) -> str:
        """Return the log of this machine. Each machine has one, so that histories that are brought together never
        conflict. Its name is random, and the home keeps it. One that is missing or damaged is made anew."""
        home = open_home(self.config)
        while True:
            expected = None if home.documents.find(MACHINE_ID) else ABSENT
            with suppress(WorkspaceError):
                name = b"" if expected == ABSENT else home.documents.read(MACHINE_ID, max_bytes=64).data.strip()
                if name.isalnum():  # ASCII, of bytes
                    return f"{CHANGES}{name.decode()}{_LOG_ENDING}"
            with suppress(StorageConflict):  # another process was faster
                home.commit([Write(MACHINE_ID, f"{new_id()}\n".encode(), expected)])

    def logs(self) -> list[str]:
        """Return the logs of all machines."""
        return [info.name for info in self.workspace.storage.logs.list(CHANGES) if info.name.endswith(_LOG_ENDING)]

    def find_states(self, path: str) -> list[str | None]:
        """Return the hash of a note after its last change on each machine, the latest first; None if there was no note
        at that path any more."""
        quoted = json.dumps(path, ensure_ascii=False).encode("utf-8", "replace")
        states: list[tuple[str, str | None]] = []
        for log in self.logs():
            for line in self.workspace.storage.logs.read_back(log, having=(b'"path":' + quoted, b'"was":' + quoted)):
                change = parse_change(line.data)
                if change is not None and path in (change.path, change.was):
                    states.append((change.time, change.after if change.path == path else None))
                    break
        return [state for _, state in sorted(states, key=itemgetter(0), reverse=True)]

    def find_by_id(self, change_id: str) -> NoteChange | None:
        """Return the change with exactly this id. Only lines that have its bytes are parsed."""
        for log in self.logs():
            for line in self.workspace.storage.logs.read_back(log, having=[f'"id":"{change_id}"'.encode()]):
                change = parse_change(line.data)
                if change is not None and change.id == change_id:
                    return change
        return None

    def iter_newest(self, since: str | None = None) -> Iterator[NoteChange]:
        """Yield changes, newest first. Only the last lines of each log are parsed for the changes since a time."""
        import heapq  # not needed to record a change

        logs = [_newest_first(self.workspace.storage.logs.read_back(log), since) for log in self.logs()]
        seen: set[str] = set()
        for change in heapq.merge(*logs, key=lambda change: change.time, reverse=True):
            if change.id not in seen:  # a copy that a synchronising program made of a file
                seen.add(change.id)
                yield change

    def iter_changes(
        self, *, since: str | None = None, path: str | None = None, by: str | None = None, session: str | None = None
    ) -> Iterator[NoteChange]:
        """Yield changes, newest first, without the baseline.

        ``since`` is a time as `utc_text` writes it. ``by`` is an agent, tool, person or client. ``session`` is an id
        or the beginning of one.
        """
        undone: set[str] = set()
        for entry in self.iter_newest(since):
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

    # versions: each note as it was, compressed, in a document named by the SHA-256 of its bytes

    def read_version(self, digest: str | None) -> bytes | None:
        """Return the bytes of a version, or None for a note that did not exist. Raise HistoryDamaged."""
        return None if digest is None else read_version(self.workspace.storage, digest)

    def diff(self, change: NoteChange) -> str:
        """Return the unified diff of a change. A version that cannot be read is named instead."""
        from kept.notes.history.line_changes import diff_versions

        try:
            before, after = self.read_version(change.before), self.read_version(change.after)
        except HistoryDamaged as exc:
            return f"({exc.message})\n"
        diff = diff_versions(before, after, change.was or change.path, change.path)
        return f"{diff}(text of this change was forgotten)\n" if change.forgotten else diff

    # planning

    def new_change(
        self,
        path: str,
        before: str | None,
        after: str | None,
        *,
        kind: ChangeKind,
        change_id: str | None = None,
        **details: Any,
    ) -> NoteChange:
        """Return a change that is made now. ``details`` are further fields of it."""
        return NoteChange(change_id or new_id(), utc_text(self.clock.now()), path, kind, before, after, **details)

    def plan(
        self, changes: Sequence[NoteChange], contents: Iterable[bytes], log: str, expected_end: LogPosition
    ) -> list[Change]:
        """Return what to commit for changes: the versions that are missing, and their lines at the end of a log."""
        import zlib

        planned: dict[str, Change] = {}
        for content in contents:
            digest = digest_bytes(content)
            if digest not in planned and not self.workspace.storage.documents.find(version_path(digest)):
                planned[digest] = Write(version_path(digest), zlib.compress(content, VERSION_LEVEL))
        lines = [format_change(change) for change in changes]
        return [*planned.values(), Append(log, lines, expected_end)]


def _newest_first(lines: Iterable[LogLine], since: str | None) -> Iterator[NoteChange]:
    older = 0
    for line in lines:
        change = parse_change(line.data)
        if change is None:
            continue
        if since is None or change.time >= since:
            older = 0
            yield change
            continue
        older += 1
        if older > _OLDER_LINES:
            return


def version_path(digest: str) -> str:
    return f"{OBJECTS}{digest[:2]}/{digest[2:]}{VERSION_ENDING}"


def read_version(notes: Storage, digest: str) -> bytes:
    """Return the bytes of a version. Raise HistoryDamaged."""
    import zlib

    try:
        packed = notes.documents.read(version_path(digest)).data
    except DocumentNotFound:
        raise HistoryDamaged(f"The version {digest[:12]} of a note is missing from the history.") from None
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(packed, MAX_VERSION_BYTES)
    except zlib.error as exc:
        raise HistoryDamaged(f"The version {digest[:12]} of a note cannot be read ({exc}).") from exc
    if not unpacker.eof or digest_bytes(content) != digest:
        raise HistoryDamaged(f"The version {digest[:12]} of a note is damaged.")
    return content


# writing notes: one commit has the notes and the lines that tell who changed them, and why
#
# Callers read notes and plan edits, without writing anything; a preview is a plan that is not committed. If another
# process was faster, they plan again: see `retried` in `storage.contract`.


@frozen
class NoteEdit:
    """A note as it was read, and as it should be. None stands for a note that does not exist."""

    path: str
    before: bytes | None
    after: bytes | None
    kind: ChangeKind
    was: str | None = None
    """Present path of a note that gets another one."""
    undoes: tuple[str, ...] = ()
    """Ids of the changes that it takes back."""
    is_part: bool = False
    """True if it is taken back together with the edit before it."""
    modified_ns: int = 0
    """Time of a note that is copied from elsewhere."""


def _sets_apart(line: bytes) -> bool:
    return not line.strip() or line.startswith(b"# ") or line.strip() == ENTRY_RULE.encode()


@frozen
class HistoryRecorder:
    """Records the changes of one author in the history."""

    history: NoteHistory
    by: Author
    """Without an agent, it is that of the history."""
    why: str = ""
    change_id: str | None = None
    """Id of the first change, by which a second attempt is known."""

    def find_written(self) -> Written | None:
        """Return the lines that an earlier attempt added to its note, as they were numbered then, or None."""
        from kept.notes.history.line_changes import count_common_ends, split_lines

        if self.change_id and not re.fullmatch("[0-9a-f]{16}", self.change_id):
            hint = "Use 16 hexadecimal digits, chosen at random."
            raise UsageError(f"change_id is {self.change_id!r:.80}.", hint=hint)
        earlier = self.history.find_by_id(self.change_id) if self.change_id else None
        if earlier is None:
            return None
        versions = (self.history.read_version(digest) or b"" for digest in (earlier.before, earlier.after))
        before, after = map(split_lines, versions)
        first, last = count_common_ends(before, after)
        added = after[first : len(after) - last]
        # Not the title of a new note, nor what sets an entry apart from the one before.
        first += len(added) - len([*dropwhile(_sets_apart, added)])
        return Written(earlier.path, first + 1, max(first + 1, len(after) - last))

    def plan(self, edits: Sequence[NoteEdit]) -> tuple[list[NoteChange], list[Change]]:
        """Return the changes that edits make, and what to commit for them."""
        history = self.history
        by = self.by if self.by.agent else replace(self.by, agent=history.config.agent_id)
        log = history.own_log()
        end = history.workspace.storage.logs.end(log)
        lines: list[NoteChange] = []
        changes: list[NoteChange] = []
        for edit in edits:
            path = edit.was or edit.path
            old, new = (None if content is None else digest_bytes(content) for content in (edit.before, edit.after))
            known = history.find_states(path)
            # Another program has written the note, or it is older than the history.
            if (known or old) and old not in known:
                kind: ChangeKind = "by_hand" if known else "baseline"
                lines.append(history.new_change(path, known[0] if known else None, old, kind=kind))
            part_of = changes[-1].id if edit.is_part and changes else None
            more = {"by": by, "why": self.why, "was": edit.was, "undoes": edit.undoes, "part_of": part_of}
            change_id = None if changes else self.change_id
            changes.append(history.new_change(edit.path, old, new, kind=edit.kind, change_id=change_id, **more))
            lines.append(changes[-1])
        contents = [content for edit in edits for content in (edit.before, edit.after) if content is not None]
        return changes, history.plan(lines, contents, log, end)


def open_recorder(
    config: Config, workspace: Workspace, clock: Clock, author: Author, *, why: str = "", change_id: str | None = None
) -> HistoryRecorder | None:
    """Return the recorder for changes by an author, or None if the settings turn the history off."""
    if not config.agent.history.enabled:
        return None
    return HistoryRecorder(NoteHistory(config, workspace, clock), author, why, change_id)


def python_author(config: Config) -> Author:
    """Return the author of changes by a program that names none."""
    return Author(config.agent_id, tool="python")


def commit_notes(
    workspace: Workspace,
    edits: Sequence[NoteEdit],
    recorder: HistoryRecorder | None,
    *,
    also: Callable[[Sequence[NoteChange]], Sequence[Change]] = lambda changes: (),
) -> tuple[tuple[NoteChange, ...], tuple[str, ...]]:
    """Write notes and their history, with what ``also`` returns for the recorded changes. Raise StorageConflict.

    Return the changes that the history has, and notices: a history that cannot be written never stops a write, so then
    the notes are written alone.
    """
    notices: tuple[str, ...] = ()
    notes: list[Change] = []
    for edit in edits:
        expected = ABSENT if edit.before is None else version_of(edit.before)
        if edit.was is not None:
            notes.append(Move(edit.was, edit.path, expected))
        elif edit.after is None:
            notes.append(Remove(edit.path, expected))
        else:
            notes.append(Write(edit.path, edit.after, expected, modified_ns=edit.modified_ns))
    # What is removed comes last, also of what the caller adds: a storage that fails on the way can take back additions.
    if recorder is not None:
        try:
            changes, recorded = recorder.plan(edits)
            planned = [*recorded, *also(changes), *notes]
            workspace.storage.commit(sorted(planned, key=lambda change: isinstance(change, Remove)))
            return tuple(changes), ()
        except (StorageConflict, LockBusy, LeaseLost, WriteUnfinished):  # which say nothing of the history
            raise
        except KeptError as exc:
            notices = tuple(f"The change of {edit.path} is not in the history: {exc.message}" for edit in edits)
    workspace.storage.commit(sorted([*also(()), *notes], key=lambda change: isinstance(change, Remove)))
    return (), notices
