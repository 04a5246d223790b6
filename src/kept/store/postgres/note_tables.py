"""Names, tags and links of notes, by generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kept.store.note_tables import ALIAS, TITLE, LinkRow, NoteRow
from kept.store.postgres.index_session import IndexSession
from kept.store.postgres.storable import storable
from kept.words.segment import tag_key

NOTE_TABLES = ("notes", "note_names", "note_tags", "note_links")
_NOTES = (
    ("generation", "int4"),
    ("path", "text"),
    ("title", "text"),
    ("timestamp", "int8"),
    ("dated", "bool"),
    ("updated", "int8"),
)
_NAMES = (("generation", "int4"), ("key", "text"), ("path", "text"), ("kind", "int2"), ("name", "text"))
_TAGS = (
    ("generation", "int4"),
    ("key", "text"),
    ("path", "text"),
    ("first_line", "int8"),
    ("last_line", "int8"),
    ("tag", "text"),
)
_LINKS = (
    ("generation", "int4"),
    ("path", "text"),
    ("line", "int4"),
    ("number", "int4"),
    ("key", "text"),
    ("target", "text"),
    ("heading", "text"),
    ("label", "text"),
    ("embed", "bool"),
    ("by_path", "bool"),
)

NOTE_TYPES = {"notes": _NOTES, "note_names": _NAMES, "note_tags": _TAGS, "note_links": _LINKS}
"""Columns of each table with their types."""


class PostgresNotes:
    """The tables of one generation. Callers hold the transaction."""

    def __init__(self, session: IndexSession, generation: Callable[[], int]) -> None:
        self._session = session
        self._generation = generation

    def put(self, notes: Mapping[str, NoteRow]) -> None:
        """Store notes by path, in place of what is stored under their paths."""
        self.remove([*notes])
        generation = self._generation()
        rows, names, tags, links = [], [], [], []
        for path, note in notes.items():
            rows.append(
                (generation, path, storable(note.title), note.timestamp_ms, bool(note.is_dated), note.updated_ms)
            )
            first_names = {(key, kind): name for kind, key, name in reversed(note.names)}
            names += [
                (generation, storable(key), path, kind, storable(name)) for (key, kind), name in first_names.items()
            ]
            first_tags = {(tag.key, tag.lines[0]): tag for tag in reversed(note.tags)}
            tags += [
                (generation, storable(tag.key), path, *tag.lines, storable(tag.tag)) for tag in first_tags.values()
            ]
            links += [
                (
                    generation,
                    path,
                    link.line,
                    number,
                    *map(storable, (link.key, link.target, link.heading, link.label)),
                    bool(link.is_embed),
                    bool(link.is_path),
                )
                for number, link in enumerate(note.links)
            ]
        self._session.copy("notes", _NOTES, rows)
        self._session.copy("note_names", _NAMES, names)
        self._session.copy("note_tags", _TAGS, tags)
        self._session.copy("note_links", _LINKS, links)

    def remove(self, paths: Sequence[str]) -> None:
        for table in NOTE_TABLES if paths else ():
            self._session.execute(
                f"DELETE FROM {table} WHERE generation = %s AND path = ANY(%s)", [self._generation(), [*paths]]
            )

    # names

    def paths_named(self, key: str) -> list[tuple[str, int]]:
        """Return path and kind of name of each note with a name, the most telling kind first."""
        key = storable(key)
        query = (
            "SELECT DISTINCT path, kind FROM note_names WHERE generation = %s AND left(key, 200) = left(%s, 200)"
            " AND key = %s ORDER BY kind, path"
        )
        return self._session.fetch(query, [self._generation(), key, key])

    def names_of(self, path: str) -> list[tuple[str, str]]:
        """Return key and name of each name of a note."""
        query = "SELECT key, name FROM note_names WHERE generation = %s AND path = %s ORDER BY kind, key"
        return self._session.fetch(query, [self._generation(), storable(path)])

    def find_title(self, path: str) -> str | None:
        """Return the title of a note, or None if there is no such note."""
        query = "SELECT title FROM notes WHERE generation = %s AND path = %s"
        title: str | None = self._session.fetch_value(query, [self._generation(), storable(path)])
        return title

    def given_titles(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return the titles and aliases in the properties of notes, by path."""
        titles: dict[str, list[str]] = {}
        query = (
            "SELECT path, name FROM note_names WHERE generation = %s AND path = ANY(%s) AND kind IN (%s, %s)"
            " ORDER BY path, kind, key"
        )
        for path, name in self._session.fetch(query, [self._generation(), [*paths], TITLE, ALIAS]):
            titles.setdefault(path, []).append(name)
        return titles

    # tags

    def count_tags(self, where: str = "true", values: Sequence[Any] = ()) -> list[tuple[str, str, int]]:
        """Return key and one spelling of each tag, with the number of notes that have it or a tag below it.

        ``where`` is a condition on the path of the notes, which are called `c`.
        """
        query = (
            "SELECT key, min(tag), count(DISTINCT path) FROM note_tags c"
            f" WHERE generation = %s AND {where} GROUP BY key ORDER BY key"
        )
        return self._session.fetch(query, [self._generation(), *values])

    def tags_of(self, path: str) -> list[str]:
        """Return the tags of a note, as it writes them."""
        query = "SELECT min(tag) FROM note_tags WHERE generation = %s AND path = %s GROUP BY key ORDER BY key"
        return [tag for (tag,) in self._session.fetch(query, [self._generation(), storable(path)])]

    def paths_tagged(self, tag: str) -> list[str]:
        """Return the notes that have a tag, or a tag below it, by path."""
        key = storable(tag_key(tag))
        query = (
            "SELECT DISTINCT path FROM note_tags WHERE generation = %s AND left(key, 200) = left(%s, 200)"
            " AND key = %s ORDER BY path"
        )
        return [path for (path,) in self._session.fetch(query, [self._generation(), key, key])]

    # links

    def links_from(self, path: str) -> list[tuple[str, LinkRow]]:
        """Return the links in a note, in order, each with the path of the note."""
        return self._links("path = %s ORDER BY line, number", [storable(path)])

    def links_by_key(self, keys: Iterable[str]) -> list[tuple[str, LinkRow]]:
        """Return path and link of all links whose target ends in one of these keys, by path and line."""
        wanted = [storable(key) for key in keys]
        starts = [key[:200] for key in wanted]
        where = "left(key, 200) = ANY(%s::text[]) AND key = ANY(%s::text[]) ORDER BY path, line, number"
        return self._links(where, [starts, wanted])

    def all_links(self) -> list[tuple[str, LinkRow]]:
        """Return path and link of all links, by path and line."""
        return self._links("true ORDER BY path, line, number", [])

    def _links(self, where: str, values: list[Any]) -> list[tuple[str, LinkRow]]:
        query = (
            "SELECT path, line, key, target, heading, label, embed, by_path FROM note_links"
            f" WHERE generation = %s AND {where}"
        )
        return [
            (path, LinkRow(*columns)) for path, *columns in self._session.fetch(query, [self._generation(), *values])
        ]
