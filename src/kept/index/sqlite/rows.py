"""The rows of an index: files and their chunks, and what a note says of itself, its names, tags and links; with the
tables of the latter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import apsw

from kept.base.listings import FoundLink
from kept.base.records import CitedLines, Filter, Source
from kept.base.values import frozen
from kept.base.words.segment import name_key
from kept.index.sqlite.filter_sql import hidden_notes_sql

# Kinds of names, the most telling first: of the file, in the properties, and the first heading.
FILE, TITLE, ALIAS, HEADING = 0, 1, 2, 3
NOTE_TABLES = ("notes", "note_names", "note_tags", "note_links")
_MAX_KEY_CHARS = 400
# First and last line of a tag that counts for the whole note.
WHOLE_NOTE = (0, 1 << 40)


@frozen
class TagRow:
    key: str
    tag: str
    lines: tuple[int, int]
    """First and last line of the passages that have the tag."""


@frozen
class NoteRow:
    """A note to store."""

    title: str
    timestamp_ms: int
    is_dated: bool
    """True if the note or its name gives its time. Otherwise it is the time of the file."""
    updated_ms: int | None = None
    names: tuple[tuple[int, str, str], ...] = ()
    """Kind, key and name."""
    tags: tuple[TagRow, ...] = ()
    links: tuple[FoundLink, ...] = ()


_link_values = attrgetter("target", "heading", "label", "is_embed", "is_path")


def link_key(name: str) -> str:
    """Return the key by which the links to a name are found: that of its last part."""
    return name_key(name.rstrip("/").rpartition("/")[2])[:_MAX_KEY_CHARS]


@frozen
class NoteTables:
    """The tables of one generation. Callers hold the transaction."""

    db: apsw.Connection
    prefix: str = ""

    def put(self, path: str, note: NoteRow) -> None:
        """Store a note, in place of what is stored under its path."""
        self.remove(path)
        self.db.execute(
            f"INSERT INTO {self.prefix}notes (path, title, timestamp, dated, updated) VALUES (?, ?, ?, ?, ?)",
            (path, note.title, note.timestamp_ms, note.is_dated, note.updated_ms),
        )
        self.db.executemany(
            f"INSERT OR IGNORE INTO {self.prefix}note_names (key, path, kind, name) VALUES (?, ?, ?, ?)",
            ((key, path, kind, name) for kind, key, name in note.names),
        )
        self.db.executemany(
            f"INSERT OR IGNORE INTO {self.prefix}note_tags (key, path, first_line, last_line, tag)"
            " VALUES (?, ?, ?, ?, ?)",
            ((tag.key, path, *tag.lines, tag.tag) for tag in note.tags),
        )
        self.db.executemany(
            f"INSERT INTO {self.prefix}note_links (path, line, number, key, target, heading, label, embed, by_path)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (path, link.line, number, link_key(link.target), *_link_values(link))
                for number, link in enumerate(note.links)
            ),
        )

    def remove(self, path: str) -> None:
        for table in NOTE_TABLES:
            self.db.execute(f"DELETE FROM {self.prefix}{table} WHERE path = ?", (path,))

    def touch(self, path: str, timestamp_ms: int) -> bool:
        """Store the new time of a file. Return False if the note has a time of its own, which stays."""
        self.db.execute(
            f"UPDATE {self.prefix}notes SET timestamp = ? WHERE path = ? AND NOT dated", (timestamp_ms, path)
        )
        return not self.db.execute(f"SELECT dated FROM {self.prefix}notes WHERE path = ?", (path,)).get

    # names

    def paths_named(self, key: str) -> list[tuple[str, int]]:
        """Return path and kind of name of each note with a name, the most telling kind first."""
        query = f"SELECT path, kind FROM {self.prefix}note_names WHERE key = ? ORDER BY kind, path"
        return self.db.execute(query, (key,)).fetchall()  # type: ignore[return-value]

    def names_of(self, path: str) -> list[tuple[str, str]]:
        """Return key and name of each name of a note."""
        query = f"SELECT key, name FROM {self.prefix}note_names WHERE path = ? ORDER BY kind, key"
        return self.db.execute(query, (path,)).fetchall()  # type: ignore[return-value]

    def find_title(self, path: str) -> str | None:
        """Return the title of a note, or None if there is no such note."""
        title = self.db.execute(f"SELECT title FROM {self.prefix}notes WHERE path = ?", (path,)).get
        return None if title is None else str(title)

    def given_titles(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return the titles and aliases in the properties of notes, by path."""
        titles: dict[str, list[str]] = {}
        query = (
            f"SELECT path, name FROM {self.prefix}note_names"
            " WHERE path IN (SELECT value FROM json_each(?)) AND kind IN (?, ?)"
        )
        for path, name in self.db.execute(query, (json.dumps(list(paths)), TITLE, ALIAS)):
            titles.setdefault(str(path), []).append(str(name))
        return titles

    # tags

    def count_tags(self, filters: Filter) -> list[tuple[str, str, int]]:
        """Return key and one spelling of each tag, with the number of notes that have it or a tag below it, without
        those that the filter hides."""
        where, values = hidden_notes_sql(filters)
        query = f"SELECT key, min(tag), count(DISTINCT path) FROM {self.prefix}note_tags c WHERE {where} GROUP BY key"
        return self.db.execute(query, values).fetchall()  # type: ignore[return-value]

    def tags_of(self, path: str) -> list[str]:
        """Return the tags of a note, as it writes them."""
        query = f"SELECT min(tag) FROM {self.prefix}note_tags WHERE path = ? GROUP BY key ORDER BY key"
        return [str(tag) for (tag,) in self.db.execute(query, (path,))]

    # links

    def links_from(self, path: str) -> list[tuple[str, FoundLink]]:
        """Return the links in a note, in order, each with the path of the note."""
        return self._links("path = ? ORDER BY line, number", (path,))

    def links_by_key(self, keys: Iterable[str]) -> list[tuple[str, FoundLink]]:
        """Return path and link of all links whose target ends in one of these keys, by path and line."""
        where = "key IN (SELECT value FROM json_each(?)) ORDER BY path, line, number"
        return self._links(where, (json.dumps(list(keys)),))

    def all_links(self) -> list[tuple[str, FoundLink]]:
        """Return path and link of all links, by path and line."""
        return self._links("1 ORDER BY path, line, number", ())

    def _links(self, where: str, values: tuple[Any, ...]) -> list[tuple[str, FoundLink]]:
        query = f"SELECT path, line, target, heading, label, embed, by_path FROM {self.prefix}note_links WHERE {where}"
        return [
            (path, FoundLink(line, target, heading, label, bool(embed), bool(by_path)))
            for path, line, target, heading, label, embed, by_path in self.db.execute(query, values)
        ]


