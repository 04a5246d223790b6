"""Report of a sync with a team, and state of a repository."""

from __future__ import annotations

from dataclasses import dataclass, field

from kept.records import Problem
from kept.values import frozen


@dataclass
class GitSyncReport:
    """Result of a sync. Paths are those of the workspace."""

    host: str
    remote: str
    branch: str
    dry_run: bool = False
    committed: list[str] = field(default_factory=list)
    """Files of this machine that were committed, removed ones included."""
    pulled: list[str] = field(default_factory=list)
    """Files that were written or removed here."""
    merged: list[str] = field(default_factory=list)
    """Files that this machine and another changed."""
    conflicts: list[str] = field(default_factory=list)
    """Notes with passages in two versions, and conflict copies of other files."""
    pushed: bool = False
    commit: str | None = None
    attempts: int = 0
    conversations_sent: int = 0
    conversations_received: int = 0
    """Conversations that are new or have changed, removed ones included."""
    problems: list[Problem] = field(default_factory=list)


@frozen
class GitSyncStatus:
    host: str
    remote: str
    branch: str
    head: str | None
    changed: tuple[str, ...]
    """Files that are not committed yet."""
    ahead: int
    """Commits that the remote does not have, as far as the last fetch tells."""
    behind: int
    merging: bool
    """True if a merge was interrupted. The next sync goes on with it."""
    automatic: bool
    problems: tuple[Problem, ...] = ()
