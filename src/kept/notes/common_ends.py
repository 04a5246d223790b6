"""Lines or words that two texts share at both ends: a comparison needs to look only at the rest."""

from __future__ import annotations

from collections.abc import Sequence


def count_common_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Return how many items are the same in both: at the start, and at the end of the rest."""
    head = _count_common(old, new)
    rest = min(len(old), len(new)) - head
    return head, _count_common(old[len(old) - rest :][::-1], new[len(new) - rest :][::-1])


def _count_common(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the common beginning, by halving: comparing slices is quicker than a loop over items."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
