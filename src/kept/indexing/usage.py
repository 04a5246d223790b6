"""Usage and cost of embedding: between two moments, and estimated in advance."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kept.config import MemorySearchSettings
from kept.embedding.base import Embedder
from kept.embedding.registry import find_price
from kept.limits import estimate_tokens
from kept.records import Preview, Spending, Usage


def usage_of(embedder: Embedder | None) -> Usage:
    """Return what a provider on the network has used so far. Local embedders do not count: they cost nothing."""
    usage = getattr(embedder, "usage", None)
    return usage if isinstance(usage, Usage) else Usage()


def spent_since(
    before: Usage, embedder: Embedder, settings: MemorySearchSettings, *, cached: int = 0, texts: int = 0
) -> Spending:
    """Return what was used since ``before``. ``texts`` is the number of embedded texts, for an embedder that does not
    count them."""
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


def price_texts(
    texts: Mapping[bytes, str], cached: Collection[bytes], embedder: Embedder | None, settings: MemorySearchSettings
) -> Preview:
    """Return what it would take to embed the texts that are not in the cache: nothing without an embedder."""
    identity = embedder.identity if embedder else None
    missing = [text for key, text in texts.items() if key not in cached] if identity else []
    tokens = sum(estimate_tokens(text) for text in missing)
    price = find_price(identity.provider, identity.model, settings) if identity else 0.0
    return Preview(
        texts=len(texts),
        cached=len(cached),
        to_embed=len(missing),
        tokens=tokens,
        provider=identity.provider if identity else "none",
        model=identity.model if identity else None,
        cost_usd=None if price is None else price * tokens / 1_000_000,
    )
