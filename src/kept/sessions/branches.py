"""Which of the branches of a session is the one that goes on."""

from __future__ import annotations

from collections.abc import Sequence

from kept.sessions.entries import AnyEntry


def active_branch(entries: Sequence[AnyEntry]) -> tuple[AnyEntry, ...]:
    """The entries that lead to the last one, in order. What stands between an entry and its parent is on another
    branch.

    Where a parent is not among them (its line is damaged, or it stands before the part that was read), the entry is
    taken to follow the one before it: nothing is lost by what cannot be known.
    """
    places = {entry.id: place for place, entry in enumerate(entries) if entry.id is not None}
    branch: list[AnyEntry] = []
    resume = len(entries)
    for place in range(len(entries) - 1, -1, -1):
        if place > resume:
            continue
        entry = entries[place]
        branch.append(entry)
        parent = places.get(entry.parent_id, -1) if entry.parent_id is not None else -1
        resume = parent if 0 <= parent < place else place
    return tuple(reversed(branch))
