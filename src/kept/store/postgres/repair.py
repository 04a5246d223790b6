"""Heals a damaged index in a team's database: what comes from the notes is emptied, and the next sync fills it."""

from __future__ import annotations

import time

from kept.reports import Heal
from kept.store.postgres.index import PostgresIndex
from kept.store.repair import MENDED


def heal_index(index: PostgresIndex, *, is_certain: bool) -> Heal | None:
    """Return None if the index is sound. The caller holds the lock for indexing."""
    if not is_certain and not index.find_damage():
        return None
    with index.writing():
        index.save_codes(now_s=int(time.time()))
        index.start_over()
    index.drop_leftovers()
    return Heal(index.path, MENDED, times=1)
