"""When something in the background should sync of its own accord. Pure.

A search needs no trigger: it takes in whatever was said before it answers, since only the end of a transcript is read
for that. These thresholds are for programs that keep the index current while nobody searches, so that the next search
finds little left to do, and no turn of a lively conversation costs a sync of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from kept.config.schema import SessionSyncSettings
from kept.values import frozen


@frozen
class Growth:
    """What was added to one transcript since it was last taken in."""

    size: int = 0
    messages: int = 0


def should_sync(growths: Iterable[Growth], thresholds: SessionSyncSettings) -> bool:
    """Whether one transcript has grown by enough bytes or messages. A threshold of 0 is any growth at all."""
    return any(
        growth.size >= max(1, thresholds.delta_bytes) or growth.messages >= max(1, thresholds.delta_messages)
        for growth in growths
    )
