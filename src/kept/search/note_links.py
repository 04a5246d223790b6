"""Links between notes, resolved as Obsidian does: by path, else by the name of a file, else by title or alias."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.listings import FoundLink, NoteLink, NoteLinks
from kept.base.words.segment import name_key
from kept.index.sqlite.note_tables import FILE, link_key

if TYPE_CHECKING:
    from kept.index.sqlite.note_tables import NoteTables


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
        self._notes = notes
        self._named: dict[str, list[tuple[str, int]]] = {}
        self._resolved: dict[tuple[str, bool, str], str | None] = {}

    def resolve(self, link: FoundLink, source: str) -> str | None:
        """Return the path of the note that a link in the note ``source`` means, or None if the link is broken."""
        folder = posixpath.dirname(source)
        key = (link.target, link.is_path, folder)
        if key not in self._resolved:
            self._resolved[key] = self._by_file(link, folder) or self._by_title(link)
        return self._resolved[key]

    def _by_file(self, link: FoundLink, folder: str) -> str | None:
        paths = [path for path, kind in self._find(link_key(link.target)) if kind == FILE]
        if not paths:
            return None
        by_key = {_path_key(path): path for path in reversed(paths)}
        beside, rooted = _path_key(posixpath.join(folder, link.target)), _path_key(link.target)
        is_relative = link.is_path or link.target.startswith(("./", "../"))
        for exact in (beside, rooted) if is_relative else (rooted, beside):
            if exact in by_key:
                return by_key[exact]
        ending = "/" + rooted.lstrip("/")
        fitting = [path for path in paths if f"/{_path_key(path)}".endswith(ending)]
        return min(fitting, key=lambda path: (path.count("/"), len(path), path), default=None)

    def _by_title(self, link: FoundLink) -> str | None:
        named = self._find(name_key(link.target))
        return next((path for path, kind in named if kind != FILE), None)

    def _find(self, key: str) -> list[tuple[str, int]]:
        if key not in self._named:
            self._named[key] = self._notes.paths_named(key)
        return self._named[key]


def _path_key(path: str) -> str:
    """Return the key of a path without its ending, for paths with and without one."""
    return name_key(posixpath.normpath(path.strip().removesuffix(".md").removesuffix(".markdown")))
