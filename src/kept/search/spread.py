"""Room for more than one note: further passages of a note step back a little behind the first of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kept.records import ScorePart
from kept.search.fuse import Scored

FURTHER_SHARE = 0.1
"""What a further passage of the same note gives up. Where a note is long and all of it fits, that changes nothing;
where its second passage fits hardly better than another note, the other note has more to tell."""


def spread_notes(ranked: Sequence[Scored], note_of: Callable[[int], str | None]) -> list[Scored]:
    """``note_of`` tells of a row which note it is a passage of; None for a turn of a conversation, whose neighbours are
    shown with it anyway."""
    seen: set[str] = set()
    spread: list[Scored] = []
    for one in ranked:
        note = note_of(one.candidate.row)
        if note is None or note not in seen:
            spread.append(one)
        else:
            spread.append(
                one.plus(ScorePart("same note", -FURTHER_SHARE * one.score, "a better passage of it is shown"))
            )
        if note is not None:
            seen.add(note)
    return sorted(spread, key=Scored.rank)
