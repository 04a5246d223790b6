"""A text to add to a note, as a value that can be stored, and written now or later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kept.base.records import NearFact, Written
from kept.base.values import frozen
from kept.base.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER

if TYPE_CHECKING:
    from kept.notes.note_writer import NoteWriter


@frozen
class Addition:
    text: str
    to: str | None = None
    """'daily', 'memory' or the path of a note; None is today's log, or beside the line that is replaced."""
    replaces: str | None = None
    """Citation of a line that is struck through."""
    again: bool = False
    """True to write a line that the notes have already."""
    project: str | None = None
    private: str | None = None
    """Folder in memory/private of the person or group that it is for."""

    @property
    def folder(self) -> str | None:
        """Folder whose log and MEMORY.md are meant, or None for the shared ones."""
        if self.private is not None:
            return f"{PRIVATE_FOLDER}/{self.private}"
        return f"{PROJECTS_FOLDER}/{self.project}" if self.project else None


def write_addition(writer: NoteWriter, addition: Addition, near: Iterable[NearFact] = ()) -> Written:
    """Write a text to its note."""
    if addition.replaces is not None:
        from kept.notes.replacement import FactReference, replace_fact

        return replace_fact(
            writer, FactReference.parse(addition.replaces), addition.text, to=addition.to, folder=addition.folder
        )
    to = "daily" if addition.to is None else addition.to
    return writer.add(addition.text, to, folder=addition.folder, again=addition.again, near=near)
