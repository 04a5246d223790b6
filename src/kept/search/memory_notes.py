"""`Memory.notes`: tags, links and projects of the notes.

Links between notes are resolved as Obsidian does it: by path, else by the name of a file, else by title or alias.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from kept.base.limits import require_text
from kept.base.listings import BrokenLinks, FoundLink, NoteLink, NoteLinks, TagCount, TagList
from kept.base.records import Progress
from kept.base.values import frozen
from kept.base.words.segment import name_key
from kept.errors import NoteNotFound
from kept.index.sqlite.rows import FILE, link_key
from kept.notes.workspace import has_projects
from kept.search.browse import find_note, name_nearest
from kept.search.memory_view import MemoryView
from kept.search.service import IndexService

if TYPE_CHECKING:
    from kept.index.sqlite.rows import NoteTables


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


def read_links(notes: NoteTables, path: str) -> NoteLinks:
    """Return the links in a note and those to it."""
    resolver = LinkResolver(notes)
    own_keys = {key.rpartition("/")[2] for key, _ in notes.names_of(path)}
    outgoing = [_to_record(source, link, resolver) for source, link in notes.links_from(path)]
    incoming = [
        _to_record(source, link, resolver)
        for source, link in notes.links_by_key(own_keys)
        if source != path and resolver.resolve(link, source) == path
    ]
    return NoteLinks(path, notes.find_title(path) or "", tuple(outgoing), tuple(incoming))


def read_broken_links(notes: NoteTables, is_hidden: Callable[[str], bool]) -> tuple[NoteLink, ...]:
    """Return the links of all notes that mean no note, by path and line, as if hidden notes did not exist."""
    resolver = LinkResolver(notes)
    broken = []
    for source, link in notes.all_links():
        resolved = resolver.resolve(link, source)
        if not is_hidden(source) and (resolved is None or is_hidden(resolved)):
            broken.append(replace(_to_record(source, link, resolver), resolved=None))
    return tuple(broken)


def _to_record(path: str, link: FoundLink, resolver: LinkResolver) -> NoteLink:
    return NoteLink(
        path=path,
        line=link.line,
        target=link.target,
        resolved=resolver.resolve(link, path),
        heading=link.heading,
        label=link.label,
        is_embed=link.is_embed,
    )


class LinkResolver:
    """Finds the note that a link means. Names that were looked up are remembered."""

    def __init__(self, notes: NoteTables) -> None:
        self._find = cache(notes.paths_named)
        self._resolve = cache(self._by_name)

    def resolve(self, link: FoundLink, source: str) -> str | None:
        """Return the path of the note that a link in the note ``source`` means, or None if the link is broken."""
        return self._resolve(link.target, link.is_path, posixpath.dirname(source))

    def _by_name(self, target: str, is_path: bool, folder: str) -> str | None:
        titles = (path for path, kind in self._find(name_key(target)) if kind != FILE)
        return self._by_file(target, is_path, folder) or next(titles, None)

    def _by_file(self, target: str, is_path: bool, folder: str) -> str | None:
        paths = [path for path, kind in self._find(link_key(target)) if kind == FILE]
        by_key = {_path_key(path): path for path in reversed(paths)}
        beside, rooted = _path_key(posixpath.join(folder, target)), _path_key(target)
        is_relative = is_path or target.startswith(("./", "../"))
        for exact in (beside, rooted) if is_relative else (rooted, beside):
            if exact in by_key:
                return by_key[exact]
        ending = "/" + rooted.lstrip("/")
        fitting = [path for path in paths if f"/{_path_key(path)}".endswith(ending)]
        return min(fitting, key=lambda path: (path.count("/"), len(path), path), default=None)


def _path_key(path: str) -> str:
    """Return the key of a path without its ending, for paths with and without one."""
    return name_key(posixpath.normpath(path.strip().removesuffix(".md").removesuffix(".markdown")))
