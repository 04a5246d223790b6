"""Interface by which writers of notes report changes to the history, without knowing how they are stored."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

from kept.base.values import frozen

ChangeKind = Literal["baseline", "add", "edit", "remove", "rename", "import", "undo", "by_hand", "forget"]
"""Kind of a change. ``baseline``: the note as it was when the history first saw it. ``by_hand``: made by another
program, such as an editor, and noticed afterwards. ``forget``: it removed a text for good, and cannot be taken back."""


@frozen
class Author:
    """The author of a change. Every part may be missing."""

    agent: str | None = None
    """Id of the agent whose memory was changed."""
    session: str | None = None
    tool: str | None = None
    """Tool or command that wrote, such as ``memory_write`` or ``kept add``."""
    person: str | None = None
    client: str | None = None
    """Program that called the tool, such as an MCP client."""

    @property
    def description(self) -> str:
        """Who it was, for people: the client or the person, and the tool; or else the agent."""
        names = [name for name in (self.client or self.person, self.tool) if name]
        return ", ".join(names) or self.agent or "another program"


class ChangeRecorder(Protocol):
    """Records changes of notes. It never stops a write: a failure becomes a notice."""

    notices: list[str]

    def writing(
        self, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind, was: str | None = None
    ) -> AbstractContextManager[None]:
        """Record the change of a note that happens inside the ``with`` block.

        None stands for a note that does not exist. ``was`` is the old path of a note that is renamed. The caller
        holds the lock of the workspace. If the block raises, nothing is recorded.
        """
        ...

    def join(self) -> None:
        """Make the next change a part of the last one: they are taken back together."""
        ...


def recording(
    recorder: ChangeRecorder | None, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind
) -> AbstractContextManager[None]:
    """Return the context in which to write a note, with or without a recorder."""
    return nullcontext() if recorder is None else recorder.writing(path, before, after, kind=kind)
