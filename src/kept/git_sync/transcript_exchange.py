"""Conversations of a team over git: each machine sends its own, and takes copies of those of others.

They are not in the branch of the notes. Each machine has a ref of its own in the remote for each agent, which nobody
else writes, so nothing is ever merged:

    refs/kept/conversations/main/desk     of the machine desk, agent main: one commit without a parent, with the files
        20260314T150926Z_1f0e….jsonl      a transcript
        deleted.json                      ids of the sessions that were deleted there
        machine                           random name of the machine, to tell another one that is called desk too

A commit replaces the one before, so the repository does not keep a text that was forgotten. In the repository here:

    refs/kept/received/main/desk          what was fetched last
    refs/kept/taken/main/desk             what is in the copies
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kept.clock import Clock
from kept.errors import GitSyncFailed, KeptError, PathRefused, SessionError
from kept.git_sync.committed_files import StateCache
from kept.git_sync.git_objects import FILE_MODES, CommitWriter, FileReader, Tree, TreeEntry
from kept.git_sync.repository import SyncRepository
from kept.git_sync.sync_commit import describe_transcripts
from kept.git_sync.sync_report import GitSyncReport
from kept.host_names import is_host_name
from kept.limits import printable_line
from kept.machine_id import get_machine
from kept.records import Problem
from kept.sessions.deleted import DeletedSessions
from kept.sessions.host_transcripts import HostTranscripts
from kept.sessions.transcript_paths import is_transcript, iter_transcripts, parse_transcript_name

if TYPE_CHECKING:
    from kept.config import Config

_DELETED = "deleted.json"
_MACHINE = "machine"
_MAX_LIST_BYTES = 10_000_000
_WHERE = "conversations"


class TranscriptExchange:
    """Sends and takes the conversations of one agent. Callers hold the lock of the sync."""

    def __init__(self, repository: SyncRepository, config: Config, host: str, clock: Clock) -> None:
        self._repository = repository
        self._config = config
        self._host = host
        self._clock = clock
        self._agent = config.agent_id
        self._here = HostTranscripts(config.paths, host)
        self._max_bytes = repository.settings.max_file_bytes

    def run(self, report: GitSyncReport) -> None:
        """Take what others sent, and send what is new here. What fails is reported: the notes are synchronised."""
        if not is_host_name(self._host):
            reason = f"'{self._host}' cannot be a folder's name; set sync.git.host to another name"
            report.problems.append(Problem(_WHERE, reason))
            return
        try:
            self._repository.fetch_refs(f"refs/kept/conversations/{self._agent}/", self._received(""))
            for host in self._senders():
                self._take(host, report)
            self._send(report)
        except KeptError as exc:
            report.problems.append(Problem(_WHERE, f"not exchanged: {exc.message}"))

    def _received(self, host: str) -> str:
        return f"refs/kept/received/{self._agent}/{host}"

    def _taken(self, host: str) -> str:
        return f"refs/kept/taken/{self._agent}/{host}"

    # taking

    def _senders(self) -> list[str]:
        return [name for name in self._repository.list_refs(self._received("")) if name != self._host]

    def _take(self, host: str, report: GitSyncReport) -> None:
        """Bring the copies of a machine's conversations up to date. One that cannot be taken is reported."""
        repository = self._repository
        commit, taken = repository.find_ref(self._received(host)), repository.find_ref(self._taken(host))
        try:
            self._here.names(host)
        except PathRefused as exc:
            report.problems.append(Problem(_WHERE, f"{exc.message} {exc.hint}"))
            return
        if commit is None:
            return
        tree, before = repository.tree(commit), repository.tree(taken)
        is_complete = True
        with repository.reader() as reader:
            for name, entry in sorted(tree.items()):
                if name in (_DELETED, _MACHINE) or (before.get(name) == entry and self._has(host, name)):
                    continue
                is_complete &= self._take_one(host, name, entry, reader, report)
            if commit != taken:
                self._remove_deleted(host, tree, reader, report)
        if is_complete and commit != taken:
            repository.update_refs(f"update {self._taken(host)} {commit}")

    def _has(self, host: str, name: str) -> bool:
        try:
            return os.path.lexists(self._here.path(host, name)) or self._here.find_refusal(name) is not None
        except PathRefused:
            return False

    def _take_one(self, host: str, name: str, entry: TreeEntry, reader: FileReader, report: GitSyncReport) -> bool:
        try:
            path = self._here.path(host, name)
            if entry.mode not in FILE_MODES or entry.size > self._max_bytes:
                what = "no file" if entry.mode not in FILE_MODES else f"more than {self._max_bytes:,} bytes"
                report.problems.append(Problem(printable_line(f"{host}/{name}"), f"{what}; not taken"))
                return True
            if self._here.find_refusal(name) is None:
                placed = self._here.place(host, name, reader.read_entry(entry))
                report.conversations_received += placed in ("grown", "replaced")
            return os.path.lexists(path) or self._here.find_refusal(name) is not None
        except (PathRefused, SessionError) as exc:
            report.problems.append(Problem(printable_line(f"{host}/{name}"), f"not taken: {exc.message}"))
            return isinstance(exc, PathRefused)

    def _remove_deleted(self, host: str, tree: Tree, reader: FileReader, report: GitSyncReport) -> None:
        deleted = self._read_deleted(tree, reader)
        for name in self._here.names(host):
            if name not in tree and parse_transcript_name(name)[0] in deleted:
                report.conversations_received += self._here.remove(host, name)

    def _read_deleted(self, tree: Tree, reader: FileReader) -> frozenset[str]:
        entry = tree.get(_DELETED)
        if entry is None or not 0 <= entry.size <= _MAX_LIST_BYTES:
            return frozenset()
        try:
            ids = json.loads(reader.read_entry(entry))
        except (ValueError, RecursionError):
            return frozenset()
        return frozenset(item for item in ids if isinstance(item, str)) if isinstance(ids, list) else frozenset()

    # sending

    def _send(self, report: GitSyncReport) -> None:
        repository = self._repository
        theirs = repository.find_ref(self._received(self._host))
        tree = repository.tree(theirs)
        machine = get_machine(self._config.home)
        if theirs is not None:
            with repository.reader() as reader:
                self._require_own(tree, machine, reader)
        with repository.writer() as writer:
            sent = self._put_all(writer, tree, report)
            deleted = json.dumps(sorted(self._deleted_ids())).encode()
            is_new = theirs is None or sent or self._is_changed(tree, _DELETED, deleted)
            is_new = is_new or {*tree} - {_DELETED, _MACHINE} != {name for name, _ in self._own_files()}
            if not is_new:
                return
            writer.put(_DELETED, deleted)
            writer.put(_MACHINE, f"{machine}\n".encode())
            commit = writer.commit(
                describe_transcripts(sent, agent=self._agent, host=self._host, time=self._clock.now()), []
            )
        repository.push_own_ref(commit, f"refs/kept/conversations/{self._agent}/{self._host}", replacing=theirs)
        repository.update_refs(f"update {self._received(self._host)} {commit}")
        report.conversations_sent += sent

    def _require_own(self, tree: Tree, machine: str, reader: FileReader) -> None:
        """Raise GitSyncFailed if another machine sends under the name of this one: it would replace what that sent."""
        entry = tree.get(_MACHINE)
        if entry is None or entry.size > 100 or reader.read_entry(entry).decode("utf-8", "replace").strip() != machine:
            raise GitSyncFailed(
                f"another machine that sends conversations is called '{self._host}' too. Set sync.git.host here"
            )

    def _put_all(self, writer: CommitWriter, tree: Tree, report: GitSyncReport) -> int:
        """Put all transcripts of this machine into a commit. Return how many are new or changed."""
        repository, sent = self._repository, 0
        path = os.path.join(repository.git_folder, f"kept-conversations-{self._agent}.json")
        cache = StateCache(path, repository.algorithm)
        for name, state in self._own_files():
            entry = tree.get(name)
            if state.st_size > self._max_bytes:
                report.problems.append(
                    Problem(name, f"{state.st_size:,} bytes, more than {self._max_bytes:,}; not sent")
                )
                if entry is not None:
                    writer.put(name, entry)
                continue
            if entry is not None and cache.find(name, state) == entry.oid:
                writer.put(name, entry)
                continue
            checked_ns = time.time_ns()
            data = _read_whole_lines(os.path.join(self._config.paths.sessions, name))
            if data is None:
                continue
            is_same = entry is not None and entry.oid == cache.keep(name, state, data, checked_ns)
            writer.put(name, entry if is_same else data)
            sent += not is_same
        cache.save()
        return sent

    def _own_files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            entries = sorted(iter_transcripts(self._config.paths.sessions), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            if self._can_travel(entry.name):
                yield entry.name, entry.stat(follow_symlinks=False)

    def _can_travel(self, name: str) -> bool:
        try:
            self._here.require_name(name)
        except PathRefused:
            return False
        return is_transcript(name)

    def _deleted_ids(self) -> set[str]:
        paths = self._config.paths
        here = {parse_transcript_name(name)[0] for name, _ in self._own_files()}
        return {session.id for session in DeletedSessions(paths.deleted_sessions, paths.sessions).all()} - here

    def _is_changed(self, tree: Tree, name: str, data: bytes) -> bool:
        from kept.git_sync.git_objects import object_id

        entry = tree.get(name)
        return entry is None or entry.oid != object_id(data, self._repository.algorithm)


def _read_whole_lines(path: str) -> bytes | None:
    """Return a transcript without a line that is being written, or None if it was deleted meanwhile."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    return data[: data.rfind(b"\n") + 1]
