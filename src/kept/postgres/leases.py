"""Leases: what one process of a team does at a time. A lease that is not renewed ends, and another process takes it.

Times are those of the database, since the clocks of machines differ.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import TYPE_CHECKING

from kept.clock import new_id

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

_TAKE = """
INSERT INTO leases (name, owner, expires) VALUES (%(name)s, %(owner)s, clock_timestamp() + %(seconds)s * interval '1 s')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires
  WHERE leases.owner = excluded.owner OR leases.expires < clock_timestamp()
RETURNING owner
"""


@cache
def _name_process(pid: int) -> str:
    return f"{socket.gethostname()[:100]}:{pid}:{new_id()}"


def process_name() -> str:
    """Return the name of this process, which no other process of the team has."""
    return _name_process(os.getpid())


def take_lease(connection: Connection, name: str, owner: str, seconds: float) -> bool:
    """Take a lease that is free or has ended, or renew one's own. Return whether the owner has it now."""
    row = connection.execute(_TAKE, {"name": name, "owner": owner, "seconds": seconds}).fetchone()
    return row is not None


class Lease:
    """Right of this process to do something alone, as long as it renews it in time."""

    def __init__(self, database: Database, name: str, *, seconds: float) -> None:
        self.name = name
        self.seconds = seconds
        self._database = database

    def renew(self) -> bool:
        """Take or renew the lease. Return whether this process has it."""
        with self._database.writing() as connection:
            return take_lease(connection, self.name, process_name(), self.seconds)

    def find_owner(self) -> str | None:
        """Return the process that has the lease, if any has."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT owner FROM leases WHERE name = %s AND expires > clock_timestamp()", [self.name]
            ).fetchone()
        return str(row[0]) if row else None

    def release(self) -> None:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM leases WHERE name = %s AND owner = %s", [self.name, process_name()])
