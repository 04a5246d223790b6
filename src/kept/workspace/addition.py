"""A text to add to a note, as a value that can be stored, and written now or later."""

from __future__ import annotations

from collections.abc import Iterable

from kept.clock import Clock
from kept.records import NearFact, Written
from kept.values import frozen
from kept.visibility import PRIVATE_FOLDER, PROJECTS_FOLDER
from kept.workspace.change_recorder import ChangeRecorder
from kept.workspace.workspace import Workspace


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


def write_addition(
    workspace: Workspace,
    addition: Addition,
    *,
    clock: Clock,
    max_bytes: int,
    by_tool: bool = False,
    near: Iterable[NearFact] = (),
    recorder: ChangeRecorder | None = None,
) -> Written:
    """Write a text to its note. ``by_tool`` refuses the files that belong to the person."""
    if addition.replaces is not None:
        from kept.workspace.replacement import FactReference, replace_fact

        return replace_fact(
            workspace,
            FactReference.parse(addition.replaces),
            addition.text,
            to=addition.to,
            clock=clock,
            max_bytes=max_bytes,
            by_tool=by_tool,
            folder=addition.folder,
            recorder=recorder,
        )
    from kept.workspace.notes import add_note

    return add_note(
        workspace,
        addition.text,
        to="daily" if addition.to is None else addition.to,
        clock=clock,
        max_bytes=max_bytes,
        by_tool=by_tool,
        folder=addition.folder,
        again=addition.again,
        near=near,
        recorder=recorder,
    )
