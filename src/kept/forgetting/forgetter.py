"""`Memory.forgetting`: plans a forget and carries it out.

1. write the journal                      a crash from now on is finished by the next run
2. record the hashes of these texts       an import that runs meanwhile leaves it out
3. do each step of `removal`, and note that it is done
4. search all bytes, and save the receipt
5. overwrite and remove the journal       unless a step was not possible: then the next run goes on
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from kept.base.clock import Clock, new_id
from kept.base.limits import utf8_safe
from kept.base.records import Hit
from kept.base.values import frozen
from kept.config import Config
from kept.errors import ForgetFailed, KeptError, LockBusy, UsageError
from kept.forgetting.places import ForgetScope
from kept.forgetting.plan import (
    JOURNAL,
    ForgetOrder,
    ForgetPlan,
    Outcome,
    read_journal,
    write_journal,
)
from kept.forgetting.planner import plan_forget
from kept.forgetting.receipt import ForgetReceipt, make_receipt, save_receipt
from kept.forgetting.removal import BlankInbox, Removal
from kept.notes.workspace import Workspace
from kept.search.memory_view import MemoryView
from kept.search.query_dates import When, find_when
from kept.search.service import IndexService
from kept.sessions.forgotten_text import ForgottenText, normalise_line
from kept.sessions.store import SessionStore
from kept.storage.contract import Erase, Storage
from kept.storage.open import open_agent

LEASE = "forgetting"
_WAIT_S = 30.0

OnStep = Callable[[str], None]
"""Called with the name of each step before it begins."""


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

    def apply(
        self, plan: ForgetPlan, *, inbox: BlankInbox | None = None, on_step: OnStep | None = None
    ) -> ForgetReceipt:
        """Remove the places of a plan and nothing else, and search all bytes for what is left. It cannot be undone.

        `ForgetPlan.choose` narrows a plan to some of its places, or adds candidates.

        ``on_step`` is called with the name of each step before it begins. ``inbox`` changes that of a running gateway.
        """
        if not plan.places:
            raise ForgetFailed("There is nothing to forget.", hint="No note and no conversation has it.")
        self.workspace.require()
        on_step = on_step or _ignore_step
        with self.agent.lease(LEASE, wait_s=_WAIT_S):
            self._finish(on_step)  # one that was interrupted
            order = self._make_order(plan)
            on_step("journal")
            write_journal(self.agent, order)
            return self._run(order, inbox, on_step)

    def finish(self) -> ForgetReceipt | None:
        """Finish a forget that was interrupted. Return None if there is none, or if another process is at it.

        Raise ForgetFailed if it was begun in another workspace.
        """
        if self.agent.documents.find(JOURNAL) is None:
            return None
        try:
            with self.agent.lease(LEASE, wait_s=0):
                return self._finish(_ignore_step)
        except LockBusy:
            return None

    @property
    def agent(self) -> Storage:
        return open_agent(self.config)

    def _finish(self, on_step: OnStep) -> ForgetReceipt | None:
        order = read_journal(self.agent)
        if order is not None and order.workspace != self.workspace.root:
            raise ForgetFailed(
                f"A forget in {order.workspace} was interrupted, and is not finished yet.",
                hint=f"To finish it: kept --workspace '{order.workspace}' doctor --fix",
            )
        return None if order is None else self._run(order, None, on_step)

    def _make_order(self, plan: ForgetPlan) -> ForgetOrder:
        salt, scope = os.urandom(16).hex(), self.view.folder if self.view.is_bound else None
        removed = hashlib.sha256(bytes.fromhex(salt))
        for place in plan.places:
            removed.update(place.text.encode("utf-8", "surrogatepass") + b"\n")
        return ForgetOrder(new_id(), self.workspace.root, plan.select(plan.places), salt, removed.hexdigest(), scope)

    def _run(self, order: ForgetOrder, inbox: BlankInbox | None, on_step: OnStep) -> ForgetReceipt:
        on_step("hashes")
        needles = order.plan.needles
        words = () if order.plan.is_partial else map(utf8_safe, needles.words)
        lines = map(normalise_line, map(utf8_safe, needles.lines))
        ForgottenText(self.agent).add(words, lines, self.clock.now(), scope=order.scope or "")
        before, outcome = order, Outcome()
        for name, step in Removal(self, order, outcome, inbox).steps().items():
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
        receipt = make_receipt(self.config, order, outcome, at=self.clock.now().isoformat(timespec="seconds"))
        on_step("receipt")
        if receipt.is_finished or order != before:  # what is busy for long is tried by every command
            save_receipt(self.agent, receipt)
        on_step("end")
        if receipt.is_finished:
            self.agent.commit([Erase(JOURNAL)])
        return receipt


def _ignore_step(name: str) -> None:
    pass
