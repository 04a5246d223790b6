"""`Memory.forgetting`: plans a forget and carries it out.

1. write the journal                      a crash from now on is finished by the next run
2. record the hashes of these texts       an import that runs meanwhile leaves it out
3. scrub each store, and note that it is done
4. search all bytes, and save the receipt
5. overwrite and remove the journal       unless a store was busy: then the next run goes on
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from kept.base.clock import Clock, new_id
from kept.base.durable import erase_file, make_private_folder
from kept.base.file_lock import locked
from kept.base.records import parse_citation
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER
from kept.config import Config
from kept.errors import ForgetChanged, ForgetFailed, KeptError, LockBusy
from kept.forgetting.derived_files import CatalogueStore, IndexStore, QmdStore
from kept.forgetting.history_places import HistoryStore
from kept.forgetting.note_places import NoteStore
from kept.forgetting.own_files import (
    AttachmentStore,
    InboxStore,
    LeftoverStore,
    ProposalStore,
    RecordStore,
    ScheduleStore,
)
from kept.forgetting.plan import (
    EntryCut,
    ForgetOrder,
    ForgetPlan,
    ForgetRequest,
    ForgetStore,
    LineCut,
    ScrubResult,
    read_journal,
    write_journal,
)
from kept.forgetting.planner import ForgetScope, Search, find_keys, plan_forget
from kept.forgetting.receipt import (
    NOT_REACHED,
    ByteScan,
    ForgetReceipt,
    hash_removed,
    make_receipt_of,
    save_receipt,
    scan_bytes,
)
from kept.forgetting.transcript_places import TranscriptStore
from kept.notes.history.note_history import open_history
from kept.notes.workspace import Workspace
from kept.search.memory_view import MemoryView
from kept.search.query_dates import When, parse_when
from kept.search.service import IndexService
from kept.sessions.forgotten_text import ForgottenText, normalise_line
from kept.sessions.store import SessionStore

_LOCK_WAIT_S = 30.0

OnStep = Callable[[str], None]
"""Called with the name of each step before it begins."""


def ignore_step(name: str) -> None:
    pass


@frozen
class Forgetter:
    """Forgets in one agent's memory. ``inbox`` replaces the store of the inbox in a process that has it open."""

    config: Config
    workspace: Workspace
    service: IndexService
    sessions: SessionStore
    clock: Clock
    inbox: ForgetStore | None = None
    on_step: OnStep = ignore_step

    def stores(self) -> Sequence[ForgetStore]:
        """Return every place where Kept keeps text: canonical files first, then what is derived from them."""
        return (
            NoteStore(self.workspace),
            TranscriptStore(self.sessions),
            RecordStore(self.config),
            ProposalStore(self.workspace),
            ScheduleStore(self.config),
            self.inbox or InboxStore(self.config),
            AttachmentStore(self.config),
            CatalogueStore(self.config),
            IndexStore(self.service, self.config),
            QmdStore(self.config),
            # After the index: its sync records the change of the notes.
            HistoryStore(open_history(self.config, self.workspace, self.clock), self.workspace, self.config.agent_id),
            LeftoverStore(self.config, self.workspace),
        )

    def forget(self, plan: ForgetPlan, *, scope: str | None = None) -> ForgetReceipt:
        """Remove every place of a plan, and return the receipt. Finish an interrupted forget first.

        ``scope`` is the folder of the project or person that it is forgotten for, None for everybody.
        """
        if not plan.places:
            raise ForgetFailed("There is nothing to forget.", hint="No note and no conversation has it.")
        self.workspace.require()
        make_private_folder(self.config.paths.folder)
        with self._locked():
            self._finish_locked()
            order = self._make_order(plan, scope)
            self.on_step("journal")
            write_journal(self.config.paths.forgetting, order)
            return self._run(order)

    def finish(self) -> ForgetReceipt | None:
        """Finish a forget that was interrupted. Return None if there is none, or if another process is at it.

        Raise ForgetFailed if it was begun in another workspace.
        """
        if not self.is_unfinished():
            return None
        try:
            with self._locked(wait_s=0):
                return self._finish_locked()
        except LockBusy:
            return None

    def is_unfinished(self) -> bool:
        return os.path.exists(self.config.paths.forgetting)

    def _finish_locked(self) -> ForgetReceipt | None:
        order = read_journal(self.config.paths.forgetting)
        if order is None:
            erase_file(self.config.paths.forgetting)
            return None
        if order.workspace not in ("", self.workspace.root):
            raise ForgetFailed(
                f"A forget in {order.workspace} was interrupted, and is not finished yet.",
                hint=f"To finish it: kept --workspace '{order.workspace}' doctor --fix",
            )
        return self._run(order)

    def _locked(self, wait_s: float = _LOCK_WAIT_S) -> AbstractContextManager[int]:
        return locked(f"{self.config.paths.forgetting}.lock", wait_s=wait_s, purpose="forgetting")

    def _make_order(self, plan: ForgetPlan, scope: str | None) -> ForgetOrder:
        salt = os.urandom(16).hex()
        places = (*plan.places, *plan.asked)
        whole = [place for place in places if place.whole and place.kind in ("note", "session")]
        return ForgetOrder(
            id=new_id(),
            started=self.clock.now().isoformat(timespec="seconds"),
            request=kind_of(plan),
            words=plan.needles.words,
            lines=plan.needles.lines,
            cuts=tuple(
                LineCut(place.path, place.start_line, place.lines, place.digest, place.copies, place.new)
                for place in places
                if place.kind == "note" and not place.whole
            ),
            entries=tuple(
                EntryCut(place.path, place.start_line, place.digest, place.whole)
                for place in places
                if place.kind in ("conversation", "import")
            ),
            notes=tuple(place.path for place in whole if place.kind == "note"),
            sessions=tuple(_session_id(self.sessions, place.path) for place in whole if place.kind == "session"),
            others=tuple(
                (place.kind, place.path)
                for place in places
                if place.kind not in ("note", "conversation", "import", "session")
            )
            + tuple(("inbox", key) for key in sorted(find_keys(self.config, plan.places))),
            places=tuple((place.kind, place.citation) for place in plan.places),
            unreachable=(*plan.unreachable, *NOT_REACHED),
            salt=salt,
            sha256=hash_removed(salt, (place.text for place in plan.places)),
            by_tool=plan.by_tool,
            is_scoped=scope is not None,
            scope=scope or "",
            is_partial=plan.is_partial,
            kept=tuple(place.citation for place in (*plan.kept, *plan.candidates)),
            workspace=self.workspace.root,
        )

    def _run(self, order: ForgetOrder) -> ForgetReceipt:
        self.on_step("hashes")
        hashes = ForgottenText(self.config.paths.forgotten_hashes)
        words = () if order.is_partial else order.words
        hashes.add(words, map(normalise_line, order.lines), self.clock.now(), scope=order.scope)
        results: dict[str, ScrubResult] = {}
        for store in self.stores():
            if store.name in order.done:
                continue
            self.on_step(store.name)
            results[store.name] = result = _scrub(store, order)
            if result.is_complete:
                order = replace(order, done=(*order.done, store.name))
                write_journal(self.config.paths.forgetting, order)
        self.on_step("search")
        receipt = self._make_receipt(order, results, self.scan(order))
        self.on_step("receipt")
        if receipt.is_finished or receipt.removed:  # a store that is busy for long is tried by every command
            save_receipt(self.config, receipt)
        self.on_step("end")
        if receipt.is_finished:
            erase_file(self.config.paths.forgetting)
        return receipt

    def scan(self, order: ForgetOrder) -> ByteScan:
        """Search all bytes for what was forgotten, except in models and in the journal."""
        paths = self.config.paths
        leave_out = (self.config.models_folder, paths.forgetting, f"{paths.forgetting}.lock")
        return scan_bytes((self.config.home, self.workspace.root), order.needles, leave_out=leave_out)

    def _make_receipt(self, order: ForgetOrder, results: dict[str, ScrubResult], scan: ByteScan) -> ForgetReceipt:
        if order.is_scoped:  # who sees a part does not learn what the rest has
            folders = (os.path.join(self.workspace.root, name) for name in (PROJECTS_FOLDER, PRIVATE_FOLDER, ".kept"))
            hidden = tuple(folder + os.sep for folder in (*folders, self.config.paths.folder))
            inside = (file for file in scan.left if file.path.startswith(self.workspace.root + os.sep))
            left = (file for file in inside if not file.path.startswith(hidden))
            scan = replace(scan, left=tuple(left))
        return make_receipt_of(order, scan, results, at=self.clock.now().isoformat(timespec="seconds"))


