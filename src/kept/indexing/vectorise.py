"""From texts to vectors, each paid for once: out of the cache where they are known, from the embedder where not."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kept.clock import Clock
from kept.config import CacheSettings
from kept.embedding.base import Embedder
from kept.errors import EmbeddingError
from kept.records import Gap
from kept.redact import redact
from kept.store.index import Index
from kept.values import frozen

EMBEDDER_REST_S = 30.0
"""After a failure the searches of the next moments do not ask the embedder again for what is missing."""
MAX_REFUSALS = 10_000
_META_REFUSED = "refused"


@frozen
class Vectors:
    """The vectors of some texts, by the hash of the text."""

    known: dict[bytes, bytes]
    fresh: dict[bytes, bytes]
    refused: dict[bytes, str]
    """Texts that the embedder does not take, with its reason. Asking again would not help."""
    waiting: str | None = None
    """Why some of the texts have no vector yet."""

    def find(self, key: bytes) -> bytes | None:
        return self.known.get(key) or self.fresh.get(key)


class Vectoriser:
    """One embedder over one index. What it refuses is remembered across processes, that it failed for a moment."""

    def __init__(self, index: Index, embedder: Embedder, cache: CacheSettings, clock: Clock) -> None:
        self.index = index
        self.embedder = embedder
        self.cache = cache
        self.clock = clock
        self.failed_at: float | None = None
        self.refused = self._stored_refusals()
        self.held: frozenset[bytes] = frozenset()
        """Texts that are paid for and on their way. They are not asked for again."""
        self._held_reason = ""
        self._held_since: float | None = None

    def rests(self) -> bool:
        return self.failed_at is not None and time.monotonic() - self.failed_at < EMBEDDER_REST_S

    def awaits_held(self) -> bool:
        """Whether texts are on their way, and were looked for a moment ago. That is no failure of the embedder."""
        return self._held_since is not None and time.monotonic() - self._held_since < EMBEDDER_REST_S

    def look_again(self) -> None:
        self.failed_at = None
        self._held_since = None

    def vectors_of(self, texts: Mapping[bytes, str]) -> Vectors:
        """Never raises EmbeddingError: what is missing, and why, is part of the answer. No secret leaves here."""
        known = self.find_cached(texts)
        missing = [key for key in texts if key not in known and key not in self.refused and key not in self.held]
        on_their_way = self._held_reason if any(key in self.held and key not in known for key in texts) else None
        if not missing:
            return Vectors(known, {}, {}, waiting=on_their_way)
        try:
            matrix = self.embedder.embed([redact(texts[key]) for key in missing], role="document")
        except EmbeddingError as exc:
            self.failed_at = time.monotonic()
            return Vectors(known, {}, {}, waiting=exc.message)
        gaps = {missing[gap.row]: gap for gap in matrix.gaps}
        fresh = {key: row for key, row in zip(missing, matrix, strict=True) if key not in gaps}
        return Vectors(known, fresh, self._note_refusals(gaps), waiting=self._note_waiting(gaps) or on_their_way)

    def find_cached(self, texts: Mapping[bytes, str]) -> dict[bytes, bytes]:
        identity = self.embedder.identity
        with self.index.reading():
            return self.index.cache.find(identity.key, texts, identity.dims)

    def find_missing(self, texts: Mapping[bytes, str]) -> dict[bytes, str]:
        known = self.find_cached(texts)
        return {key: text for key, text in texts.items() if key not in known and key not in self.refused}

    def remember(self, vectors: Vectors) -> None:
        """Puts into the cache what was paid for. Inside a transaction of the caller's."""
        if self.cache.enabled:
            key, now_s = self.embedder.identity.key, self.clock.time_ns() // 1_000_000_000
            self.index.cache.put(key, vectors.fresh.items(), now_s=now_s)
            self.index.cache.used(key, vectors.known, now_s=now_s)

    def hold(self, keys: frozenset[bytes], reason: str) -> None:
        self.held = keys
        self._held_reason = reason
        self._held_since = time.monotonic() if keys else None

    def keep(self, vectors: Mapping[bytes, bytes]) -> None:
        """Puts into the cache what came by another way. At least until the end of a sync, it is kept there."""
        if vectors:
            with self.index.writing():
                now_s = self.clock.time_ns() // 1_000_000_000
                self.index.cache.put(self.embedder.identity.key, vectors.items(), now_s=now_s)

    def forget_refusals(self) -> None:
        self.refused = set()

    def _note_refusals(self, gaps: dict[bytes, Gap]) -> dict[bytes, str]:
        refused = {key: gap.reason for key, gap in gaps.items() if not gap.temporary}
        if refused:
            self.refused |= set(refused)
            hashes = sorted(key.hex() for key in self.refused)[:MAX_REFUSALS]
            with self.index.writing():
                self.index.put_meta(_META_REFUSED, {"identity": self.embedder.identity.key, "hashes": hashes})
        return refused

    def _note_waiting(self, gaps: dict[bytes, Gap]) -> str | None:
        reason = next((gap.reason for gap in gaps.values() if gap.temporary), None)
        if reason:
            self.failed_at = time.monotonic()
        return reason

    def _stored_refusals(self) -> set[bytes]:
        match self.index.get_meta(_META_REFUSED):
            case {"identity": str(identity), "hashes": [*hashes]} if identity == self.embedder.identity.key:
                return {bytes.fromhex(key) for key in hashes}
        return set()
