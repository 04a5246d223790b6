"""From a note that was cut to its names, tags and links in the index. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence

from kept.chunking.markdown import HEADING_JOIN, HEADING_MARKS, CutNote, is_fine
from kept.indexing.note_times import entry_heading, parse_entry_time, to_timestamp_ms
from kept.records import Chunk
from kept.store.note_tables import ALIAS, FILE, HEADING, TITLE, WHOLE_NOTE, LinkRow, NoteRow, TagRow
from kept.words.segment import name_key, tag_key, tag_levels

_FIRST_HEADING = r"# +([^\n]{1,200}?)(?: +#+)? *(?:\n|$)"
_MAX_KEY_CHARS = 400


def make_note_row(path: str, cut: CutNote, *, day: dt.date | None, file_timestamp_ms: int) -> NoteRow:
    """Return the row of a note. ``day`` is the date of a daily note, ``file_timestamp_ms`` the time that its file
    tells."""
    properties = cut.properties
    created_ms = to_timestamp_ms(properties.created)
    heading = _first_heading(cut)
    name = path.rpartition("/")[2].rpartition(".")[0]
    return NoteRow(
        title=properties.title or heading or name,
        timestamp_ms=file_timestamp_ms if created_ms is None else created_ms,
        is_dated=created_ms is not None or day is not None,
        updated_ms=to_timestamp_ms(properties.updated),
        names=tuple(_iter_names(cut, name, heading)),
        tags=tuple(_iter_tags(path, cut, day)),
        links=tuple(
            LinkRow(
                line=link.line,
                key=link_key(link.target),
                target=link.target,
                heading=link.heading,
                label=link.label,
                is_embed=link.is_embed,
                is_path=link.is_path,
            )
            for link in cut.references.links
        ),
    )


def link_key(name: str) -> str:
    """Return the key by which the links to a name are found: that of its last part."""
    return name_key(name.rstrip("/").rpartition("/")[2])[:_MAX_KEY_CHARS]


def _first_heading(cut: CutNote) -> str | None:
    match = re.match(_FIRST_HEADING, cut.chunks[0].text) if cut.chunks else None
    return match[1].strip() if match else None


def _iter_names(cut: CutNote, name: str, heading: str | None) -> Iterator[tuple[int, str, str]]:
    yield FILE, name_key(name), name
    if "___" in name:  # Logseq's way to write a page's "/" in the name of its file
        page = name.replace("___", "/")
        yield TITLE, name_key(page), page
    if cut.properties.title:
        yield TITLE, name_key(cut.properties.title), cut.properties.title
    elif heading:
        yield HEADING, name_key(heading), heading
    for alias in cut.properties.aliases:
        yield ALIAS, name_key(alias), alias


def _iter_tags(path: str, cut: CutNote, day: dt.date | None) -> Iterator[TagRow]:
    for tag in cut.properties.tags:
        yield from _tag_rows(tag, WHOLE_NOTE)
    for found in cut.references.tags:
        yield from _tag_rows(found.tag, _tagged_lines(path, cut.chunks, found.line, day))


def _tag_rows(tag: str, lines: tuple[int, int]) -> Iterator[TagRow]:
    for level in tag_levels(tag):
        yield TagRow(tag_key(level), level, lines)


def _tagged_lines(path: str, chunks: Sequence[Chunk], line: int, day: dt.date | None) -> tuple[int, int]:
    """Return the lines that a tag in a line counts for.

    That is the whole note, as in Obsidian; but one entry in a daily note, and one item in MEMORY.md and USER.md, whose
    other lines have nothing to do with it.
    """
    if not is_fine(path) and day is None:
        return WHOLE_NOTE
    at = next((at for at, chunk in enumerate(chunks) if chunk.start_line <= line <= chunk.end_line), None)
    if at is None:
        return WHOLE_NOTE
    if is_fine(path):
        return chunks[at].start_line, chunks[at].end_line
    entry = entry_heading(chunks[at].heading)
    if entry is None:
        return WHOLE_NOTE
    first = last = at
    while first > 0 and _is_in_entry(chunks[first - 1], entry) and not _begins_entry(chunks[first]):
        first -= 1
    while last + 1 < len(chunks) and _is_in_entry(chunks[last + 1], entry) and not _begins_entry(chunks[last + 1]):
        last += 1
    return chunks[first].start_line, chunks[last].end_line


def _is_in_entry(chunk: Chunk, entry: str) -> bool:
    return chunk.heading == entry or chunk.heading.startswith(entry + HEADING_JOIN)


def _begins_entry(chunk: Chunk) -> bool:
    """Return whether a chunk begins with a time as its heading: two entries of one minute have equal headings."""
    line = chunk.text.partition("\n")[0]
    return line.startswith("#") and parse_entry_time(HEADING_MARKS.sub("", line)) is not None
