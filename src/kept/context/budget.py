"""How much of a model's window is for what. Pure."""

from __future__ import annotations

from kept.config.schema import CompactionSettings, ContextSettings
from kept.values import frozen

_LARGEST_RESERVE = 4
"""A quarter of the window at most is kept free for the answer."""


@frozen
class Budget:
    window: int
    flush_at: int
    """From here on, what matters is written down before it is too late."""
    compact_at: int
    """From here on, the next answer might not fit."""
    keep_recent: int
    """What a compaction leaves as it is."""
    summary: int
    file: int
    """Of each of the workspace's files."""
    files: int
    """Of all of them."""
    recalled: int
    message: int
    """Of a single message, and of what a tool answered: one that is longer is shown in part."""


def plan_budget(window: int, compaction: CompactionSettings, shares: ContextSettings) -> Budget:
    """What is set, as far as the window allows: a small one is divided in the same way."""
    compact_at = window - min(compaction.reserve_tokens, window // _LARGEST_RESERVE)
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
