"""Values that the filters of a search offer: tags, channels, people and projects."""

from __future__ import annotations

from collections.abc import Iterable

from kept.errors import KeptError
from kept.sessions.record import SessionRecord
from kept.values import frozen
from kept.web.site import Site
from kept.workspace.projects import list_projects
from kept.workspace.workspace import has_projects

_MOST_TAGS = 100
_RECENT_SESSIONS = 500
_MOST_PEOPLE = 50


@frozen
class FilterChoices:
    tags: tuple[tuple[str, int], ...] = ()
    """The most frequent tags, each with the number of its notes."""
    channels: tuple[str, ...] = ()
    people: tuple[tuple[str, str], ...] = ()
    """Keys of the latest conversations with people, and how to name them."""
    projects: tuple[str, ...] = ()


def load_choices(site: Site) -> FilterChoices:
    """Return what can be chosen. A part that cannot be read is left out: a search does not depend on it."""
    tags: tuple[tuple[str, int], ...] = ()
    sessions: list[SessionRecord] = []
    try:
        counts = sorted(site.memory.notes.tags(), key=lambda count: (-count.notes, count.tag))[:_MOST_TAGS]
        tags = tuple(sorted((count.tag, count.notes) for count in counts))
        sessions = site.sessions.recent(limit=_RECENT_SESSIONS)
    except KeptError:
        pass
    workspace = site.memory.workspace
    projects = (project.name for project in list_projects(workspace)) if has_projects(workspace) else ()
    channels = tuple(sorted({record.channel for record in sessions if record.channel}))
    return FilterChoices(tags, channels, tuple(_people(sessions)), tuple(projects))


def _people(sessions: Iterable[SessionRecord]) -> list[tuple[str, str]]:
    """Return the people that conversations are with, latest first, by the key of the conversation."""
    people: dict[str, str] = {}
    for record in sessions:
        if record.key and record.user_id and not record.folder:
            people.setdefault(record.key, f"{record.user_id} ({record.channel})")
    return list(people.items())[:_MOST_PEOPLE]
