"""From texts to vectors, each paid for once: from the cache if it has them, else from the embedder; and their cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kept.base.clock import Clock
from kept.base.redact import redact
from kept.base.remote_errors import EmbeddingError, VectorMisfit
from kept.base.reports import Spending, Usage
from kept.base.values import frozen
from kept.config.schema import CacheSettings, MemorySearchSettings
from kept.embedding.base import Embedder, usage_of
from kept.embedding.registry import find_price
from kept.index.sqlite.vectors import quantise

if TYPE_CHECKING:
    from kept.index.sqlite.index import Index

_META_MISFIT = "misfit"


@frozen
class Vectors:
    """Codes of the vectors of some texts, by the hash of the text."""

    codes: dict[bytes, bytes]
    """Empty for a text that the embedder refuses: asking again would not help."""
    fresh: int
    """Number of codes from the embedder. The others are from the cache, or from the index."""
    refused: dict[bytes, str]
    """Reasons of the refusals."""
    pending_reason: str | None = None
    """Reason why some texts have no vector yet."""


@dataclass
class Vectoriser:
    """One embedder over one index. A failure is remembered for ``rest_s``."""

    index: Index
    embedder: Embedder
    cache: CacheSettings
    clock: Clock
    rest_s: float
    failure: str = ""
    """Reason of the last failure."""
    _rests_until: float = 0.0
    """Time up to which a failed embedder is not asked again."""
    _in_batches: frozenset[bytes] = frozenset()
    """Texts in a provider's batch: paid for, so not asked for again."""
    _batch_reason: str = ""
    _batches_rest_until: float = 0.0

    def __post_init__(self) -> None:
        stored = self.index.get_meta(_META_MISFIT) or {}
        is_own = stored.get("identity") == self.embedder.identity.key
        self.misfit: str | None = stored["reason"] if is_own else None
        """Reason why no vector of this embedder can be used until the user has asked for a sync."""
        self.is_cheap = bool(getattr(self.embedder, "is_cheap", False))

    # when not to ask

    def failed_recently(self) -> bool:
        return self.misfit is not None or time.monotonic() < self._rests_until

    def pauses(self) -> bool:
        """Return whether the embedder should not be asked now: it failed, or its batch was polled, a moment ago."""
        return self.failed_recently() or time.monotonic() < self._batches_rest_until

    def retry_now(self) -> None:
        """Forget a recent failure, because the user asked for a sync, and notice vectors of another size."""
        self._rests_until = self._batches_rest_until = 0.0
        if self.misfit is not None and not self.index.why_read_only:
            self._store_misfit(None)
        self.learn_dims()

    @property
    def dims(self) -> int:
        """Length of the embedder's vectors, or 0 if only its first answer tells."""
        return self.embedder.identity.dims or getattr(self.embedder, "dims", 0)

    def learn_dims(self) -> None:
        """Ask an embedder of unknown size for one vector if older ones may have another size."""
        if not self.dims and (self.index.cache.exists() or self.index.live.vectors.sizes()):
            with suppress(EmbeddingError):  # which a text that has to be embedded reports
                self.embedder.embed(["size"], role="document")

    def await_batches(self, keys: frozenset[bytes], reason: str) -> None:
        """Do not embed these texts for now; they are in a provider's batch."""
        self._in_batches = keys
        self._batch_reason = reason
        self._batches_rest_until = time.monotonic() + self.rest_s if keys else 0.0

    # vectors

    def get_vectors(self, texts: Mapping[bytes, str], indexed: Mapping[bytes, bytes]) -> Vectors:
        """Return the vectors that the cache or the embedder has. Never raises EmbeddingError: the result names what
        is missing and why. Secrets are redacted before a text is embedded. ``indexed`` are codes of the same embedder
        in the index. New vectors are in the cache at once, since they are paid for, and the next attempt may need
        them."""
        # Computing the vectors of a cheap embedder is as quick as a cache, so they are only in the index.
        known = {key: indexed[key] for key in texts if key in indexed} if self.is_cheap else self._find_cached(texts)
        missing = [key for key in texts if key not in known and key not in self._in_batches]
        awaits_batch = any(key in self._in_batches and key not in known for key in texts)
        batch_reason = self._batch_reason if awaits_batch else None
        fresh: dict[bytes, bytes] = {}
        refused: dict[bytes, str] = {}
        failure: str | None = None
        try:
            if missing:
                matrix = self.embedder.embed([redact(texts[key]) for key in missing], role="document")
                gaps = {missing[gap.row]: gap for gap in matrix.gaps}
                # Codes from here on: nothing compares the floats, and they take four times the space.
                fresh = {key: quantise(row) for key, row in zip(missing, matrix, strict=True) if key not in gaps}
                refused = {key: gap.reason for key, gap in gaps.items() if not gap.temporary}
                failure = next((gap.reason for gap in gaps.values() if gap.temporary), None)
        except EmbeddingError as exc:
            failure = exc.message
            if isinstance(exc, VectorMisfit):
                self._store_misfit(exc.message)
        # Searches go on by word: waiting for a dead service each time would take longer than they do.
        if failure:
            self.failure, self._rests_until = failure, time.monotonic() + self.rest_s
        if self.cache.enabled and not self.is_cheap:
            self._put(fresh, used=known)
        codes = {**known, **fresh, **dict.fromkeys(refused, b"")}
        return Vectors(codes, len(fresh), refused, pending_reason=failure or batch_reason)

    def _find_cached(self, texts: Iterable[bytes]) -> dict[bytes, bytes]:
        return self.index.cache.find(self.embedder.identity.key, texts, self.dims)

    def find_missing(self, texts: Mapping[bytes, str]) -> dict[bytes, str]:
        """Return the texts that the cache has no vector of."""
        known = self._find_cached(texts)
        return {key: text for key, text in texts.items() if key not in known}

    def store(self, vectors: Mapping[bytes, bytes]) -> None:
        """Put the vectors of a batch into the cache, durably. Without caching they stay until the sync ends."""
        self._put({key: quantise(vector) for key, vector in vectors.items()})

    def _put(self, codes: Mapping[bytes, bytes], *, used: Collection[bytes] = ()) -> None:
        now_s = self.clock.time_ns() // 1_000_000_000
        self.index.cache.put(self.embedder.identity.key, codes, used=used, now_s=now_s)

    def _store_misfit(self, reason: str | None) -> None:
        self.misfit = reason
        with self.index.writing():
            self.index.put_meta(_META_MISFIT, {"identity": self.embedder.identity.key, "reason": reason})


# usage and cost


def measure_spending(
    embedder: Embedder, before: Usage, settings: MemorySearchSettings, *, cached: int, texts: int
) -> Spending:
    """Return what an embedder was used for since ``before``. ``texts`` is the number of embedded texts, for an embedder
    that does not count them."""
    now, identity = usage_of(embedder), embedder.identity
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
