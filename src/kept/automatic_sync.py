"""Synchronises a workspace with its team as long as a program runs, over git."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from kept.clock import Clock
    from kept.config import Config
    from kept.errors import KeptError
    from kept.git_sync.sync_report import GitSyncReport
    from kept.workspace.workspace import Workspace

SyncEvent = Union["GitSyncReport", "KeptError"]
SyncListener = Callable[[SyncEvent], None]


def is_automatic(config: Config) -> bool:
    """Return whether the settings let programs synchronise the workspace."""
    return config.agent.sync.git.enabled


def automatic_sync(
    config: Config, workspace: Workspace, clock: Clock, listener: SyncListener | None = None
) -> AbstractContextManager[object]:
    """Return the context in which a workspace is synchronised, if the settings say so."""
    if config.agent.sync.git.enabled:
        from kept.git_sync.git_sync import GitSync
        from kept.git_sync.sync_loop import SyncLoop

        return SyncLoop(GitSync(config, workspace, clock), listener)
    return nullcontext()
