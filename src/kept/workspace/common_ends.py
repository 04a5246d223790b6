"""Lines or words that two texts share at both ends: a comparison needs to look only at the rest."""

from __future__ import annotations

from collections.abc import Sequence


def count_common_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Return how many items are the same in both: at the start, and at the end of the rest."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail
