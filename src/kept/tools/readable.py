"""What tools answer, as text for a model.

Recalled text is data. Every line of it begins with '> ', so it can neither end its own quotation nor pass for a result
or a citation that the search did not give; the lines without are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kept.records import Hit, Passage, SearchResult, Status, Written

_NOTHING = "Nothing is remembered about that. Other words, or a wider time, may find it."


def quote(text: str) -> str:
    """Whatever a reader might take for the end of a line is one."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"


def search_text(result: SearchResult) -> str:
    parts = [_count(len(result.hits), "result") + ", best first:" if result.hits else _NOTHING]
    parts += [_hit(number, hit) for number, hit in enumerate(result.hits, 1)]
    return "\n\n".join([*parts, *_remarks(result.degraded)])


def _hit(number: int | str, hit: Hit) -> str:
    about = [f"score {hit.score:.2f}", hit.timestamp[:10], _one_line(hit.heading)]
    return f"[{number}] {_one_line(hit.citation)} ({', '.join(filter(None, about))})\n{quote(hit.snippet)}"


def sessions_text(sessions: Sequence[tuple[dict[str, Any], Sequence[Hit]]], degraded: Iterable[str]) -> str:
    parts = [_count(len(sessions), "conversation") + ":" if sessions else "No conversation was found."]
    for number, (shape, hits) in enumerate(sessions, 1):
        title = f" “{_one_line(shape['title'])}”" if shape["title"] else ""
        when = f"{shape['createdAt'][:16].replace('T', ' ')} to {shape['updatedAt'][:16].replace('T', ' ')}"
        parts.append(
            f"[{number}] {_one_line(shape['path'])}{title} ({_one_line(shape['channel'])}, {when}, "
            f"{_count(shape['messageCount'], 'message')})"
        )
        parts += [_hit(f"{number}.{place}", hit) for place, hit in enumerate(hits, 1)]
    return "\n\n".join([*parts, *_remarks(degraded)])


def passage_text(passage: Passage) -> str:
    if not passage.lines:
        return f"{_one_line(passage.path)} has no line {passage.start}."
    last = passage.start + passage.lines - 1
    more = f"\n\nThere is more: read on from line {passage.next_from}." if passage.truncated else ""
    return f"{_one_line(passage.path)}, lines {passage.start} to {last}:\n\n{quote(passage.text)}{more}"


def written_text(written: Written) -> str:
    return f"Written to {_one_line(written.citation)}."


def status_text(status: Status, sessions: int) -> str:
    notes = status.source_counts.get("memory", {})
    talk = status.source_counts.get("sessions", {})
    lines = [
        f"Workspace: {status.workspace}",
        f"Notes in the index: {notes.get('files', 0)} ({_count(notes.get('chunks', 0), 'passage')})",
        f"Conversations in the index: {talk.get('files', 0)} ({_count(talk.get('chunks', 0), 'passage')}), "
        f"of {sessions} in all",
        f"Embeddings: {status.provider}" + (f", {status.model}" if status.model else ""),
        f"Last sync: {status.last_sync or 'never'}",
        f"State: {_state(status)}",
    ]
    problems = (f"{one.path}: {one.reason}" for one in status.problems)
    return "\n\n".join(["\n".join(map(_one_line, lines)), *_remarks((*status.degraded, *problems))])


def _state(status: Status) -> str:
    if not status.dirty:
        return "up to date"
    changed = _count(status.changed_files, "changed file") if status.changed_files else "to be rebuilt"
    return f"{changed}; the next search brings the index up to date"


def _remarks(degraded: Iterable[str]) -> list[str]:
    return [f"Note: {_one_line(reason)}" for reason in degraded]


def _one_line(text: str) -> str:
    """A file's name or a heading may hold anything, line ends included."""
    return " ".join(text.split())


def _count(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"
