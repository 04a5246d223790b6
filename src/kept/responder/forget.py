"""/forget: find passages of the notes, and remove them after a confirmation.

The proposal is saved in the session as a state, without the text. So it can be confirmed after a restart, and a passage
that has changed since is left as it is.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

from kept.errors import PathRefused
from kept.memory import Memory
from kept.records import Hit, Source, cite
from kept.search.query import parse_query
from kept.sessions.entries import StateEntry
from kept.sessions.store import SessionStore
from kept.values import frozen
from kept.workspace.change_recorder import Author
from kept.workspace.removal import LineRemoval, Removed, remove_passages

STATE = "forget"
_MAX_MATCHES = 5
_PROPOSAL_LIFETIME = dt.timedelta(hours=1)
_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(?:```|~~~)")


@frozen
class ForgetMatch:
    """Paragraph or list item of a note."""

    path: str
    start_line: int
    text: str

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.start_line + self.text.count("\n"))


@frozen
class ForgetSearch:
    """Passages that can be removed, and hits that cannot: in extra paths and in conversations."""

    matches: list[ForgetMatch]
    extra_hits: list[Hit]
    transcript_hits: list[Hit]


def find_matches(memory: Memory, query: str) -> ForgetSearch:
    """Return paragraphs and list items of the best hits in notes of the workspace: those with a word of the query, or
    all of a hit that has none. Extra paths and conversations are never changed."""
    words = {term.text.casefold() for term in parse_query(query).terms}
    matches: dict[tuple[str, int], ForgetMatch] = {}
    hits = _certain_hits(memory, query, "memory", 2 * _MAX_MATCHES)
    removable = [hit for hit in hits if _is_own(memory, hit.path)]
    for hit in removable[:_MAX_MATCHES]:
        lines = memory.read(hit.path, start=hit.start_line, lines=hit.end_line - hit.start_line + 1)
        passages = split_passages(hit.path, hit.start_line, lines.text)
        naming = [passage for passage in passages if any(word in passage.text.casefold() for word in words)]
        matches.update(((passage.path, passage.start_line), passage) for passage in naming or passages)
    transcript_hits: list[Hit] = []
    if "sessions" in memory.settings.sources:
        transcript_hits = _certain_hits(memory, query, "sessions", _MAX_MATCHES)
    extra_hits = [hit for hit in hits if hit not in removable][:_MAX_MATCHES]
    return ForgetSearch(list(matches.values())[:_MAX_MATCHES], extra_hits, transcript_hits)


def _is_own(memory: Memory, path: str) -> bool:
    try:
        memory.workspace.require_own(memory.workspace.locate(path), path)
    except PathRefused:
        return False
    return True


def _certain_hits(memory: Memory, query: str, source: Source, max_results: int) -> list[Hit]:
    """Return the passages that are not weak, best first."""
    passages = memory.search(query, source=source, max_results=max_results).passages
    return sorted((passage for passage in passages if passage.grade != "weak"), key=lambda passage: -passage.score)


def split_passages(path: str, first_line: int, text: str) -> list[ForgetMatch]:
    """Return the paragraphs and list items of a text. Headings are left out, so that they stay in the note."""
    passages: list[ForgetMatch] = []
    current: list[str] = []
    start = first_line
    fenced = False

    def close() -> None:
        if current:
            passages.append(ForgetMatch(path, start, "\n".join(current)))
            current.clear()

    for number, line in enumerate(text.split("\n"), first_line):
        heading = not fenced and line.startswith("#")
        if not fenced and (not line.strip() or heading or _ITEM.match(line)):
            close()
        if _FENCE.match(line):
            fenced = not fenced
        if heading or (not line.strip() and not fenced):
            continue
        if not current:
            start = number
        current.append(line)
    close()
    return passages


def save_proposal(sessions: SessionStore, session_id: str, matches: Sequence[ForgetMatch]) -> None:
    removals = [LineRemoval.of(match.path, match.start_line, match.text) for match in matches]
    value = {
        "asked": sessions.clock.now().isoformat(),
        "cuts": [[removal.path, removal.start_line, removal.end_line, removal.digest] for removal in removals],
    }
    sessions.append(session_id, StateEntry(STATE, value))


def find_proposal(sessions: SessionStore, session_id: str) -> list[LineRemoval]:
    """Return the proposal of the last hour that was neither confirmed nor declined."""
    value: Any = sessions.get(session_id).state.get(STATE)
    try:
        if sessions.clock.now() - dt.datetime.fromisoformat(value["asked"]) > _PROPOSAL_LIFETIME:
            return []
        return [LineRemoval(str(path), int(start), int(end), str(digest)) for path, start, end, digest in value["cuts"]]
    except (TypeError, KeyError, ValueError, OverflowError):
        return []  # no proposal, or a damaged one


def drop_proposal(sessions: SessionStore, session_id: str) -> None:
    sessions.append(session_id, StateEntry(STATE, None))


def forget(memory: Memory, removals: Sequence[LineRemoval], *, session_id: str | None = None) -> Removed:
    """Remove passages from the notes, and keep a copy of them."""
    author = Author(memory.config.agent_id, session_id, "/forget", person="chat")
    return remove_passages(
        memory.workspace,
        removals,
        kept_in=memory.config.paths.forgotten,
        clock=memory.clock,
        max_bytes=memory.settings.max_file_bytes,
        recorder=memory.recorder(author),
    )
