"""Replaces the text of a whole note as a person edited it, and keeps every byte of the lines that stay.

A form of a browser has only '\\n' line ends, no byte order mark and no bytes that are not text. So the new text is
compared with the note line by line: lines that are the same keep their bytes and line ends, and new lines get the line
end of their neighbours and the encoding of the note.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from kept.digest import digest_bytes
from kept.durable import write_atomic
from kept.errors import NoteConflict, NoteTooLarge, PathRefused
from kept.values import frozen
from kept.workspace.change_recorder import ChangeRecorder, recording
from kept.workspace.common_ends import count_common_ends
from kept.workspace.line_edit import require_editable
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.opened import NoteText, OpenWorkspace, encoding_of
from kept.workspace.workspace import Workspace, writing_to

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n)|([^\r\n]+)\Z")


@frozen
class EditableNote:
    """A note and the digest of its bytes, which has to be the same when it is saved."""

    path: str
    note: NoteText
    digest: str


def read_whole(workspace: Workspace, path: str, *, max_bytes: int) -> EditableNote:
    absolute = workspace.locate(path)
    with OpenWorkspace(workspace) as opened:
        note = opened.read(absolute, max_bytes=max_bytes)
    return EditableNote(workspace.cite(absolute), note, digest_bytes(note.raw))


def save_text(
    workspace: Workspace,
    path: str,
    text: str,
    *,
    digest: str,
    max_bytes: int,
    recorder: ChangeRecorder | None = None,
) -> bool:
    """Write the text of a note in one atomic write. Return False if it is the same already.

    Raise NoteConflict, and change nothing, if the note no longer has that digest.
    """
    workspace.require()
    with (
        writing_to(workspace, wait_s=LOCK_WAIT_S),
        OpenWorkspace(workspace) as opened,
    ):
        absolute = require_editable(workspace, path, by_tool=False)
        before = opened.read(absolute, max_bytes=max_bytes).raw
        if digest_bytes(before) != digest:
            raise NoteConflict(f"{path} has changed since you opened it, so nothing was written.")
        data = replace_text(before, text, path)
        if len(data) > max_bytes:
            raise NoteTooLarge(f"{path}: with this it would have more than the limit of {max_bytes:,} bytes.")
        if data == before:
            return False
        with recording(recorder, workspace.cite(absolute), before, data, kind="edit"):
            write_atomic(absolute, data, dir_fd=opened.folder_of(absolute))
    return True


@frozen
class _RawLine:
    """A line of a note: exactly as it is stored, as it is shown, and its line end, which may be empty."""

    exact: str
    shown: str
    end: str


def replace_text(raw: bytes, text: str, path: str) -> bytes:
    """Return the bytes of a note with a new text. Raise PathRefused if bytes that cannot be shown would be lost."""
    mark, codec = encoding_of(raw)
    errors = "surrogateescape" if codec == "utf-8" else "strict"
    try:
        exact = raw[len(mark) :].decode(codec, errors)
        is_exact = mark + exact.encode(codec, errors) == raw
    except UnicodeError:
        is_exact = False
    if not is_exact:
        raise PathRefused(f"{path}: is not valid {codec.upper()}, so it cannot be edited.", hint="Save it as UTF-8.")
    lines = [_raw_line(match) for match in _LINE.finditer(exact)]
    merged = _merge(lines, text.replace("\r\n", "\n").replace("\r", "\n"), path)
    return mark + merged.encode(codec, errors)


def _raw_line(match: re.Match[str]) -> _RawLine:
    exact = match[1] if match[3] is None else match[3]
    shown = exact.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "�")
    return _RawLine(exact, shown, match[2] or "")


def _merge(old: Sequence[_RawLine], text: str, path: str) -> str:
    new = text.split("\n")
    ends_line = new[-1] == ""
    if ends_line:
        new.pop()
    merged = [
        line
        for start, end, first, last in _matching(old, new)
        for line in _block(old[start:end], old[max(0, start - 1) : end + 1], new[first:last], path)
    ]
    usual = next((line.end for line in old if line.end), "\n")
    parts = [line.exact + (line.end or usual) for line in merged[:-1]]
    parts += [line.exact + ((line.end or usual) if ends_line else "") for line in merged[-1:]]
    return "".join(parts)


def _matching(old: Sequence[_RawLine], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return ranges of old lines and of the new lines in their place, also of those that are equal."""
    shown = [line.shown for line in old]
    head, tail = count_common_ends(shown, new)
    middle = difflib.SequenceMatcher(
        None, shown[head : len(shown) - tail], new[head : len(new) - tail], autojunk=len(new) > 2_000
    )
    ranges = [
        (head + start, head + end, head + first, head + last) for _, start, end, first, last in middle.get_opcodes()
    ]
    return [(0, head, 0, head), *ranges, (len(shown) - tail, len(shown), len(new) - tail, len(new))]


def _block(old: Sequence[_RawLine], around: Sequence[_RawLine], new: Sequence[str], path: str) -> list[_RawLine]:
    if [line.shown for line in old] == list(new):
        return list(old)
    if any(line.shown != line.exact for line in old) and any("�" in line for line in new):
        raise PathRefused(
            f"{path}: a line with bytes that cannot be shown (�) was changed, and they would be lost.",
            hint="Leave that line as it is, or save the note as UTF-8 first.",
        )
    end = next((line.end for line in (*old, *around) if line.end), "")
    return [_RawLine(line, line, end) for line in new]
