"""Changes of notes: of lines, which others replace or which go for good, and of a whole note."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kept.base.digest import digest_bytes
from kept.errors import NoteConflict, NoteTooLarge, PathRefused
from kept.notes.history.note_history import HistoryRecorder, NoteEdit, commit_notes
from kept.notes.workspace import Workspace, decode, encoding_of, require_tool_may_write
from kept.storage.contract import retried

DIGEST_CHARS = 8


def digest_of_lines(text: str) -> str:
    """Return a short digest of lines, to tell whether they have changed."""
    return digest_bytes(text.encode("utf-8", "surrogatepass"))[:DIGEST_CHARS]


def plan_edit(path: str, raw: bytes, data: bytes, max_bytes: int) -> NoteEdit:
    """Return the edit that gives a note other bytes. Raise NoteTooLarge."""
    if len(data) > max_bytes:
        raise NoteTooLarge(f"{path}: with this it would have more than the limit of {max_bytes:,} bytes.")
    return NoteEdit(path, raw, data, "edit")


def require_editable(workspace: Workspace, path: str, *, by_tool: bool) -> str:
    """Return the name of a note. Raise PathRefused if it may not be written."""
    name = workspace.locate(path)
    workspace.require_own(name, path)
    if by_tool:
        require_tool_may_write(workspace, name, path)
    return name


# removing lines, in whatever encoding and with whatever line ends a note has

_LINE = r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z"


def remove_lines(raw: bytes, ranges: Mapping[tuple[int, int], str], path: str) -> bytes:
    """Return a note without lines, given as first and last of each range, counted from 1, or with the text of a range
    in their place.

    Of two blank lines that would meet, the second goes too. Raise PathRefused for a note that cannot be read and
    written back unchanged.
    """
    mark, codec = encoding_of(raw)
    errors = "surrogateescape" if codec == "utf-8" else "strict"
    try:
        lines = re.findall(_LINE, raw[len(mark) :].decode(codec, errors))
    except UnicodeError:
        raise PathRefused(f"{path}: cannot be read as {codec}.", hint="Change it with an editor.") from None
    dropped: set[int] = set()
    for (first, last), new in ranges.items():
        dropped.update(range(first, last + 1))
        if new:
            dropped.discard(first)
            end = re.search(r"[\r\n]*\Z", lines[last - 1])
            lines[first - 1] = new.replace("\n", end[0] if end and end[0] else "\n") + (end[0] if end else "")
            continue
        before, after = first - 1, last + 1
        is_blank_before = before < 1 or not lines[before - 1].strip()
        if is_blank_before and after <= len(lines) and not lines[after - 1].strip():
            dropped.add(after)
    remaining = "".join(line for number, line in enumerate(lines, 1) if number not in dropped)
    return mark + remaining.encode(codec, errors)


# a whole note, as a person edited it in a form, which has neither its encoding nor its line ends


def save_text(
    workspace: Workspace,
    path: str,
    text: str,
    *,
    digest: str,
    max_bytes: int,
    recorder: HistoryRecorder | None = None,
) -> bool:
    """Write the text of a note. Return False if it is the same already.

    Raise NoteConflict, and change nothing, if the note no longer has that digest.
    """
    workspace.require()

    @retried
    def save() -> bool:
        name = require_editable(workspace, path, by_tool=False)
        note = workspace.read(name, max_bytes=max_bytes)
        if note.version != digest:
            raise NoteConflict(f"{path} has changed since you opened it, so nothing was written.")
        edit = plan_edit(name, note.raw, replace_text(note.raw, text, path), max_bytes)
        if edit.after != note.raw:
            commit_notes(workspace, [edit], recorder)
        return edit.after != note.raw

    return save()


def replace_text(raw: bytes, text: str, path: str) -> bytes:
    """Return the bytes of a note with a new text. Raise PathRefused if the note has bytes that cannot be shown."""
    mark, codec = encoding_of(raw)
    try:
        old = raw[len(mark) :].decode(codec)
    except UnicodeError:
        hint = "Save it as UTF-8."
        raise PathRefused(f"{path}: is not valid {codec.upper()}, so it cannot be edited.", hint=hint) from None
    new = text.replace("\r\n", "\n").replace("\r", "\n")
    if new == decode(raw)[0]:
        return raw
    end = re.search(r"\r\n|\r|\n", old)
    return mark + new.replace("\n", end[0] if end else "\n").encode(codec)
