"""Groups texts into the calls that embed them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kept.values import frozen

MAX_TOKENS = 8_000
MAX_TEXTS = 256
"""More vectors than this in one answer are megabytes of digits, and a lost answer loses them all."""


@frozen
class BatchText:
    """A text to embed, and the row that its vector belongs to."""

    row: int
    text: str


def token_bound(text: str) -> int:
    """Return an upper estimate of the tokens: one per three bytes, a part of an English word or a Thai character."""
    return len(text.encode("utf-8", "replace")) // 3 + 1


def iter_batches(
    texts: Sequence[BatchText], *, max_texts: int = MAX_TEXTS, max_tokens: int = MAX_TOKENS
) -> Iterator[list[BatchText]]:
    """Yield the texts in order, in batches as full as the limits allow. A text over the limit is a batch alone."""
    batch: list[BatchText] = []
    tokens = 0
    for text in texts:
        text_tokens = token_bound(text.text)
        if batch and (len(batch) >= max_texts or tokens + text_tokens > max_tokens):
            yield batch
            batch, tokens = [], 0
        batch.append(text)
        tokens += text_tokens
    if batch:
        yield batch