# Incremented with generation.sql: an index of another version is rebuilt.
SCHEMA_VERSION = 6
# Key of the parameters of the build: sizes, versions, and the embedder whose vectors the index holds.
META_RECIPE = "recipe"


@frozen
class FileRow:
    """An indexed file. The fields are the columns of `files`."""

    source: Source
    path: str
    hash: str
    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int
    """Time of the last read that found this content."""
    warning: str | None = None
    mark: str | None = None
    """Checkpoint in a transcript, as JSON."""


def text_hash(text: str) -> bytes:
    """Return the hash of a chunk's text, or of the text that is embedded for it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


@frozen
class NewChunk:
    """A chunk to store. The full-text index gets ``words`` and ``context_words``."""

    start_line: int
    end_line: int
    heading: str
    text: str
    embed_text: str
    words: str
    context_words: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None
    is_recalled: bool = False


@frozen
class FileWrite:
    """A file and its chunks, replaced together: all chunks, or those that begin after a line."""

    file: FileRow
    chunks: tuple[NewChunk, ...]
    timestamp_ms: int | None = None
    """Timestamp of all chunks if it is that of the file. None if each chunk has its own, which stays when the file's
    changes: of an utterance, of an entry in a daily note, or of a note that says when it was created."""
    after_line: int = 0
    note: NoteRow | None = None
    """Names, tags and links. None for a transcript."""


@frozen
class ChunkRow(CitedLines):
    """A stored chunk. The fields are columns of `chunks`, in the order of `_CHUNK_COLUMNS`."""

    row: int
    source: Source
    hash: bytes
    heading: str
    text: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None
    is_recalled: int = 0
    """1 for an answer that an agent gave from memory."""


@frozen
class IndexCounts:
    files: int
    chunks: int
    vectors: int
    by_source: dict[str, dict[str, int]]


def plan_chunks(old: Mapping[bytes, int], write: FileWrite) -> tuple[list[int], list[tuple[bytes, NewChunk]]]:
    """Compare the stored chunks of a file, rows by content key, with new ones. Return the rows to remove, and the
    chunks to add by their keys. Rows that stay keep their words and vectors, so an entry added to a long log costs one
    row. Pure.

    A content key is a hash of all that is stored for a chunk.
    """
    new: dict[bytes, NewChunk] = {}
    for chunk in write.chunks:
        parts = (
            f"{chunk.start_line}-{chunk.end_line}",
            # Two hashes: renaming a heading changes what is embedded, not what is shown.
            text_hash(chunk.text).hex(),
            text_hash(chunk.embed_text).hex(),
            chunk.heading,
            chunk.session_key or "",
            chunk.channel or "",
            "recalled" if chunk.is_recalled else "",
            # A time that all chunks share is left out: with it, touching a file would rewrite them all.
            str(chunk.timestamp_ms) if write.timestamp_ms is None else "",
            chunk.context_words,
            chunk.words,
        )
        new[hashlib.blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=16).digest()] = chunk
    # If one piece of a long line changed, all its pieces are written again, so that rows follow the text.
    lines = {chunk.start_line for key, chunk in new.items() if key not in old}
    added = [(key, chunk) for key, chunk in new.items() if chunk.start_line in lines]
    unchanged = new.keys() - {key for key, _ in added}
    return [row for key, row in old.items() if key not in unchanged], added
