"""Embeds all texts with another model before the index switches to it, so that the old vectors answer meanwhile.

The vectors go into the embedding cache, in small transactions and without the lock for indexing. So notes can be
indexed and searched as usual, and a run that is stopped continues where it was. The rebuild afterwards finds every
vector in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from kept.indexing.service import IndexService
from kept.indexing.sync_planner import SyncPlanner
from kept.remote_errors import EmbeddingFailed
from kept.values import frozen

_SLICE_CHARS = 24_000
"""Texts that are embedded and stored together: about ten seconds of work for a small transformer."""


@frozen
class EmbedProgress:
    """Progress of the work. Time is estimated by characters, not by texts, because long texts take longer."""

    texts: int
    total_texts: int
    left_s: float
    """Estimated time left."""


def embed_ahead(service: IndexService, report: Callable[[EmbedProgress], None] | None = None) -> int:
    """Put the vectors of all texts that the index will need into its cache. Return how many were computed.

    Do nothing if the cache is switched off or too small: the rebuild embeds them then.
    """
    service.require_usable()
    with service.inspecting() as (index, planner):
        vectors = planner.vectors
        if vectors is None or not planner.settings.cache.enabled:
            return 0
        missing = _missing_texts(planner)
        if index.cache.count() + len(missing) > planner.settings.cache.max_entries:
            return 0
        texts_done = chars_done = 0
        all_chars, started = sum(map(len, missing.values())), time.monotonic()
        for texts in _iter_slices(missing):
            fetched = vectors.get_vectors(texts)
            vectors.remember(fetched)
            if fetched.pending_reason:
                raise EmbeddingFailed(fetched.pending_reason, hint="What is embedded so far is kept. Try again.")
            texts_done += len(texts)
            chars_done += sum(map(len, texts.values()))
            if report:
                left_s = (time.monotonic() - started) * (all_chars - chars_done) / max(1, chars_done)
                report(EmbedProgress(texts_done, len(missing), left_s))
        return len(missing)


def _missing_texts(planner: SyncPlanner) -> dict[bytes, str]:
    """Return the texts of all files, as a rebuild would embed them, that are not in the cache."""
    scan = planner.scan()
    target = replace(planner.plan_update(scan), files=scan.files, known={})
    texts: dict[bytes, str] = {}
    for batch in planner.reader.iter_batches(target):
        texts |= {key: text for prepared in batch.prepared for key, text in prepared.embed_texts.items()}
    return planner.vectors.find_missing(texts) if planner.vectors else {}


def _iter_slices(texts: dict[bytes, str]) -> Iterator[dict[bytes, str]]:
    """Yield the texts in slices, the longest first."""
    part: dict[bytes, str] = {}
    chars = 0
    for key, text in sorted(texts.items(), key=lambda item: -len(item[1])):
        part[key] = text
        chars += len(text)
        if chars >= _SLICE_CHARS:
            yield part
            part, chars = {}, 0
    if part:
        yield part
