"""`Memory.notes`: tags, links and projects of the notes."""

from __future__ import annotations

import os
from dataclasses import replace

from kept.base.listings import BrokenLinks, NoteLinks, TagCount, TagList
from kept.base.records import Progress
from kept.base.values import frozen
from kept.errors import NoteNotFound
from kept.notes.workspace import has_projects
from kept.search.browse import find_note, name_nearest
from kept.search.memory_search import require_text
from kept.search.memory_view import MemoryView
from kept.search.note_links import read_broken_links, read_links
from kept.search.service import IndexService


@frozen
class MemoryNotes:
    """Tags, links and projects of the notes that a memory sees."""

    _service: IndexService
    _view: MemoryView

    def tags(self, *, progress: Progress | None = None) -> TagList:
        """Return the tags of all notes, each with the number of notes that have it or a tag below it."""
        visible = self._view.filter()
        counts, degraded = self._service.read(lambda index: index.live.count_tags(visible), progress=progress)
        counts.sort(key=lambda count: count[0].split("/"))
        return TagList(tuple(TagCount(tag, notes) for _, tag, notes in counts), degraded)

    def links(self, note: str | os.PathLike[str], *, progress: Progress | None = None) -> NoteLinks:
        """Return the links in a note and those of other notes to it. ``note`` is a path, a title, an alias or the name
        of a file. Raise NoteNotFound if there is no such note."""
        name = os.path.expanduser(os.fspath(note))
        require_text(note=name)
        if os.path.isabs(name):
            name = self._view.workspace.cite(os.path.normpath(name))
        path = find_note(self._service, name, self._view.filter())
        if path is None:
            hint = self.name_nearest(name) or "Name it by its path, title or alias."
            raise NoteNotFound(f"There is no note called '{name}'.", hint=hint)
        links, degraded = self._service.read(lambda index: read_links(index.live.notes, path), progress=progress)
        return replace(self._view.visible_links(links), degraded=degraded)

    def name_nearest(self, name: str) -> str:
        """Return a question with the note whose name is closest to a name that no note has, or nothing."""
        return name_nearest(self._service, name, self._view.filter())

    def broken_links(self, *, progress: Progress | None = None) -> BrokenLinks:
        """Return the links of all notes that lead nowhere, by path and line."""
        links, degraded = self._service.read(
            lambda index: read_broken_links(index.live.notes, self._view.is_hidden), progress=progress
        )
        return BrokenLinks(links, degraded)

    def find_project(self, folder: str | os.PathLike[str] = ".") -> str | None:
        """Return the name of the project that a folder belongs to, by the remote of its repository, or None."""
        workspace = self._view.workspace
        if not has_projects(workspace):
            return None
        from kept.notes.projects import find_project

        return find_project(workspace, os.fspath(folder))
