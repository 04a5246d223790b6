"""The schedules of an agent in the database of a team: every machine sees them, and each run is asked once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kept.damaged_records import Fault
from kept.postgres.leases import process_name
from kept.postgres.notifications import Listener, notify
from kept.schedules.schedule_book import ScheduleBook, dump_schedules, parse_schedules

if TYPE_CHECKING:
    from kept.postgres.database import Database

_NAME = "schedules"


class SharedScheduleBook:
    """Schedules of an agent, as `ScheduleBookFile` has them in a file."""

    def __init__(self, database: Database, agent: str) -> None:
        self.faults: list[Fault] = []
        self._database = database
        self._agent = agent

    def exists(self) -> bool:
        return True  # as far as can be told without asking the database

    def read(self) -> ScheduleBook:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT content FROM documents WHERE agent = %s AND name = %s", [self._agent, _NAME]
            ).fetchone()
        return self._parse(row[0]) if row else ScheduleBook()

    def change(self, change: Callable[[ScheduleBook], ScheduleBook]) -> ScheduleBook:
        """Change the schedules and return them. Other machines that change them wait."""
        key = [self._agent, _NAME]
        with self._database.writing() as connection:
            empty = dump_schedules(ScheduleBook()).decode()
            connection.execute("INSERT INTO documents VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", [*key, empty])
            row = connection.execute(
                "SELECT content FROM documents WHERE agent = %s AND name = %s FOR UPDATE", key
            ).fetchone()
            before = self._parse(row[0] if row else empty)
            after = change(before)
            if after != before:
                content = dump_schedules(after).decode()
                connection.execute("UPDATE documents SET content = %s WHERE agent = %s AND name = %s", [content, *key])
                notify(connection, self._database.schema, f"schedules {self._agent}", by=process_name())
            return after

    def listen(self, on_change: Callable[[], object]) -> Listener:
        """Call ``on_change`` in another thread when another process changes the schedules."""
        return Listener(self._database, f"schedules {self._agent}", on_change, me=process_name())

    def _parse(self, content: str) -> ScheduleBook:
        book, reasons = parse_schedules(content.encode())
        self.faults = [Fault(f"schedules of {self._agent}", None, reason) for reason in reasons]
        return book
