"""What a live index is doing, as others see it."""

from __future__ import annotations

from typing import Literal

from kept.records import SyncReport
from kept.values import frozen

Role = Literal["stopped", "starting", "leader", "standby"]
"""One process does the work, the leader. The others stand by, and one of them takes over when it is gone."""
Watching = Literal["nothing", "kernel", "polling"]
"""How changes are noticed: the kernel tells, or the folders are looked at again and again, or not at all."""


@frozen
class LiveState:
    role: Role = "stopped"
    watching: Watching = "nothing"
    leader_pid: int | None = None
    """Who does the work, as far as it is known."""
    files: int = 0
    chunks: int = 0
    syncs: int = 0
    """How often something was taken in, or looked for."""
    waiting: int = 0
    """Changes that were noticed and are not taken in yet."""
    syncing: bool = False
    completed: int = 0
    total: int = 0
    """How far a sync that goes on has come, where it tells."""
    last_change: str | None = None
    """The note or transcript that was last seen to change."""
    last_sync: str | None = None
    """When the last sync ended (ISO 8601)."""
    problem: str | None = None
    """Why the last sync did not do all it should; it is tried again."""


EventKind = Literal["role", "synced", "notice", "problem"]


@frozen
class LiveEvent:
    """Something worth telling: a new role, a sync that is done, or a thing the user should know."""

    kind: EventKind
    state: LiveState
    message: str = ""
    report: SyncReport | None = None
    succeeds: bool = False
    """Whether this process leads from now on, having stood by."""
