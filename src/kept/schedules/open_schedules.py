"""Opens the schedules of an agent where the settings keep them: in a file, or in the database of a team."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kept.config import Config
from kept.damaged_records import Fault
from kept.schedules.schedule_book import ScheduleBook, ScheduleBookFile


class ScheduleStore(Protocol):
    faults: list[Fault]
    """What the last reading left out, and why."""

    def exists(self) -> bool:
        """Return False if there are certainly no schedules."""
        ...

    def read(self) -> ScheduleBook: ...

    def change(self, change: Callable[[ScheduleBook], ScheduleBook]) -> ScheduleBook: ...


def open_schedules(config: Config) -> ScheduleStore:
    if not config.memory_search.store.is_shared:
        return ScheduleBookFile(config.paths.schedules)
    from kept.postgres.open_database import open_database
    from kept.schedules.shared_schedules import SharedScheduleBook

    return SharedScheduleBook(open_database(config.memory_search.store), config.agent_id)
