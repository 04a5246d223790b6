"""From the text of a note to its rows in the index: file, chunks, names, tags and links, with their times. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from kept.base.limits import int64
from kept.base.records import Chunk, SourceFile, is_fact_list
from kept.base.redact import REDACTION_VERSION
from kept.base.values import frozen
from kept.base.visibility import PROJECT_MARKER, project_of_path
from kept.base.words.segment import SEGMENTER_VERSION, name_key, name_parts_in, segment, tag_key, tag_levels
from kept.index.chunking.markdown import (
    CHUNKER_VERSION,
    HEADING_JOIN,
    ChunkSize,
    CutNote,
    cut_note,
    note_name,
)
from kept.index.chunking.utterances import TRANSCRIPT_CHUNKER_VERSION
from kept.index.sqlite.rows import (
    ALIAS,
    FILE,
    HEADING,
    SCHEMA_VERSION,
    TITLE,
    WHOLE_NOTE,
    FileRow,
    FileWrite,
    NewChunk,
    NoteRow,
    TagRow,
)
from kept.notes.daily import DEFAULT_DAILY_NOTES, DailyNotes
from kept.notes.workspace import CANVAS, NoteText

CUT_PLAINLY = "too many lines, headings or nested blocks; cut by lines, without its headings"
DATE_IN_WORDS = "%Y-%m-%d %A %d %B %Y"
_FIRST_HEADING = r"# +([^\n]{1,200}?)(?: +#+)? *(?:\n|$)"
# The mark of a task that is done, which is no word.
_DONE_MARK = r"\[[xX]\](?=\s)"
# 15:09, 9:05 am, 15:09:30; not 15:09 inside a longer number.
_ENTRY = r"(\d{1,2}):(\d{2})(?::(\d{2}))?(?![\d:])(?:\s?([AaPp])\.?[Mm]\b)?"


@frozen
class Recipe:
    """Everything that determines the index of a text. When it changes, the index is rebuilt."""

    size: ChunkSize
    identity: str | None
    model: str | None
    daily: DailyNotes = DEFAULT_DAILY_NOTES

    def fingerprint(self) -> dict[str, object]:
        return {
            "daily": [self.daily.folder, self.daily.format],
            "schema": SCHEMA_VERSION,
            "chunker": CHUNKER_VERSION,
            "transcript_chunker": TRANSCRIPT_CHUNKER_VERSION,
            "redaction": REDACTION_VERSION,
            "segmenter": SEGMENTER_VERSION,
            "tokens": self.size.tokens,
            "overlap": self.size.overlap,
            "identity": self.identity,
            "model": self.model,
        }


def prepare_file(file: SourceFile, note: NoteText, recipe: Recipe, *, checked_ns: int) -> FileWrite:
    from kept.index.chunking.properties import TOO_MANY

    day = recipe.daily.find_day(file.path)
    chunks: list[NewChunk] = []
    if file.path.lower().endswith(CANVAS):
        from kept.index.chunking.canvas import cut_canvas

        cut = cut_canvas(note.text, recipe.size)
    else:
        cut = cut_note(note.text, name=file.path, size=recipe.size)
    properties = cut.properties
    excess = TOO_MANY if cut.references.is_cut else None
    warning = note.warning or (CUT_PLAINLY if cut.plain else properties.warning or excess)
    if "<<<<<<< " in note.text:
        from kept.notes.conflict_copies import find_merge_marks

        warning = warning or find_merge_marks(note.text)
    row = replace(file_row(file, note, checked_ns=checked_ns), warning=warning)
    file_ms = note_timestamp_ms(file.path, note.mtime_ns, recipe.daily)
    about = make_note_row(file.path, cut, day=day, file_timestamp_ms=file_ms)
    # Words around a chunk are found by word only; if they were embedded, renaming a note would cost a call.
    name = f"{day:{DATE_IN_WORDS}}" if day else note_name(file.path)
    titles = (name, properties.title, *properties.aliases)
    headings = {chunk.heading for chunk in cut.chunks if ":" in chunk.heading}
    entries_ms = {heading: entry_timestamp_ms(day, heading) for heading in headings} if day else {}
    for chunk in () if _is_bare_marker(file.path, cut) else cut.chunks:
        own_words = chunk.text if chunks else _first_words(chunk.text, titles[1:] if day else titles, properties.words)
        context = " ".join(filter(None, (chunk.heading, *titles)))
        entry_ms = entries_ms.get(chunk.heading)
        chunks.append(
            NewChunk(
                start_line=chunk.start_line,
                end_line=chunk.end_line,
                heading=chunk.heading,
                text=chunk.text,
                embed_text=chunk.embed_text,
                words=segment(re.sub(_DONE_MARK, "", own_words)),
                context_words=f"{segment(context)} {name_parts_in(chunk.text)}".strip(),
                timestamp_ms=about.timestamp_ms if entry_ms is None else entry_ms,
            )
        )
    shared_ms = None if about.is_dated else about.timestamp_ms
    return FileWrite(row, tuple(chunks), shared_ms, note=about)


def _first_words(text: str, titles: Iterable[str | None], properties: str) -> str:
    """Return the words of a note's first chunk. Its names and properties are no passage, so their words go with it: as
    words of its text, they rank like those of a heading. A name that the text has does not count twice."""
    key = name_key(text)
    missing = (title for title in titles if title and name_key(title) not in key)
    return " ".join(filter(None, (text, *missing, properties)))


def file_row(file: SourceFile, note: NoteText, *, checked_ns: int) -> FileRow:
    times = int64(note.mtime_ns), int64(note.ctime_ns)
    return FileRow(file.source, file.path, note.version, note.size, *times, checked_ns, warning=note.warning)


# names, tags and links


def _is_bare_marker(path: str, cut: CutNote) -> bool:
    """Return whether a note only names the repository of a project, which answers no question."""
    is_marker = path.endswith(f"/{PROJECT_MARKER}") and project_of_path(path) is not None
    return is_marker and all(chunk.start_line <= cut.properties.lines for chunk in cut.chunks)


def make_note_row(path: str, cut: CutNote, *, day: dt.date | None, file_timestamp_ms: int) -> NoteRow:
    """Return the row of a note. ``day`` is the date of a daily note, ``file_timestamp_ms`` the time that its file
    tells."""
    properties = cut.properties
    created_ms = to_timestamp_ms(properties.created)
    match = re.match(_FIRST_HEADING, cut.chunks[0].text) if cut.chunks else None
    heading = match[1].strip() if match else None
    name = path.rpartition("/")[2].rpartition(".")[0]
    names = [(FILE, name_key(name), name)]
    if "___" in name:  # Logseq's way to write a page's "/" in the name of its file
        page = name.replace("___", "/")
        names.append((TITLE, name_key(page), page))
    if properties.title:
        names.append((TITLE, name_key(properties.title), properties.title))
    elif heading:
        names.append((HEADING, name_key(heading), heading))
    names += [(ALIAS, name_key(alias), alias) for alias in properties.aliases]
    tags = [(tag, WHOLE_NOTE) for tag in properties.tags]
    tags += [(tag.tag, _tagged_lines(path, cut.chunks, tag.line, day)) for tag in cut.references.tags]
    return NoteRow(
        title=properties.title or heading or name,
        timestamp_ms=file_timestamp_ms if created_ms is None else created_ms,
        is_dated=created_ms is not None or day is not None,
        updated_ms=to_timestamp_ms(properties.updated),
        names=tuple(names),
        tags=tuple(TagRow(tag_key(level), level, lines) for tag, lines in tags for level in tag_levels(tag)),
        links=cut.references.links,
    )


def _tagged_lines(path: str, chunks: Sequence[Chunk], line: int, day: dt.date | None) -> tuple[int, int]:
    """Return the lines that a tag in a line counts for.

    That is the whole note, as in Obsidian; but one passage of a daily note, and one item in MEMORY.md and USER.md,
    whose other lines have nothing to do with it.
    """
    within = (chunk for chunk in chunks if chunk.start_line <= line <= chunk.end_line)
    chunk = next(within, None) if is_fact_list(path) or day else None
    return (chunk.start_line, chunk.end_line) if chunk else WHOLE_NOTE


# times


def note_timestamp_ms(path: str, mtime_ns: int, daily: DailyNotes = DEFAULT_DAILY_NOTES) -> int:
    """Return when a note was written as far as its file tells: the day it is named after, else its last change."""
    day = daily.find_day(path)
    timestamp_ms = None if day is None else to_timestamp_ms(dt.datetime(day.year, day.month, day.day))
    return mtime_ns // 1_000_000 if timestamp_ms is None else timestamp_ms


def to_timestamp_ms(time: dt.datetime | None) -> int | None:
    """Return a time in milliseconds, or None if it has none: the year 1 has no local time."""
    try:
        return None if time is None else int(time.astimezone().timestamp() * 1000)
    except (OverflowError, OSError, ValueError):
        return None


def entry_timestamp_ms(day: dt.date, heading: str) -> int | None:
    """Return the time of an entry in a daily note, from the innermost heading that begins with a time: "15:09",
    "9:05 am Standup". None if there is none."""
    for match in filter(None, (re.match(_ENTRY, title) for title in reversed(heading.split(HEADING_JOIN)))):
        hour = int(match[1])
        if match[4] and 1 <= hour <= 12:
            hour = hour % 12 + (12 if match[4] in "Pp" else 0)
        elif match[4]:
            continue
        with suppress(ValueError):  # such as 25:61
            time = dt.time(hour, int(match[2]), int(match[3] or 0))
            return to_timestamp_ms(dt.datetime.combine(day, time))
    return None
