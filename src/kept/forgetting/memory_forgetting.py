"""`Memory.forgetting`: opens what a forget needs, plans it and carries it out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kept.clock import Clock
from kept.config import Config
from kept.errors import ForgetChanged
from kept.forgetting.forgetter import Forgetter, OnStep, ignore_step
from kept.forgetting.order import ForgetStore
from kept.forgetting.places import ForgetPlan, ForgetRequest
from kept.forgetting.planner import ForgetScope, Search, plan_forget
from kept.forgetting.receipt import ForgetReceipt
from kept.indexing.memory_view import MemoryView
from kept.indexing.service import IndexService
from kept.search.date_filter import When, parse_when
from kept.sessions.store import SessionStore
from kept.values import frozen
from kept.workspace.workspace import Workspace


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
    search: Search
    view: MemoryView

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

        Nothing is changed. Words that are in no file are looked for by meaning; then ``ForgetPlan.by_meaning`` is set.
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
                self.search,
                is_visible=view.sees,
                by_tool=by_tool,
                viewer=view.viewer if view.has_others else None,
            )
            return plan_forget(scope, request, allow_all=allow_all)

    def apply(
        self, plan: ForgetPlan, *, inbox: ForgetStore | None = None, on_step: OnStep | None = None
    ) -> ForgetReceipt:
        """Remove every place of a plan, and search all bytes for what is left. It cannot be undone.

        ``on_step`` is called with the name of each step before it begins. ``inbox`` is that of a running gateway.
        """
        with self._opened(inbox, on_step or ignore_step) as forgetter:
            return forgetter.forget(plan, is_scoped=self.view.is_bound)

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
