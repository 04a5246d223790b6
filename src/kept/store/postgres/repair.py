"""Repairs a damaged index in a team's database: what comes from the notes is emptied, and the next sync fills it."""

from __future__ import annotations

import time

from kept.reports import REPAIRED, Repair
from kept.store.postgres.index import PostgresIndex


def repair_index(index: PostgresIndex, *, is_certain: bool) -> Repair | None:
    """Return None if the index is sound. The caller holds the lock for indexing."""
    if not is_certain and not index.find_damage():
        return None
    with index.writing():
        index.save_codes(now_s=int(time.time()))
        index.start_over()
    index.drop_leftovers()
    return Repair(index.path, REPAIRED, times=1)
