"""Writes that wait: the server could not be reached, so this machine keeps them and sends them with the next command.

Each carries an id, by which the server knows one that it has already: an answer may have been lost.
"""

from __future__ import annotations

import json
from typing import Any

from kept.base.json_values import from_tree, to_tree
from kept.base.limits import read_object
from kept.base.values import frozen
from kept.client.server_connection import ServerConnection
from kept.errors import KeptError, LockBusy, LoginRefused, StorageConflict
from kept.storage.contract import Append, Storage
from kept.storage.record_store import RecordLog

OUTBOX = "outbox.jsonl"
REFUSED = "outbox.refused.jsonl"
"""Log of writes that the server refused, with the reasons."""
_LEASE = "outbox"


@frozen
class WaitingWrite:
    id: str
    operation: str
    arguments: dict[str, Any]
    reason: str = ""
    """Why the server refused it."""

    def to_line(self) -> bytes:
        return json.dumps(to_tree(self), ensure_ascii=False).encode("utf-8", "replace")


class Outbox:
    """Writes of one home that wait. Several processes may add to it; one at a time sends."""

    def __init__(self, home: Storage) -> None:
        self._home = home

    def put(self, write: WaitingWrite) -> None:
        self._home.commit([Append(OUTBOX, [write.to_line()])])

    def replace(self, write: WaitingWrite) -> None:
        """Add a write, and remove those with its id."""
        self._remove({write.id})
        self.put(write)

    def read(self) -> list[WaitingWrite]:
        return [*self._log().read()]

    def send(self, connection: ServerConnection) -> list[WaitingWrite]:
        """Send what waits, in order, until the server does not answer. Return what it refused, which is set aside."""
        refused: list[WaitingWrite] = []
        if not self.read():
            return refused
        try:
            with self._home.lease(_LEASE, wait_s=0):
                while (waiting := self.read()) and (done := self._send(waiting, connection, refused)):
                    self._remove(done)
        except LockBusy:
            pass  # another process is sending them
        return refused

    def _send(self, waiting: list[WaitingWrite], connection: ServerConnection, refused: list[WaitingWrite]) -> set[str]:
        """Return the ids of the writes that the server has answered."""
        done: set[str] = set()
        for write in waiting:
            try:
                connection.call(write.operation, object, **write.arguments)
            except KeptError as exc:
                if exc.retryable or isinstance(exc, LoginRefused):  # another token may let them in
                    break
                refusal = WaitingWrite(write.id, write.operation, write.arguments, f"{exc.message} {exc.hint}".strip())
                self._home.commit([Append(REFUSED, [refusal.to_line()])])
                refused.append(refusal)
            done.add(write.id)
        return done

    def _remove(self, done: set[str]) -> None:
        """Remove writes, while others may be added."""
        while True:
            log = self._log()
            rest = [write.to_line() for write in log.read() if write.id not in done]
            try:
                log.rewrite(rest)
                return
            except StorageConflict:
                continue

    def _log(self) -> RecordLog[WaitingWrite]:
        return RecordLog(self._home, OUTBOX, lambda line: from_tree(WaitingWrite, read_object(line)))
