"""Gather material for a turn from outside the conversation: workspace files and relevant memories."""

from __future__ import annotations

from collections.abc import Sequence

from kept.agent.events import Inbound
from kept.agent.services import AgentServices
from kept.agent.session_log import SessionLog
from kept.context.context import Budget, RecalledPassage, WorkspaceFile
from kept.context.view import ConversationView
from kept.errors import EmptyQuery, KeptError, NoteNotFound
from kept.limits import estimate_tokens
from kept.memory import Memory
from kept.records import Hit
from kept.values import frozen
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import INFORMING, INSTRUCTING

QUERY_CHARS = 1_000
UNTRUSTED = (
    "SOUL.md and AGENTS.md of {workspace} are data for the model, not instructions: only --workspace or KEPT_WORKSPACE "
    "names that workspace. Name it in config.yaml to make them instructions."
)
_SPARE_HITS = 8
"""Additional hits to search for, since some of the best are in the conversation already."""


@frozen
class TurnMaterial:
    files: tuple[WorkspaceFile, ...] = ()
    recalled: tuple[RecalledPassage, ...] = ()
    problems: tuple[str, ...] = ()
    """Notices for the person about what failed."""


def gather_material(services: AgentServices, log: SessionLog, messages: Sequence[Inbound]) -> TurnMaterial:
    memory, view = services.memory, log.view()
    is_first = len(view.inbound) <= len(messages)
    sync_problems = _sync_at_start(memory) if is_first and memory.settings.sync.on_session_start else []
    loaded = read_files(memory)
    question = "\n".join(message.text for message in messages)
    # The extractive model searches for the question itself and answers with the results.
    limit = services.config.gateway.auto_responder.memory_search_max_results if services.model.writes else 0
    memories = recall(memory, question, view, log.path, loaded.files, budget=services.budget, limit=limit)
    return TurnMaterial(loaded.files, memories.recalled, (*sync_problems, *loaded.problems, *memories.problems))


def _sync_at_start(memory: Memory) -> list[str]:
    """Index changes since the last session, before the first search."""
    try:
        return list(memory.sync().failures)
    except KeptError as exc:
        return [f"The index could not be updated: {exc.message}"]


def read_files(memory: Memory) -> TurnMaterial:
    """Read the workspace files that are part of every prompt. One that cannot be read is reported and left out."""
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
    if not memory.config.trusts_workspace and any(file.name in INSTRUCTING for file in files):
        problems.append(UNTRUSTED.format(workspace=memory.workspace.root))
    return TurnMaterial(tuple(files), problems=tuple(problems))


def recall(
    memory: Memory,
    question: str,
    view: ConversationView,
    path: str,
    files: Sequence[WorkspaceFile],
    *,
    budget: Budget,
    limit: int,
) -> TurnMaterial:
    """Search for memories that are relevant to a question and not in the context already."""
    if limit == 0 or not memory.settings.enabled:
        return TurnMaterial()
    try:
        result = memory.search(question[:QUERY_CHARS], max_results=limit + _SPARE_HITS)
    except EmptyQuery:
        return TurnMaterial()
    except KeptError as exc:
        return TurnMaterial(problems=(f"Nothing was recalled: {exc.message}",))
    shown = _complete_files(files, budget)
    first_line = view.messages[0].line if view.messages else 0
    hits = [hit for hit in result if hit.path not in shown and not (hit.path == path and hit.end_line >= first_line)]
    return TurnMaterial(recalled=tuple(map(_to_passage, hits[:limit])), problems=result.degraded)


def _complete_files(files: Sequence[WorkspaceFile], budget: Budget) -> set[str]:
    """Return the names of the files that are in the prompt as a whole."""
    sizes = {file.name: estimate_tokens(file.text) for file in files}
    if sum(sizes.values()) > budget.files:
        return set()
    return {name for name, size in sizes.items() if size <= budget.file}


def _to_passage(hit: Hit) -> RecalledPassage:
    return RecalledPassage(hit.snippet, hit.citation, hit.timestamp[:10], hit.source)
