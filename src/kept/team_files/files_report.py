"""Report of a sync with the database, and state of a folder."""

from __future__ import annotations

from dataclasses import dataclass, field

from kept.records import Problem
from kept.values import frozen


@dataclass
class TeamFilesReport:
    """Result of a sync. Paths are those of the workspace."""

    host: str
    schema: str
    workspace: str
    dry_run: bool = False
    sent: list[str] = field(default_factory=list)
    """Files of this machine that the database accepted, removed ones included."""
    received: list[str] = field(default_factory=list)
    """Files that were written or removed here."""
    merged: list[str] = field(default_factory=list)
    """Files that this machine and another changed."""
    conflicts: list[str] = field(default_factory=list)
    """Notes with passages in two versions, and conflict copies of other files."""
    conversations_sent: int = 0
    conversations_received: int = 0
    attempts: int = 0
    seq: int = 0
    """Number of the last change that the folder has."""
    problems: list[Problem] = field(default_factory=list)


@frozen
class TeamFilesStatus:
    host: str
    schema: str
    workspace: str
    changed: tuple[str, ...]
    """Files that are not sent yet."""
    seq: int
    behind: int | None
    """Changes in the database that the folder lacks; None if the database cannot be reached."""
    problems: tuple[Problem, ...] = ()
