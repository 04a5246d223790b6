"""What a sync has to do, from what is on disk and what the index knows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kept.records import SourceFile
from kept.store.rows import FileRow
from kept.values import frozen

# File systems stamp a change with a clock that ticks, every 10 ms at the slowest common setting. A file that was
# changed again within the tick in which it was read looks the same, so such a file is read once more.
RACY_NS = 20_000_000


@frozen
class SyncPlan:
    to_read: tuple[SourceFile, ...]
    """New, or changed as far as their state tells; the hash decides."""
    to_remove: tuple[tuple[str, str], ...]
    unchanged: int

    def __bool__(self) -> bool:
        return bool(self.to_read or self.to_remove)


def plan_sync(
    found: Iterable[SourceFile], known: Mapping[tuple[str, str], FileRow], *, everything: bool = False
) -> SyncPlan:
    to_read: list[SourceFile] = []
    seen: set[tuple[str, str]] = set()
    unchanged = 0
    for file in found:
        key = (file.source, file.path)
        seen.add(key)
        if not everything and key in known and is_unchanged(file, known[key]):
            unchanged += 1
        else:
            to_read.append(file)
    removed = tuple(key for key in known if key not in seen)
    return SyncPlan(tuple(to_read), removed, unchanged)


def is_unchanged(file: SourceFile, row: FileRow) -> bool:
    """ctime is looked at too: unlike mtime it cannot be set back by whoever changed the file."""
    same = (file.size, file.mtime_ns, file.ctime_ns) == (row.size, row.mtime_ns, row.ctime_ns)
    return same and row.ctime_ns + RACY_NS < row.checked_ns
