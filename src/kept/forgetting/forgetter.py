"""`Memory.forgetting`: plans a forget and carries it out.

1. write the journal                      a crash from now on is finished by the next run
2. record the hashes of these texts       an import that runs meanwhile leaves it out
3. do each step of `Removal`              one commit in the workspace, one in the agent's storage, then the files
                                          derived from them; the journal notes that a step is done
4. search all bytes, and save the receipt
5. overwrite and remove the journal       unless a step was not possible: then the next run goes on

Each step can be done again, after a crash or because something was busy. The index is brought up to date before it is
written anew without free pages, so that no embedding is paid for twice.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain

from kept.base.clock import Clock, new_id
from kept.base.durable import erase_file, is_abandoned, is_temporary
from kept.base.limits import utf8_safe
from kept.base.records import Hit
from kept.base.sqlite import rewrite_database
from kept.base.values import frozen
from kept.config import Config
from kept.config.agent_config import FORGETTING
from kept.errors import DocumentNotFound, ForgetFailed, KeptError, LockBusy, PathRefused, SessionNotFound, UsageError
from kept.forgetting.needles import Matcher, Needles
from kept.forgetting.old_versions import HistoryScrub
from kept.forgetting.passages import find_cuts
from kept.forgetting.places import LARGEST_NOTE, ForgetScope, cited_transcript, find_mentioned, read_inbox, scrub_record
from kept.forgetting.plan import ForgetOrder, ForgetPlan, Outcome, digest_of, read_journal, write_journal
from kept.forgetting.planner import plan_forget
from kept.forgetting.receipt import ForgetReceipt, iter_all_files, make_receipt, save_receipt
from kept.index.sqlite.integrity import read_owner, scrub_index
from kept.notes.history.note_history import Author, utc_text
from kept.notes.line_edit import remove_lines
from kept.notes.workspace import Workspace, decode
from kept.search.memory_view import MemoryView
from kept.search.query_dates import When, find_when
from kept.search.service import IndexService
from kept.sessions.attachments import ATTACHMENTS, STORED_NAME
from kept.sessions.catalogue import Catalogue
from kept.sessions.forgotten_text import ForgottenText, Matches, blank_line, normalise_line, renew_receipts
from kept.sessions.schedules.schedule_book import open_schedules
from kept.sessions.store import SessionStore
from kept.sessions.transcript import open_transcripts
from kept.sessions.transcript_paths import is_transcript_citation, parse_transcript_name
from kept.storage.contract import Blank, Change, Erase, LogPosition, Storage, Write, is_log, retried
from kept.storage.open import INBOX, INBOX_LEASE, open_agent

LEASE = "forgetting"
_WAIT_S = 30.0
_GRACE_NS = 10_000_000_000
"""Age below which a file may belong to a message that is about to be accepted."""

OnStep = Callable[[str], None]
"""Called with the name of each step before it begins."""
BlankInbox = Callable[[Matches, frozenset[str]], int]
"""Takes texts that match out of the conversations with some keys, in the inbox of this process."""
running_inboxes: dict[str, BlankInbox] = {}
"""Inboxes that gateways in this process write, by the folder of their agent."""


@frozen
class MemoryForgetting:
    """Removes something from notes, conversations, the index and all other files: `plan` it, then `apply` the plan.

    >>> plan = memory.forgetting.plan("4711")
    >>> receipt = memory.forgetting.apply(plan)
    """

    config: Config
    workspace: Workspace
    service: IndexService
    clock: Clock
    view: MemoryView
    search: Callable[[str], Iterable[Hit]]

    def plan(
        self,
        query: str | None = None,
        *,
        session: str | None = None,
        person: str | None = None,
        before: When | None = None,
        allow_all: bool = False,
        by_tool: bool = False,
    ) -> ForgetPlan:
        """Return every place of something: words or a citation, a session, a person, or all before a time.

        Nothing is changed. Words that are nowhere have the best hits of a search as candidates.
        Raise ForgetTooMuch for words that are too short or in more than 100 places, unless ``allow_all`` is set.
        ``by_tool`` leaves out files that only the person may change.
        """
        before_ms = find_when(before, now=self.clock.now())
        choices = {"query": query, "session": session, "person": person, "before": before_ms}
        named = [(request, what) for request, what in choices.items() if what is not None]
        if len(named) != 1:
            raise UsageError("Forget one thing at a time: words or a citation, a session, a person, or a time.")
        self.workspace.require()
        with SessionStore(self.config, clock=self.clock) as sessions:
            scope = ForgetScope(self.config, self.workspace, sessions, self.view, by_tool, self.search)
            return plan_forget(scope, *named[0], allow_all=allow_all)

    def apply(self, plan: ForgetPlan, *, on_step: OnStep = lambda name: None) -> ForgetReceipt:
        """Remove the places of a plan and nothing else, and search all bytes for what is left. It cannot be undone.

        `ForgetPlan.choose` narrows a plan to some of its places, or adds candidates.

        ``on_step`` is called with the name of each step before it begins.
        """
        if not plan.places:
            raise ForgetFailed("There is nothing to forget.", hint="No note and no conversation has it.")
        self.workspace.require()
        with self.agent.lease(LEASE, wait_s=_WAIT_S):
            self._finish(on_step)  # one that was interrupted
            salt, removed = os.urandom(16), hashlib.sha256()
            for data in (salt, *(place.text.encode("utf-8", "surrogatepass") + b"\n" for place in plan.places)):
                removed.update(data)
            scope = self.view.folder if self.view.is_bound else None
            plan = plan.select(plan.places)
            order = ForgetOrder(new_id(), self.place, plan, salt.hex(), removed.hexdigest(), scope)
            on_step("journal")
            write_journal(self.agent, order)
            return Removal(self, order).run(on_step)

    def finish(self) -> ForgetReceipt | None:
        """Finish a forget that was interrupted. Return None if there is none, or if another process is at it.

        Raise ForgetFailed if it was begun in another workspace.
        """
        if self.agent.documents.find(FORGETTING) is None:
            return None
        try:
            with self.agent.lease(LEASE, wait_s=0):
                return self._finish(lambda name: None)
        except LockBusy:
            return None

    @property
    def agent(self) -> Storage:
        return open_agent(self.config)

    @property
    def place(self) -> str:
        """Which notes they are: a folder, or nothing in a database, where an agent has only these."""
        return "" if self.config.database else self.workspace.root

    def _finish(self, on_step: OnStep) -> ForgetReceipt | None:
        order = read_journal(self.agent)
        if order is not None and order.workspace != self.place:
            raise ForgetFailed(
                f"A forget in {order.workspace} was interrupted, and is not finished yet.",
                hint=f"To finish it: kept --workspace '{order.workspace}' doctor --fix",
            )
        return None if order is None else Removal(self, order).run(on_step)


class Removal:
    """Carries out an order."""

    def __init__(self, forgetting: MemoryForgetting, order: ForgetOrder) -> None:
        self.forgetting, self.order = forgetting, order
        self.config, self.agent, self.workspace = forgetting.config, forgetting.agent, forgetting.workspace
        self.outcome = Outcome()

    def run(self, on_step: OnStep) -> ForgetReceipt:
        """Do what is not done yet, search all bytes, and return the receipt."""
        on_step("hashes")
        order, outcome, now = self.order, self.outcome, self.forgetting.clock.now()
        needles = order.plan.needles
        words = () if order.plan.is_partial else map(utf8_safe, needles.words)
        lines = map(normalise_line, map(utf8_safe, needles.lines))
        ForgottenText(self.agent).add(words, lines, now, scope=order.scope or "")
        for name, step in self.steps().items():
            if name in order.done:
                continue
            on_step(name)
            missed = len(outcome.missed)
            try:
                step()
            except KeptError as exc:  # the others are still done, and this one is tried again by the next run
                outcome.missed.append(exc.message)
            if len(outcome.missed) == missed:
                order = replace(order, done=(*order.done, name))
                write_journal(self.agent, order)
        on_step("search")
        receipt = make_receipt(self.config, order, outcome, at=now.isoformat(timespec="seconds"))
        on_step("receipt")
        if receipt.is_finished or order != self.order:  # what is busy for long is tried by every command
            save_receipt(self.agent, receipt)
        on_step("end")
        if receipt.is_finished:
            self.agent.commit([Erase(FORGETTING)])
        return receipt

    def steps(self) -> dict[str, Callable[[], object]]:
        return {
            "notes": self.change_workspace,
            "conversations": self._change_agent,
            "inbox": self._change_inbox,
            "attachments": self._erase_attachments,
            "catalogue": self._scrub_catalogue,
            "index": self._scrub_indexes,
            "qmd": self._erase_qmd,
            "leftovers": lambda: erase_leftovers(self.config, self.workspace),
        }

    # the workspace: notes, their history, and proposals

    @retried
    def change_workspace(self) -> None:
        self.workspace.require()
        storage = self.workspace.storage
        storage.commit(self._plan_workspace(storage))

    def _plan_workspace(self, storage: Storage) -> list[Change]:
        notes: dict[str, bytes | None] = {}
        changes: list[Change] = []
        for path in self.order.paths("note"):
            try:
                changes += self._plan_note(storage, path, notes)
            except DocumentNotFound:
                continue  # removed by the run that was interrupted, or by a person
            except PathRefused as exc:
                self.outcome.refused.append(exc.message)
            except KeptError as exc:
                self.outcome.missed.append(exc.message)
        tool = "memory_forget" if self.order.plan.by_tool else "kept forget"
        by, now = Author(agent=self.config.agent_id, tool=tool), utc_text(self.forgetting.clock.now())
        history = HistoryScrub(storage, self.order, notes, by=by, time=now)
        changes += map(Erase, filter(storage.documents.find, self.order.paths("proposal")))
        changes += [*self._plan_records(storage), *history.changes()]
        if history.is_left:
            self.outcome.missed.append("the history of the notes")
        return changes

    def _plan_note(self, storage: Storage, path: str, notes: dict[str, bytes | None]) -> Iterator[Change]:
        places = [place for place in self.order.of_kind("note") if place.path == path]
        document = storage.documents.read(path, max_bytes=LARGEST_NOTE)
        if any(place.whole for place in places):
            notes[path] = None
            yield Erase(path)
            return
        edits, missing = find_cuts(decode(document.data)[0], places)
        self.outcome.changed += missing
        if edits:
            data = notes[path] = remove_lines(document.data, edits, path)
            yield Write(path, data, document.version, erase=True)

    def _plan_records(self, storage: Storage) -> Iterator[Change]:
        """Yield the changes of records that were set aside, as far as this storage has them."""
        matcher = Matcher(self.order.plan.needles)
        for name in self.order.paths("record"):
            if is_log(name):
                for line in storage.logs.read(name):
                    yield from _blank(name, line.start, line.data, scrub_record(line.data, matcher, name))
            elif storage.documents.find(name):
                document = storage.documents.read(name)
                lines = (scrub_record(line, matcher, name) for line in document.data.splitlines())
                yield Write(name, b"".join(line + b"\n" for line in lines), document.version, erase=True)

    # the agent: conversations, schedules, and records that were set aside

    def _change_agent(self) -> None:
        with SessionStore(self.config, clock=self.forgetting.clock) as store:
            for path in self.order.paths("session"):
                named = (record.id for record in store.recent() if record.citation == path)
                with suppress(SessionNotFound):  # the run that was interrupted has purged it
                    store.delete(next(named, parse_transcript_name(os.path.basename(path))[0]), purge=True)
        if chosen := self.order.paths("schedule"):  # one without its text would ask nothing, again and again
            open_schedules(self.config).change(
                lambda book: replace(book, schedules=tuple(item for item in book.schedules if item.id not in chosen)),
                erase=True,
            )
        transcripts = self.order.paths("conversation")

        @retried
        def change() -> None:
            self.agent.commit([*chain(*map(self._plan_transcript, transcripts), self._plan_records(self.agent))])

        change()

    def _plan_transcript(self, citation: str) -> Iterator[Change]:
        matcher = Matcher(Needles(self.order.plan.needles.words))
        places = self.order.of_kind("conversation")
        by_line = {place.start_line: place for place in places if place.path == citation}
        transcript = cited_transcript(self.config, citation)
        before = list(transcript.iter_lines())
        after = list(before)
        for at, line in enumerate(before):
            place = by_line.get(line.number)
            if place is not None and digest_of(line.raw) == place.digest:
                # A copy of a removed line is a place without words of its own: all of it goes.
                whole = place.whole or not matcher.needles
                after[at] = replace(line, raw=blank_line(line.raw, matcher.matches, whole=whole))
        for old, new in zip(before, renew_receipts(before, after, citation), strict=True):
            yield from _blank(transcript.log, LogPosition(old.start), old.raw, new.raw)

    # the inbox, which only the process with its lease may write

    def _change_inbox(self) -> None:
        plan = self.order.plan
        keys = frozenset(place.key for place in (*plan.places, *plan.asked) if place.key)
        if not keys:
            return
        # Copies of chosen messages go. Others may keep the words if some places do.
        matcher = Matcher(Needles((), plan.needles.lines) if plan.is_partial else plan.needles)
        if blank := running_inboxes.get(self.config.paths.folder):
            blank(matcher.matches, keys)
            return

        @retried
        def change() -> None:
            chosen = (line for line, key in read_inbox(self.agent) if key in keys)
            scrubbed = ((line, scrub_record(line.data, matcher, INBOX)) for line in chosen)
            self.agent.commit([*chain(*(_blank(INBOX, line.start, line.data, new) for line, new in scrubbed))])

        try:
            with self.agent.lease(INBOX_LEASE, wait_s=0):
                change()
        except LockBusy:
            reason = "the inbox of the gateway that is running; forget it again when the gateway has stopped"
            self.outcome.missed.append(reason)

    def _erase_attachments(self) -> None:
        """Erase files of messages that were forgotten or deleted, after the conversations and the inbox."""
        latest_ns = time.time_ns() - _GRACE_NS
        infos = [info for info in self.agent.documents.list(f"{ATTACHMENTS}/") if info.modified_ns <= latest_ns]
        names = {info.path: STORED_NAME.fullmatch(os.path.basename(info.path)) for info in infos}
        if any(names.values()):
            mentioned = find_mentioned(self.config)
            unused = (path for path, name in names.items() if name and name[1].encode() not in mentioned)
            self.agent.commit([*map(Erase, unused)])

    # files that are derived from these

    def _scrub_catalogue(self) -> None:
        path = self.config.paths.catalogue
        if not os.path.exists(path):
            return
        with closing(Catalogue(path, open_transcripts(self.config))) as catalogue:
            for citation in self.order.paths("conversation", "session"):
                catalogue.forget(cited_transcript(self.config, citation).log)
            catalogue.refresh()
            catalogue.run(lambda db: rewrite_database(db, path, noun="session catalogue"))

    def _scrub_indexes(self) -> None:
        """Scrub the index of the workspace, those of other workspaces of the agent, and those of other agents that
        share the workspace."""
        service, paths = self.forgetting.service, self.order.paths("note", "conversation", "session")
        changed = [("sessions" if is_transcript_citation(path) else "memory", path) for path in paths]
        up_to_date = ""
        if os.path.exists(service.path):
            with suppress(KeptError):
                service.sync(by_request=False)
                up_to_date = service.path
            service.reopen()  # without a connection of its own
        for name in sorted(glob.glob("agents/*/index*.sqlite", root_dir=self.config.home)):
            path = os.path.join(self.config.home, name)
            is_own = os.path.dirname(path) == self.config.paths.folder
            try:
                if is_own or read_owner(path) == self.workspace.root:
                    stale = () if path == up_to_date else changed
                    scrub_index(path, stale=stale, wait_s=service.limits.sync_wait_s)
            except KeptError as exc:
                self.outcome.missed.append(exc.message)

    def _erase_qmd(self) -> None:
        """Remove the index of qmd, which is filled again when it is next used."""
        folder = self.config.paths.folder
        for path in iter_all_files(os.path.join(folder, name) for name in glob.glob("qmd-*", root_dir=folder)):
            erase_file(path)


def _blank(log: str, position: LogPosition, old: bytes, new: bytes) -> Iterator[Change]:
    if new != old:
        yield Blank(log, position, new)


# temporary files that a killed process left: they may have the text of any file


def iter_leftovers(config: Config, workspace: Workspace) -> Iterator[str]:
    """Yield temporary files that no process is writing."""
    for path in iter_all_files((config.home, workspace.root), frozenset((config.models_folder,))):
        if is_temporary(os.path.basename(path)) and is_abandoned(path):
            yield path


def erase_leftovers(config: Config, workspace: Workspace) -> None:
    for path in iter_leftovers(config, workspace):
        erase_file(path)
