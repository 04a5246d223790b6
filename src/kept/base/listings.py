"""Lists of notes, tags and links, as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kept.base.records import Source, cite
from kept.base.values import frozen

if TYPE_CHECKING:
    import datetime as dt


@frozen
class TagCount:
    """A tag, and the number of notes that have it or a tag below it."""

    tag: str
    notes: int


@frozen
class TagList:
    """The tags of all notes, in alphabetical order, each after the tags above it."""

    tags: tuple[TagCount, ...]
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""

    def __iter__(self) -> Iterator[TagCount]:
        return iter(self.tags)

    def __len__(self) -> int:
        return len(self.tags)


@frozen
class FoundLink:
    """A link as a note writes it."""

    line: int
    """Counted from 1."""
    target: str
    """Name or path of a note, without its ending; "/" separates folders."""
    heading: str = ""
    label: str = ""
    is_embed: bool = False
    is_path: bool = False
    """True for a Markdown link, whose target is a path relative to its note."""


@frozen
class NoteLink:
    """A link from one note to another."""

    path: str
    """The note that it is in."""
    line: int
    target: str
    """As it is written, without the heading and the label."""
    resolved: str | None = None
    """Path of the note that it means, or None if there is no such note."""
    heading: str = ""
    label: str = ""
    is_embed: bool = False

    @property
    def is_broken(self) -> bool:
        return self.resolved is None

    @property
    def citation(self) -> str:
        return cite(self.path, self.line, self.line)


@frozen
class NoteLinks:
    """The links of one note."""

    path: str
    title: str
    outgoing: tuple[NoteLink, ...] = ()
    """Links in the note, in order."""
    incoming: tuple[NoteLink, ...] = ()
    """Links in other notes to it, by path and line."""
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""


@frozen
class BrokenLinks:
    """Links of all notes to notes that do not exist."""

    links: tuple[NoteLink, ...]
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""

    def __iter__(self) -> Iterator[NoteLink]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)


@frozen
class FileSummary:
    """A note or a conversation in a list."""

    path: str
    source: Source
    title: str
    excerpt: str
    """The first words after the title, or the first that were said."""
    timestamp: dt.datetime
    """The local time that it is listed under: when its newest part was written or said, or its last change."""
    changed: dt.datetime
    """Local time of the last change of the file."""
    size: int
    """Bytes."""
    session_key: str | None = None
    channel: str | None = None


@frozen
class Listing:
    """Notes and conversations, newest first."""

    files: tuple[FileSummary, ...]
    total: int
    """Number of files that match, with those beyond the limit."""
    degraded: tuple[str, ...] = ()
    """What did not work, for the user. Empty if everything did."""

    def __iter__(self) -> Iterator[FileSummary]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)
