"""Which texts go together in one call. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kept.values import frozen

MAX_TOKENS = 8_000
MAX_ITEMS = 256
"""More vectors than this in one answer are megabytes of digits, and a lost answer loses them all."""


@frozen
class Item:
    """A text on its way, and the row that its vector belongs to."""

    row: int
    text: str


def token_bound(text: str) -> int:
    """Rather too many than too few: three bytes a token, which is a word's part in English and a character in Thai."""
    return len(text.encode("utf-8", "replace")) // 3 + 1


def iter_batches(
    items: Sequence[Item], *, max_items: int = MAX_ITEMS, max_tokens: int = MAX_TOKENS
) -> Iterator[list[Item]]:
    """In order, each as full as the limits allow. A text that is over the limit by itself travels alone."""
    batch: list[Item] = []
    tokens = 0
    for item in items:
        weight = token_bound(item.text)
        if batch and (len(batch) >= max_items or tokens + weight > max_tokens):
            yield batch
            batch, tokens = [], 0
        batch.append(item)
        tokens += weight
    if batch:
        yield batch
