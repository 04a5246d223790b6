"""Repair of a damaged index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.file_lock import locked
from kept.sqlite import file_number
from kept.store.repair import describe_repair, repair_file

if TYPE_CHECKING:
    from kept.errors import StoreDamaged
    from kept.indexing.index_handle import IndexHandle
    from kept.reports import Repair

__all__ = ["describe_repair", "repair_index"]


def repair_index(handle: IndexHandle, damage: StoreDamaged, *, is_certain: bool) -> Repair | None:
    """Close the index of a handle and repair it. Return None if nothing had to be changed."""
    index, path = handle.opened_index, handle.path
    opened = index.opened_file if index is not None else None
    handle.close()
    if index is not None and index.why_read_only:
        if is_certain:
            raise damage
        return None  # an immutable connection does not notice a writer: a new one does
    with locked(f"{path}.lock", wait_s=handle.limits.sync_wait_s, purpose="indexing"):
        is_certain = is_certain and opened is not None and file_number(path) == opened
        owner = None if handle.settings.store.path else handle.workspace.root
        return repair_file(path, damage, workspace=owner, is_certain=is_certain)