def _scrub(store: ForgetStore, order: ForgetOrder) -> ScrubResult:
    """Scrub a store. One that fails is tried again by the next run, and the others are still scrubbed."""
    try:
        return store.scrub(order)
    except KeptError as exc:
        return ScrubResult(unreachable=(exc.message,), is_complete=False)


def _session_id(sessions: SessionStore, citation: str) -> str:
    for record in sessions.recent():
        if record.citation == citation:
            return record.id
    from kept.sessions.transcript_paths import parse_transcript_name

    return parse_transcript_name(os.path.basename(citation))[0]


def kind_of(plan: ForgetPlan) -> str:
    """Return the kind of a request, without its words."""
    match plan.request:
        case ForgetRequest(session=str()):
            return "session"
        case ForgetRequest(person=str()):
            return "person"
        case ForgetRequest(before_ms=int()):
            return "before"
    return "citation" if parse_citation(plan.request.query or "") or not plan.needles.words else "query"


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
    search: Search | None = None

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
        before_ms = None if before is None else parse_when(before, now=self.clock.now())
        request = ForgetRequest(query, session, person, before_ms)
        self.workspace.require()
        view = self.view
        with SessionStore(self.config, clock=self.clock) as sessions:
            scope = ForgetScope(
                self.config,
                self.workspace,
                sessions,
                is_visible=view.sees,
                by_tool=by_tool,
                viewer=view.viewer,
                is_bound=view.is_bound,
                folder=view.folder,
                search=self.search,
            )
            return plan_forget(scope, request, allow_all=allow_all)

    def apply(
        self, plan: ForgetPlan, *, inbox: ForgetStore | None = None, on_step: OnStep | None = None
    ) -> ForgetReceipt:
        """Remove the places of a plan and nothing else, and search all bytes for what is left. It cannot be undone.

        `ForgetPlan.choose` narrows a plan to some of its places, or adds candidates.

        ``on_step`` is called with the name of each step before it begins. ``inbox`` is that of a running gateway.
        """
        with self._opened(inbox, on_step or ignore_step) as forgetter:
            return forgetter.forget(plan, scope=self.view.folder if self.view.is_bound else None)

    def finish(self) -> ForgetReceipt | None:
        """Finish a forget that was interrupted. Return None if there is none."""
        with self._opened(None, ignore_step) as forgetter:
            return forgetter.finish()

    @contextmanager
    def _opened(self, inbox: ForgetStore | None, on_step: OnStep) -> Iterator[Forgetter]:
        with SessionStore(self.config, clock=self.clock) as sessions:
            yield Forgetter(self.config, self.workspace, self.service, sessions, self.clock, inbox, on_step)


def require_token(plan: ForgetPlan, token: str) -> None:
    """Raise ForgetChanged if a token does not confirm this plan."""
    if plan.token != token:
        raise ForgetChanged("The places have changed since they were shown, or the token is not theirs.")
