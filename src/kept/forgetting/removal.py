"""Removes the places of an order: one commit in the workspace, one in the agent's storage, then the derived files.

Each step can be done again, after a crash or because something was busy. Canonical files come first. The index is
brought up to date before it is written anew without free pages, so that no embedding is paid for twice.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kept.base.clock import Clock
from kept.base.durable import erase_file, is_abandoned, is_temporary
from kept.base.sqlite import rewrite_database
from kept.base.values import frozen
from kept.config import Config
from kept.errors import DocumentNotFound, KeptError, LockBusy, PathRefused, SessionNotFound, StorageConflict, StoreError
from kept.forgetting.needles import Matcher, Needles
from kept.forgetting.old_versions import HistoryScrub
from kept.forgetting.passages import find_cuts
from kept.forgetting.places import (
    DISPLACED,
    LARGEST_NOTE,
    SCHEDULES,
    find_mentioned,
    inbox_keys,
    iter_raw,
    read_document,
    read_lines,
    read_tree,
    schedules_in,
    scrub_record,
    sessions_prefix,
)
from kept.forgetting.plan import ForgetOrder, Outcome, Place, digest_of
from kept.forgetting.receipt import iter_all_files
from kept.index.sqlite.integrity import read_owner, scrub_index
from kept.notes.history.note_change import Author, utc_text
from kept.notes.line_edit import remove_lines
from kept.notes.note_text import decode
from kept.notes.workspace import Workspace
from kept.search.service import IndexService
from kept.sessions.attachments import ATTACHMENTS, STORED_NAME
from kept.sessions.catalogue import Catalogue
from kept.sessions.forgotten_text import Matches, blank_line, renew_receipts
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Transcripts
from kept.sessions.transcript_paths import CITED_FOLDER, cite_transcript, is_transcript_citation, parse_transcript_name
from kept.storage.contract import Blank, Change, Erase, LogPosition, Storage, Write, is_log, version_of
from kept.storage.open import INBOX, INBOX_LEASE

_ATTEMPTS = 5
_GRACE_NS = 10_000_000_000
"""Age below which a file may belong to a message that is about to be accepted."""
_GATEWAY_RUNS = "the inbox of the gateway that is running; forget it again when the gateway has stopped"

BlankInbox = Callable[[Matches, frozenset[str]], int]
"""Takes texts that match out of the conversations with some keys, in the inbox of this process."""


@frozen
class Removal:
    config: Config
    workspace: Workspace
    service: IndexService
    clock: Clock
    order: ForgetOrder
    notes: Storage
    agent: Storage
    inbox: BlankInbox | None = None

    def steps(self) -> dict[str, Callable[[Outcome], None]]:
        return {
            "notes": self.change_workspace,
            "conversations": self._change_agent,
            "inbox": self._change_inbox,
            "attachments": self._erase_attachments,
            "catalogue": self._scrub_catalogue,
            "index": self._scrub_indexes,
            "qmd": self._erase_qmd,
            "leftovers": self._erase_leftovers,
        }

    def _commit(self, storage: Storage, outcome: Outcome, plan: Callable[[Outcome], list[Change]]) -> None:
        """Commit what is planned. Plan again if another process has changed something meanwhile."""
        for left in reversed(range(_ATTEMPTS)):
            attempt = Outcome()
            try:
                if changes := plan(attempt):
                    storage.commit(changes)
                outcome.add(attempt)
                return
            except StorageConflict:
                if not left:
                    raise

    # the workspace: notes, their history, and proposals

    def change_workspace(self, outcome: Outcome) -> None:
        self.workspace.require()
        self._commit(self.notes, outcome, self._plan_workspace)

    def _plan_workspace(self, outcome: Outcome) -> list[Change]:
        notes: dict[str, bytes | None] = {}
        changes: list[Change] = []
        for path in sorted(self.order.paths("note")):
            try:
                changes += self._plan_note(path, notes, outcome)
            except DocumentNotFound:
                continue  # removed by the run that was interrupted, or by a person
            except PathRefused as exc:
                outcome.miss(exc.message, again=False)
            except KeptError as exc:
                outcome.miss(exc.message)
        proposals = _present(self.notes, self.order.paths("proposal"))
        outcome.removed["proposals"] += len(proposals)
        displaced = _present(self.notes, self.order.paths("record"))
        outcome.removed["records"] += len(displaced)
        by = Author(agent=self.config.agent_id, tool="memory_forget" if self.order.by_tool else "kept forget")
        history = HistoryScrub(self.notes, self.order, notes, by=by, time=utc_text(self.clock.now()))
        changes += [*map(Erase, (*proposals, *displaced)), *history.changes()]
        outcome.removed["history"] += history.versions
        if history.is_left:
            outcome.miss("the history of the notes")
        return changes

    def _plan_note(self, path: str, notes: dict[str, bytes | None], outcome: Outcome) -> list[Change]:
        places = [place for place in self.order.of_kind("note") if place.path == path]
        document = self.notes.documents.read(path, max_bytes=LARGEST_NOTE)
        if any(place.whole for place in places):
            outcome.removed["notes"] += 1
            notes[path] = None
            return [Erase(path)]
        edits, missing = find_cuts(decode(document.data)[0], places)
        outcome.removed["notes"] += len(edits)
        outcome.changed += missing
        if not edits:
            return []
        data = notes[path] = remove_lines(document.data, edits, path)
        return [Write(path, data, document.version, erase=True)]

    # the agent: conversations, schedules, and records that were set aside

    def _change_agent(self, outcome: Outcome) -> None:
        if sessions := self.order.of_kind("session"):
            with SessionStore(self.config, clock=self.clock) as store:
                for place in sessions:
                    outcome.removed["conversations"] += _purge(store, place)
        self._commit(self.agent, outcome, self._plan_agent)

    def _plan_agent(self, outcome: Outcome) -> list[Change]:
        changes: list[Change] = []
        places = self.order.of_kind("conversation", "import")
        for citation in dict.fromkeys(place.path for place in places):
            changes += self._plan_transcript(citation, [place for place in places if place.path == citation])
        outcome.removed["conversations"] += len(changes)
        schedules = self._plan_schedules(outcome)
        records = [change for name in sorted(self.order.paths("record")) for change in self._plan_record(name)]
        outcome.removed["records"] += len(records)
        return [*changes, *schedules, *records]

    def _plan_transcript(self, citation: str, places: list[Place]) -> list[Change]:
        matcher = Matcher(Needles(self.order.words))
        by_line = {place.start_line: place for place in places}
        log = sessions_prefix(self.config) + citation.removeprefix(CITED_FOLDER)
        before = list(iter_raw(self.agent, log))
        after = list(before)
        for at, line in enumerate(before):
            place = by_line.get(line.number)
            if place is not None and digest_of(line.raw) == place.digest:
                # A copy of a removed line is a place without words of its own: all of it goes.
                whole = place.whole or not matcher.needles
                after[at] = replace(line, raw=blank_line(line.raw, matcher.matches, whole=whole))
        after = renew_receipts(before, after, cite_transcript(log))
        pairs = zip(before, after, strict=True)
        return [Blank(log, LogPosition(old.start), new.raw) for old, new in pairs if old.raw != new.raw]

    def _plan_schedules(self, outcome: Outcome) -> list[Change]:
        """Remove schedules: one without its text would ask nothing, again and again."""
        chosen = self.order.paths("schedule")
        data = read_document(self.agent, SCHEDULES)
        remaining = [item for item in schedules_in(data) if item.get("id") not in chosen]
        count = len(schedules_in(data)) - len(remaining)
        if not count:
            return []
        outcome.removed["schedules"] += count
        new = json.dumps({**read_tree(data), "schedules": remaining}, ensure_ascii=False, indent=1).encode() + b"\n"
        return [Write(SCHEDULES, new, version_of(data), erase=True)]

    def _plan_record(self, name: str) -> list[Change]:
        matcher = Matcher(self.order.needles)
        if is_log(name):
            lines = ((line, scrub_record(line.data, matcher, name)) for line in self.agent.logs.read(name))
            return [Blank(name, line.start, new) for line, new in lines if new != line.data]
        if name.startswith(DISPLACED):
            return [*map(Erase, _present(self.agent, [name]))]
        data = read_document(self.agent, name)
        new = b"".join(scrub_record(line, matcher, name) + b"\n" for line in read_lines(self.agent, name))
        return [Write(name, new, version_of(data), erase=True)] if data and new != data else []

    # the inbox, which only the process with its lease may write

    def _change_inbox(self, outcome: Outcome) -> None:
        keys, matcher = self.order.paths("inbox"), self.order.inbox_matcher
        if not keys:
            return
        if self.inbox is not None:
            outcome.removed["inbox"] += self.inbox(matcher.matches, keys)
            return
        try:
            with self.agent.lease(INBOX_LEASE, wait_s=0):
                self._commit(self.agent, outcome, lambda attempt: self._plan_inbox(keys, matcher, attempt))
        except LockBusy:
            outcome.miss(_GATEWAY_RUNS)

    def _plan_inbox(self, keys: frozenset[str], matcher: Matcher, outcome: Outcome) -> list[Change]:
        find_key = inbox_keys(self.agent)
        lines = [(line, scrub_record(line.data, matcher, INBOX)) for line in self.agent.logs.read(INBOX)]
        changes: list[Change] = [
            Blank(INBOX, line.start, new)
            for line, new in lines
            if new != line.data and find_key(read_tree(line.data)) in keys
        ]
        outcome.removed["inbox"] += len(changes)
        return changes

    def _erase_attachments(self, outcome: Outcome) -> None:
        """Erase files of messages that were forgotten or deleted, after the conversations and the inbox."""
        latest_ns = time.time_ns() - _GRACE_NS
        digests = {
            info.path: match[1].encode()
            for info in self.agent.documents.list(f"{ATTACHMENTS}/")
            if info.modified_ns <= latest_ns and (match := STORED_NAME.fullmatch(os.path.basename(info.path)))
        }
        if digests:
            mentioned = find_mentioned(self.config)
            unused = [path for path, digest in digests.items() if digest not in mentioned]
            outcome.removed["attachments"] += len(unused)
            self.agent.commit([*map(Erase, unused)])

    # files that are derived from these

    def _changed_files(self) -> list[tuple[str, str]]:
        """Return source and path of the notes and transcripts that were changed."""
        paths = sorted(self.order.paths("note", "conversation", "import", "session"))
        return [("sessions" if is_transcript_citation(path) else "memory", path) for path in paths]

    def _scrub_catalogue(self, outcome: Outcome) -> None:
        path = self.config.paths.catalogue
        if not os.path.exists(path):
            return
        catalogue = Catalogue(path, Transcripts(self.agent, sessions_prefix(self.config)))
        try:
            for source, name in self._changed_files():
                if source == "sessions":
                    catalogue.forget(sessions_prefix(self.config) + name.removeprefix(CITED_FOLDER))
            catalogue.refresh()
            catalogue.run(lambda db: rewrite_database(db, path, noun="session catalogue"))
        finally:
            catalogue.close()
        outcome.removed["catalogue"] += 1

    def _scrub_indexes(self, outcome: Outcome) -> None:
        """Scrub the index of the workspace, those of other workspaces of the agent, and those of other agents that
        share the workspace."""
        own = self.service.path
        is_synced = os.path.exists(own) and self._sync()
        pattern = os.path.join(glob.escape(os.path.join(self.config.home, "agents")), "*", "index*.sqlite")
        for path in sorted({path for path in (own, *glob.glob(pattern)) if os.path.exists(path)}):
            is_own = path == own or os.path.dirname(path) == self.config.paths.folder
            stale = () if path == own and is_synced else self._changed_files()
            try:
                if is_own or read_owner(path) == self.workspace.root:
                    scrub_index(path, stale=stale, wait_s=self.service.limits.sync_wait_s)
                    outcome.removed["index"] += 1
            except (StoreError, KeptError) as exc:
                outcome.miss(exc.message)

    def _sync(self) -> bool:
        """Bring the index up to date, and close its connection. Return whether that worked."""
        try:
            self.service.sync_background()
        except KeptError:
            return False
        finally:
            self.service.reopen()
        return True

    def _erase_qmd(self, outcome: Outcome) -> None:
        """Remove the index of qmd, which is filled again when it is next used."""
        for root in glob.glob(os.path.join(glob.escape(self.config.paths.folder), "qmd-*")):
            for folder, _, names in os.walk(root):
                for name in names:
                    erase_file(os.path.join(folder, name))
                    outcome.removed["qmd"] += 1

    def _erase_leftovers(self, outcome: Outcome) -> None:
        """Erase temporary files that no process will rename, whatever they contain."""
        outcome.removed["leftovers"] += erase_leftovers(self.config, self.workspace)


def _present(storage: Storage, paths: Iterable[str]) -> list[str]:
    """Return the documents that exist."""
    return [path for path in sorted(paths) if not is_log(path) and storage.documents.find(path)]


def _purge(store: SessionStore, place: Place) -> int:
    """Delete a whole session for good. Return 0 if the run that was interrupted has done it."""
    named = (record.id for record in store.recent() if record.citation == place.path)
    session_id = next(named, parse_transcript_name(os.path.basename(place.path))[0])
    try:
        store.delete(session_id, purge=True)
    except SessionNotFound:
        return 0
    return 1


# temporary files that a killed process left: they may have the text of any file


def iter_leftovers(config: Config, workspace: Workspace) -> Iterator[str]:
    """Yield temporary files that no process is writing."""
    for path in iter_all_files((config.home, workspace.root), frozenset((config.models_folder,))):
        if is_temporary(os.path.basename(path)) and is_abandoned(path):
            yield path


def erase_leftovers(config: Config, workspace: Workspace) -> int:
    count = 0
    for path in iter_leftovers(config, workspace):
        erase_file(path)
        count += 1
    return count
