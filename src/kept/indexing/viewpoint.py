"""Who sees what in a conversation: its viewer, as the settings, the conversations and the private notes say now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.errors import KeptError
from kept.records import PRIVATE_FOLDER, Filter, Viewer
from kept.sessions.people import HOME_CHANNELS, People

if TYPE_CHECKING:
    from kept.config import Config
    from kept.indexing.service import IndexService
    from kept.reports import Status
    from kept.sessions.store import SessionStore
    from kept.workspace.workspace import Workspace

HIDDEN_PROBLEM = "Part of the memory could not be read or indexed. 'kept doctor' on the machine says more."
_NAMES_A_FILE = r"sessions/|\.jsonl|memory/private|(?:^|[\s'\"(])[/~]"


def find_viewer(config: Config, workspace: Workspace, sessions: SessionStore, key: str) -> Viewer | None:
    """Return who sees what is said in a conversation, by its key. None for a conversation of the home itself."""
    people = People(config)
    viewer = people.viewer_of(key)
    return None if viewer is None else settle_owner(people, viewer, workspace, sessions)


def settle_owner(people: People, viewer: Viewer, workspace: Workspace, sessions: SessionStore) -> Viewer:
    """Return a viewer as the owner if nobody else writes to the agent."""
    if viewer.is_owner or not viewer.keys or people.settings.owner != "auto":
        return viewer
    has_sessions = os.path.isdir(sessions.folder)
    keys = sessions.conversation_keys(without_channels=HOME_CHANNELS) if has_sessions else ()
    if not people.is_alone(viewer, keys, _private_folders(workspace)):
        return viewer
    return replace(people.as_owner(viewer), is_alone=True)


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
