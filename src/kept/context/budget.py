"""Division of a model's context window. Pure."""

from __future__ import annotations

from kept.config.schema import CompactionSettings, ContextSettings
from kept.values import frozen

_RESERVE_DIVISOR = 4
"""At most this fraction of the window is reserved for the answer: a quarter."""


@frozen
class Budget:
    """Limits in tokens."""

    window: int
    flush_at: int
    """Size of the context from which facts are flushed to a note."""
    compact_at: int
    """Size of the context from which it is compacted, because the next answer might not fit."""
    keep_recent: int
    """Size of the messages that a compaction keeps verbatim."""
    summary: int
    file: int
    """Limit of each workspace file."""
    files: int
    """Limit of all workspace files together."""
    recalled: int
    message: int
    """Limit of a single message or tool result. A longer one is shown in part."""


def plan_budget(window: int, compaction: CompactionSettings, shares: ContextSettings) -> Budget:
    """Return the configured limits, reduced in proportion if the window is small."""
    compact_at = window - min(compaction.reserve_tokens, window // _RESERVE_DIVISOR)
    margin = min(compaction.memory_flush.soft_threshold_tokens, compact_at // 4)
    keep_recent = min(compaction.keep_recent_tokens, compact_at // 3)
    return Budget(
        window=window,
        flush_at=compact_at - margin,
        compact_at=compact_at,
        keep_recent=keep_recent,
        summary=max(100, min(4_000, compact_at // 8)),
        file=min(shares.file_tokens, compact_at // 8),
        files=min(shares.files_tokens, compact_at // 4),
        recalled=min(shares.recalled_tokens, compact_at // 8),
        message=compact_at // 4,
    )
