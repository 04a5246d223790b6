"""Notices between the processes of a team, so that nobody has to poll."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kept.clock import Backoff
from kept.errors import StoreError, UsedAfterClose
from kept.limits import strict_json

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

_WAIT_S = 1.0
"""How long a listener that is stopped may take to notice."""
_MAX_CHANNEL = 63

log = logging.getLogger(__name__)


def _channel(schema: str) -> str:
    """Return the name of a team's channel. Channels are the database's, and other teams may use it too."""
    name = f"kept_{schema}"
    return name if len(name.encode()) <= _MAX_CHANNEL else f"kept_{hashlib.sha256(schema.encode()).hexdigest()[:40]}"


def make_notice(schema: str, topic: str, *, by: str) -> tuple[str, str]:
    """Return the arguments of ``pg_notify`` for a statement that tells the others of a change."""
    return _channel(schema), json.dumps({"topic": topic, "by": by})


def notify(connection: Connection, schema: str, topic: str, *, by: str) -> None:
    """Tell the others that something changed. They are told when the transaction commits."""
    connection.execute("SELECT pg_notify(%s, %s)", make_notice(schema, topic, by=by))


class Listener:
    """Calls ``on_change`` in a thread of its own when others than ``me`` have changed a topic, and after every
    connection, since changes before that were not heard of. ``look`` is called with the connection every second, for
    what must not be missed."""

    def __init__(
        self,
        database: Database,
        topic: str,
        on_change: Callable[[], object],
        *,
        me: str,
        look: Callable[[Connection], object] | None = None,
    ) -> None:
        self._database = database
        self._topic = topic
        self._me = me
        self._on_change = on_change
        self._look = look
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kept-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        backoff = Backoff(0.1, 5.0)
        while not self._stopped.is_set():
            try:
                with self._database.session() as connection:
                    self._listen(connection, backoff)
            except UsedAfterClose:
                return
            except StoreError as exc:
                log.warning("no notices from the database; trying again (%s)", exc.message)
                self._stopped.wait(backoff.next_s())

    def _listen(self, connection: Connection, backoff: Backoff) -> None:
        is_told = self._try_listen(connection)
        backoff.reset()
        self._on_change()
        while not self._stopped.is_set():
            for notice in connection.notifies(timeout=_WAIT_S, stop_after=1):
                if self._concerns(notice.payload):
                    self._on_change()
            if self._look is not None:
                self._look(connection)
            is_told = is_told or self._try_listen(connection)

    def _try_listen(self, connection: Connection) -> bool:
        """Return whether the server tells of changes. A standby does not; then looking has to do."""
        from psycopg import errors, sql

        try:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_channel(self._database.schema))))
        except errors.ReadOnlySqlTransaction:
            if self._look is None:
                raise
            return False
        return True

    def _concerns(self, payload: str) -> bool:
        try:
            notice = strict_json.decode(payload)
        except (ValueError, RecursionError):
            return False
        return isinstance(notice, dict) and notice.get("topic") == self._topic and notice.get("by") != self._me
