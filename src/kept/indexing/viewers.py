"""Finds the viewer of a conversation, as the settings, the conversations and the private notes say now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.errors import KeptError
from kept.records import Filter
from kept.sessions.people import HOME_CHANNELS, People
from kept.visibility import PRIVATE_FOLDER, Viewer

if TYPE_CHECKING:
    from kept.config import Config
    from kept.indexing.service import IndexService
    from kept.reports import Status
    from kept.sessions.store import SessionStore
    from kept.workspace.workspace import Workspace

HIDDEN_PROBLEM = "Part of the memory could not be read or indexed. 'kept doctor' on the machine says more."
_NAMES_A_FILE = r"sessions/|\.jsonl|memory/private|(?:^|[\s'\"(])[/~]"


class ViewerFinder:
    """Finds the viewers of an agent's conversations.

    A viewer follows from the settings, and from who writes to the agent: the keys of all conversations, and the folders
    in memory/private. So one is worked out once, and again when somebody new has come.
    """

    def __init__(self, config: Config, workspace: Workspace, sessions: SessionStore) -> None:
        self.people = People(config)
        self._workspace = workspace
        self._sessions = sessions
        self._known: tuple[tuple[list[str], list[str]], dict[str, Viewer | None]] = (([], []), {})
        """Keys and folders, and the viewers that were worked out with them, by the key of their conversation."""

    def find(self, key: str) -> Viewer | None:
        """Return who sees what is said in a conversation, by its key. None for a conversation of the home itself."""
        others, viewers = self._known
        if self.people.settings.owner == "auto":
            now = self._find_others()
            if now != others:
                viewers = {}
                self._known = now, viewers
            others = now
        if key not in viewers:
            viewer = self.people.viewer_of(key)
            viewers[key] = viewer and self._as_settled(viewer, *others)
        return viewers[key]

    def settle_owner(self, viewer: Viewer) -> Viewer:
        """Return a viewer as the owner if nobody else writes to the agent."""
        return self._as_settled(viewer, *self._find_others()) if self.people.settings.owner == "auto" else viewer

    def _as_settled(self, viewer: Viewer, keys: list[str], folders: list[str]) -> Viewer:
        if viewer.is_owner or not viewer.keys or not self.people.is_alone(viewer, keys, folders):
            return viewer
        return replace(self.people.as_owner(viewer), is_alone=True)

    def _find_others(self) -> tuple[list[str], list[str]]:
        """Return the keys of all conversations outside of the home, and the names of the private folders."""
        sessions = self._sessions
        has_sessions = os.path.isdir(sessions.folder)
        keys = sessions.conversation_keys(without_channels=HOME_CHANNELS) if has_sessions else []
        return keys, _private_folders(self._workspace)


def _private_folders(workspace: Workspace) -> list[str]:
    try:
        with os.scandir(os.path.join(workspace.root, PRIVATE_FOLDER)) as entries:
            return [entry.name.lower() for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def visible_status(status: Status, visible: Filter, service: IndexService) -> Status:
    """Return a status as a viewer may see it: of what they see, and without the paths of others."""
    viewer = visible.viewer
    if viewer is None or viewer.is_alone:
        return status
    try:
        with service.inspecting() as (index, _), index.reading():
            counts = index.live.count_by_source(visible)
    except KeptError:
        counts = {}
    problems = (f"{problem.path}: {problem.reason}" for problem in status.problems)
    return replace(
        status,
        files=sum(count["files"] for count in counts.values()),
        chunks=sum(count["chunks"] for count in counts.values()),
        source_counts=counts,
        problems=(),
        degraded=show_problems(viewer, [*status.degraded, *problems]),
    )


def show_problems(viewer: Viewer | None, problems: Iterable[str]) -> tuple[str, ...]:
    """Return problems for a viewer. One that names a file of others says only that there is one."""
    if viewer is None or viewer.is_alone:
        return tuple(problems)
    shown = (HIDDEN_PROBLEM if re.search(_NAMES_A_FILE, problem) else problem for problem in problems)
    return tuple(dict.fromkeys(shown))
