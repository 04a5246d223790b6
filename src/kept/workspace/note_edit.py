"""Replaces the text of a whole note as a person edited it, in the encoding and with the line ends of the note.

A form of a browser has neither. A note with several kinds of line ends gets those of its first line.
"""

from __future__ import annotations

import re

from kept.digest import digest_bytes
from kept.durable import write_atomic
from kept.errors import NoteConflict, NoteTooLarge, PathRefused
from kept.values import frozen
from kept.workspace.change_recorder import ChangeRecorder, recording
from kept.workspace.line_edit import require_editable
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.opened import NoteText, OpenWorkspace, decode, encoding_of
from kept.workspace.workspace import Workspace, writing_to


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
