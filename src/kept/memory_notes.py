"""`Memory.notes`: tags, links and projects of the notes."""

from __future__ import annotations

import os

from kept.indexing.browse import count_tags, list_broken_links, list_links
from kept.indexing.memory_view import MemoryView
from kept.indexing.service import IndexService
from kept.listings import BrokenLinks, NoteLinks, TagList
from kept.memory_search import require_text
from kept.records import Progress
from kept.workspace.workspace import has_projects


class MemoryNotes:
    """Tags, links and projects of the notes that a memory sees."""

    def __init__(self, service: IndexService, view: MemoryView) -> None:
        self._service = service
        self._view = view

    def tags(self, *, progress: Progress | None = None) -> TagList:
        """Return the tags of all notes, each with the number of notes that have it or a tag below it."""
        return count_tags(self._service, self._view.filter(), progress=progress)

    def links(self, note: str | os.PathLike[str], *, progress: Progress | None = None) -> NoteLinks:
        """Return the links in a note and those of other notes to it. ``note`` is a path, a title, an alias or the name
        of a file. Raise NoteNotFound if there is no such note."""
        name = os.path.expanduser(os.fspath(note))
        require_text(note=name)
        return list_links(self._service, name, self._view, progress=progress)

    def broken_links(self, *, progress: Progress | None = None) -> BrokenLinks:
        """Return the links of all notes that lead nowhere, by path and line."""
        return list_broken_links(self._service, self._view, progress=progress)

    def find_project(self, folder: str | os.PathLike[str] = ".") -> str | None:
        """Return the name of the project that a folder belongs to, by the remote of its repository, or None."""
        workspace = self._view.workspace
        if not has_projects(workspace):
            return None
        from kept.workspace.projects import find_project

        return find_project(workspace, os.fspath(folder))
