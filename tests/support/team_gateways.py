"""Gateways of a team on machines of their own, and what became of the messages that they accepted."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import httpx

from kept.clock import SystemClock
from kept.postgres.database import Database
from kept.responder.answer_run import message_status
from kept.responder.shared_inbox import SharedInbox
from tests.support.gateway_processes import ForkedProcess
from tests.support.waiting import wait_until

SETTINGS = (
    "gateway.http.port=0",
    "gateway.http.debounce_ms=5",
    "gateway.lease_seconds=1",
    "gateway.auto_responder.max_queued=1000",
    "gateway.auto_responder.max_queued_per_conversation=1000",
    "memory_search.provider=none",
    "memory_search.sources=memory",
    "memory_search.sync.watch=false",
)


class GatewayHost:
    """A host with a home of its own, and the gateway that runs on it."""

    def __init__(self, path: Path, environment: dict[str, str]) -> None:
        (path / "workspace").mkdir(parents=True)
        self._path = path
        self._environment = environment
        self.start()

    def start(self) -> None:
        self.gateway = ForkedProcess(self._path, *SETTINGS, **self._environment)
        self.url = ""

    def kill(self) -> None:
        self.gateway.kill()

    def post(self, user: str, message_id: str) -> bool:
        """Post a message. Return whether it was accepted."""
        self.url = self.url or self.gateway.url()
        body = {"user": user, "text": f"Hello <<{message_id}>>", "id": message_id, "wait": False}
        try:
            answer = httpx.post(f"{self.url}/v1/messages", json=body, timeout=30)
        except httpx.TransportError:
            return False
        assert answer.status_code in (202, 503), answer.text
        return answer.status_code == 202


def wait_for_answers(database: Database) -> SharedInbox:
    """Return the inbox when every message in it is answered."""
    inbox = SharedInbox(database, "main", clock=SystemClock(), owner="test")

    def is_done() -> bool:
        inbox.catch_up()
        return not inbox.waiting() and not inbox.unfinished()

    wait_until(is_done, "every message is answered")
    return inbox


def count_wrong(inbox: SharedInbox, accepted: list[str]) -> dict[str, int]:
    """Return how many accepted messages are lost, answered twice, or answered before an earlier one of their user.

    The id of a message ends with "-" and its user.
    """
    messages = inbox.messages()
    runs = inbox._runs
    with inbox.database.reading() as connection:
        rows = connection.execute(
            "SELECT kind, name FROM inbox_records WHERE kind IN ('received', 'answered') ORDER BY seq"
        ).fetchall()
    answered = {message.id for message in messages if message_status(inbox.find_run(message)) == "answered"}
    members = Counter(message_id for run in runs.values() for message_id in run.message_ids)
    replies = {message_id: run.reply or "" for run in runs.values() for message_id in run.message_ids}
    order = {name: at for at, (kind, name) in enumerate(rows) if kind == "answered"}
    users: dict[str, list[int]] = {}
    for message in messages:
        run = inbox.find_run(message)
        users.setdefault(message.id.rpartition("-")[2], []).append(order[run.id] if run else -1)
    return {
        "lost": sum(name not in answered or f"<<{name}>>" not in replies[name] for name in accepted),
        "twice": sum(count > 1 for count in (*Counter(rows).values(), *members.values())),
        "out of order": sum(a > b for places in users.values() for a, b in pairwise(places)),
    }
