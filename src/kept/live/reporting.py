"""The state of a live index as others see it, and the events that it reports."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from kept.records import SyncReport
from kept.values import frozen

log = logging.getLogger(__name__)

Role = Literal["stopped", "starting", "leader", "standby"]
"""The leader does the work. The others stand by, and one of them takes over when the leader is gone."""
Watching = Literal["nothing", "kernel", "polling"]
"""How changes are noticed: by the kernel, by scanning the folders again and again, or not."""


@frozen
class LiveState:
    role: Role = "stopped"
    watching: Watching = "nothing"
    leader_pid: int | None = None
    """Process that does the work, if known."""
    files: int = 0
    chunks: int = 0
    syncs: int = 0
    waiting: int = 0
    """Changes that were noticed and are not indexed yet."""
    syncing: bool = False
    completed: int = 0
    total: int = 0
    """Files of the running sync that are done, and all of them, as far as it reports them."""
    last_change: str | None = None
    """Note or transcript whose change was noticed last."""
    last_sync: str | None = None
    """When the last sync ended (ISO 8601)."""
    problem: str | None = None
    """Why the last sync was not complete. It is retried."""


EventKind = Literal["role", "synced", "notice", "problem"]


@frozen
class LiveEvent:
    """A new role, a completed sync, or a message for the user."""

    kind: EventKind
    state: LiveState
    message: str = ""
    report: SyncReport | None = None
    succeeds: bool = False
    """True if this process leads from now on and stood by before."""


class LiveReporter:
    """Holds the state of a live index for other threads and reports events to a listener."""

    def __init__(self, listener: Callable[[LiveEvent], None] | None) -> None:
        self._listener = listener
        self._notices: set[str] = set()
        self.reset()

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._state = LiveState()

    def state(self) -> LiveState:
        with self._lock:
            return self._state

    def update(self, **fields: Any) -> None:
        with self._lock:
            self._state = replace(self._state, **fields)

    def set_role(self, role: Role, *, leader_pid: int | None = None) -> None:
        before = self.state()
        if (before.role, before.leader_pid) == (role, leader_pid):
            return
        self.update(role=role, leader_pid=leader_pid, watching="nothing", waiting=0, syncing=False)
        self._emit("role", succeeds=before.role == "standby" and role == "leader")

    def report_sync(self, report: SyncReport) -> None:
        self._emit("synced", report=report)

    def report_problem(self, message: str) -> None:
        """Report a problem, unless it is the current one: a failure that repeats is one event."""
        if self.state().problem != message:
            self.update(problem=message)
            self._emit("problem", message)

    def report_notice(self, message: str) -> None:
        """Report a message once."""
        if message not in self._notices:
            self._notices.add(message)
            log.info("%s", message)
            self._emit("notice", message)

    def _emit(
        self, kind: EventKind, message: str = "", *, report: SyncReport | None = None, succeeds: bool = False
    ) -> None:
        if self._listener is not None:
            self._listener(LiveEvent(kind, self.state(), message, report, succeeds))
