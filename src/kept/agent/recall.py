"""What is brought to a turn from outside the conversation: the workspace's files, and memories that may fit."""

from __future__ import annotations

from collections.abc import Sequence

from kept.agent.equipment import Equipment
from kept.agent.events import Inbound
from kept.agent.journal import Journal
from kept.context.budget import Budget
from kept.context.build import INFORMING, INSTRUCTING, Recalled, WorkspaceFile
from kept.context.view import View
from kept.errors import EmptyQuery, KeptError, NoteNotFound
from kept.memory import Memory
from kept.records import Hit
from kept.tokens import estimate_tokens
from kept.values import frozen
from kept.workspace.opened import OpenWorkspace

QUERY_CHARS = 1_000
_SPARE = 8
"""Asked for on top: some of what fits best is in the conversation already."""


@frozen
class Brought:
    files: tuple[WorkspaceFile, ...] = ()
    recalled: tuple[Recalled, ...] = ()
    problems: tuple[str, ...] = ()
    """What did not work, in words."""


def bring(equipment: Equipment, journal: Journal, messages: Sequence[Inbound]) -> Brought:
    memory, view = equipment.memory, journal.view()
    is_first = len(view.asked) <= len(messages)
    problems = _warm_up(memory) if is_first and memory.settings.sync.on_session_start else []
    files = read_files(memory)
    question = "\n".join(message.text for message in messages)
    # Without a model, the question itself is searched for, and the answer is what is found.
    limit = equipment.config.gateway.auto_responder.memory_search_max_results if equipment.has_model else 0
    found = recall(memory, question, view, journal.path, files.files, budget=equipment.budget, limit=limit)
    return Brought(files.files, found.recalled, (*problems, *files.problems, *found.problems))


def _warm_up(memory: Memory) -> list[str]:
    """The session begins: whatever has changed since the last one is taken in before it is asked for."""
    try:
        return list(memory.sync().failures)
    except KeptError as exc:
        return [f"The memory could not be brought up to date: {exc.message}"]


def read_files(memory: Memory) -> Brought:
    """Those of the workspace's files that are there. One that cannot be read does not keep the others out."""
    files: list[WorkspaceFile] = []
    problems: list[str] = []
    with OpenWorkspace(memory.workspace) as opened:
        for name in (*INSTRUCTING, *INFORMING):
            if name == "memory.md" and any(file.name == "MEMORY.md" for file in files):
                continue
            try:
                note = opened.read(memory.workspace.locate(name), max_bytes=memory.settings.max_file_bytes)
                files.append(WorkspaceFile(name, note.text))
            except NoteNotFound:
                continue
            except KeptError as exc:
                problems.append(f"{name} is left out: {exc.message}")
    return Brought(tuple(files), problems=tuple(problems))


def recall(
    memory: Memory, question: str, view: View, path: str, files: Sequence[WorkspaceFile], *, budget: Budget, limit: int
) -> Brought:
    """Memories that may have to do with a question and are not in the context already."""
    if limit == 0 or not memory.settings.enabled:
        return Brought()
    try:
        found = memory.search(question[:QUERY_CHARS], max_results=limit + _SPARE)
    except EmptyQuery:
        return Brought()
    except KeptError as exc:
        return Brought(problems=(f"Nothing was recalled: {exc.message}",))
    shown = _shown_whole(files, budget)
    first_line = view.said[0].line if view.said else 0
    fitting = [hit for hit in found if hit.path not in shown and not (hit.path == path and hit.end_line >= first_line)]
    return Brought(recalled=tuple(map(_recalled, fitting[:limit])), problems=found.degraded)


def _shown_whole(files: Sequence[WorkspaceFile], budget: Budget) -> set[str]:
    sizes = {file.name: estimate_tokens(file.text) for file in files}
    if sum(sizes.values()) > budget.files:
        return set()
    return {name for name, size in sizes.items() if size <= budget.file}


def _recalled(hit: Hit) -> Recalled:
    return Recalled(hit.snippet, hit.citation, hit.timestamp[:10], hit.source)
