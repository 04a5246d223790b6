"""`LeaseKeeper`: takes leases by the clock of the database, and keeps them while this process lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kept.errors import KeptError
from kept.storage.contract import Lease
from kept.storage.postgres.database import Database

LEASE_S = 15
RENEWALS = 3
"""In the time of a lease. A process that is frozen or cut off loses it, and its commits are refused from then on."""
_log = logging.getLogger(__name__)


class LeaseKeeper:
    """One for each process and database: a single thread renews everything that is held."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: dict[tuple[int, str], Lease] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def take(self, root: int, name: str) -> Lease | None:
        """Return a lease; None while somebody else has it."""
        rows = self._database.query(
            "INSERT INTO kept.leases AS l VALUES (%(root)s, %(name)s, 1, clock_timestamp() + %(time)s * interval '1 s')"
            " ON CONFLICT (root, name) DO UPDATE SET number = l.number + 1, expires = excluded.expires"
            " WHERE l.expires <= clock_timestamp() RETURNING number",
            root=root,
            name=name,
            time=LEASE_S,
        )
        if not rows:
            return None
        lease = Lease(name, rows[0][0])
        with self._changed:
            self._held[root, name] = lease
            if self._thread is None or not self._thread.is_alive():  # also the first one in a forked child
                self._thread = threading.Thread(target=self._keep, name="kept-leases", daemon=True)
                self._thread.start()
        return lease

    def give_back(self, root: int, lease: Lease) -> None:
        with self._changed:
            self._held.pop((root, lease.name), None)
            self._changed.notify_all()
        self._report(
            lambda: self._database.query(
                "UPDATE kept.leases SET expires = '-infinity'"
                " WHERE root = %(root)s AND name = %(name)s AND number = %(number)s RETURNING 1",
                root=root,
                name=lease.name,
                number=lease.number,
            )
        )

    def _keep(self) -> None:
        """Renew what is held until nothing is."""
        while True:
            with self._changed:
                self._changed.wait(LEASE_S / RENEWALS)
                if not self._held:
                    self._thread = None
                    return
                held = [(root, lease.name, lease.number) for (root, _), lease in self._held.items()]
            self._report(lambda held=held: self._renew(held))  # type: ignore[misc]

    def _renew(self, held: list[tuple[int, str, int]]) -> None:
        """Renew leases that have not run out. One that has may have a successor that nobody has told yet."""
        roots, names, numbers = zip(*held, strict=True)
        self._database.query(
            "UPDATE kept.leases l SET expires = clock_timestamp() + %(time)s * interval '1 s'"
            " FROM unnest(%(roots)s::bigint[], %(names)s::text[], %(numbers)s::bigint[]) AS h (root, name, number)"
            " WHERE l.root = h.root AND l.name = h.name AND l.number = h.number AND l.expires > clock_timestamp()"
            " RETURNING 1",
            roots=list(roots),
            names=list(names),
            numbers=list(numbers),
            time=LEASE_S,
        )

    def _report(self, act: Callable[[], object]) -> None:
        try:
            act()
        except KeptError as exc:  # the database is away: the lease runs out, and commits with it are refused
            _log.warning("A lease could not be renewed or given back: %s", exc)
