"""Reading the meter of an embedder: what it used between two moments, and what that cost."""

from __future__ import annotations

from kept.config import MemorySearch
from kept.embedding.base import Embedder
from kept.embedding.prices import find_price
from kept.records import Spending, Usage


def usage_of(embedder: Embedder | None) -> Usage:
    """What a provider on the network has used so far. Others do not count, because they cost nothing."""
    found = getattr(embedder, "usage", None)
    return found if isinstance(found, Usage) else Usage()


def spent_since(
    before: Usage, embedder: Embedder, settings: MemorySearch, *, cached: int = 0, texts: int = 0
) -> Spending:
    """``texts`` is what was embedded, for an embedder that does not count by itself."""
    now = usage_of(embedder)
    identity = embedder.identity
    tokens = now.tokens - before.tokens
    price = find_price(identity.provider, identity.model, settings)
    return Spending(
        provider=identity.provider,
        model=identity.model,
        calls=now.calls - before.calls,
        texts=(now.texts - before.texts) or texts,
        tokens=tokens,
        cached=cached,
        retries=now.retries - before.retries,
        cost_usd=None if price is None else price * tokens / 1_000_000,
    )
