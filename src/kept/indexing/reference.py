"""Reading what a reference means: a path, a citation, a day, or the title of a note."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kept.errors import NoteNotFound, PathRefused
from kept.records import Passage, parse_citation
from kept.sessions.transcript_paths import is_transcript_citation
from kept.workspace.workspace import Workspace, is_markdown, may_be_title

if TYPE_CHECKING:
    from kept.config import Config
    from kept.indexing.memory_view import MemoryView


def read_reference(
    reference: str,
    config: Config,
    workspace: Workspace,
    find_note: Callable[[str], str | None],
    *,
    view: MemoryView | None = None,
    start: int | None = None,
    lines: int | None = None,
) -> Passage:
    """Return lines of a note or a conversation. ``find_note`` is asked for the path of a note by its day or title.
    ``view`` is that of a memory that is bound to a project: what belongs to other projects is refused."""
    path = reference
    if cited := parse_citation(reference):
        path, first, last = cited
        start, lines = start or first, lines or max(1, last - first + 1)
    start = start or 1
    if is_transcript_citation(path):
        from kept.sessions.spoken import read_transcript

        if view:
            view.require_visible(path)
        return read_transcript(config.paths.sessions, path, start=start, lines=lines)
    from kept.workspace.notes import read_passage

    max_bytes = config.memory_search.max_file_bytes
    if may_be_title(path):
        path = find_note(path) or path
        if "." not in path:
            raise NoteNotFound(f"No note has the path, name or title '{path}'.")
    if view:
        view.require_visible(path)
    if "/" in path and not is_markdown(path):
        try:  # memory/ideas is memory/ideas.md
            return read_passage(workspace, f"{path}.md", start=start, lines=lines, max_bytes=max_bytes)
        except (NoteNotFound, PathRefused):
            pass
    return read_passage(workspace, path, start=start, lines=lines, max_bytes=max_bytes)
