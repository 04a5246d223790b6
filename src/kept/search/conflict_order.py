"""Puts a conflict copy after the note that it is a copy of. Pure.

A copy is often newer by its time, and has the same words, so it would push the note out. Passages that only the copy
has stay, right after it. Of passages that both have, the note's comes first, and the copy's counts as a near-duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kept.records import ScorePart
from kept.search.scores import Scored
from kept.store.rows import ChunkRow
from kept.workspace.conflict_copies import are_nearly_same, find_numbered_original, find_original

_BELOW = 1e-6


def put_copies_last(ranked: Sequence[Scored], chunks: Mapping[int, ChunkRow]) -> tuple[list[Scored], frozenset[int]]:
    """Return the ranking with conflict copies after their notes, and the rows of these copies."""
    best: dict[str, Scored] = {}
    for scored in ranked:
        best.setdefault(chunks[scored.candidate.row].path, scored)
    copies = {path: note for path in best if (note := _note_of(path, best, chunks)) is not None}
    if not copies:
        return list(ranked), frozenset()
    rows = frozenset(scored.candidate.row for scored in ranked if chunks[scored.candidate.row].path in copies)
    lowered = [
        _after(scored, best[copies[chunks[scored.candidate.row].path]], copies[chunks[scored.candidate.row].path])
        if scored.candidate.row in rows
        else scored
        for scored in ranked
    ]
    return sorted(lowered, key=lambda scored: -scored.score), rows


def _note_of(path: str, best: Mapping[str, Scored], chunks: Mapping[int, ChunkRow]) -> str | None:
    """Return the note that a path is a conflict copy of, if that was found too."""
    if (note := find_original(path)) is not None:
        return note if note in best else None
    note = find_numbered_original(path)
    if note is None or note not in best:
        return None
    texts = (chunks[best[name].candidate.row].text for name in (path, note))
    return note if are_nearly_same(*texts) else None


def _after(scored: Scored, note: Scored, path: str) -> Scored:
    loss = min(0.0, note.score - _BELOW - scored.score)
    part = ScorePart("conflict copy", max(-scored.score, loss), f"of {path}")
    return scored.plus(part, relevance=min(0.0, note.relevance - scored.relevance))
