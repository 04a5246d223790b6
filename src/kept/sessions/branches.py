"""The branch of a session that the conversation continues on. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kept.sessions.entries import AnyEntry


def active_branch(entries: Sequence[AnyEntry]) -> tuple[AnyEntry, ...]:
    """Return the entries that lead to the last one, in order. Entries between an entry and its parent are on another
    branch.

    If the parent of an entry is missing (its line is damaged, or before the part that was read), the entry is taken to
    follow the previous one, so that nothing is lost.
    """
    positions = {entry.id: position for position, entry in enumerate(entries) if entry.id is not None}
    branch: list[AnyEntry] = []
    resume = len(entries)
    for position in range(len(entries) - 1, -1, -1):
        if position > resume:
            continue
        entry = entries[position]
        branch.append(entry)
        parent = positions.get(entry.parent_id, -1) if entry.parent_id is not None else -1
        resume = parent if 0 <= parent < position else position
    return tuple(reversed(branch))
