"""Accept, take over and answer messages with three gateways at once: python -m benchmarks.shared_inbox [--messages 600]

Each gateway is a process. Times are of the clock, since what counts is how long they wait for each other.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kept.agent.events import Inbound
from kept.clock import SystemClock
from kept.postgres.database import Database
from kept.postgres.schema_migrations import migrate
from kept.responder.shared_inbox import SharedInbox
from kept.sessions.session_key import SessionKey
from tests.support.postgres_server import start_server, stop_server

GATEWAYS = 3
SCHEMA = "measured"


def _key(number: int) -> SessionKey:
    return SessionKey("main", "http", "default", "direct", f"user{number}")


def _run_gateway(url: str, number: int, messages: int, conversations: int, barrier: Any, results: Any) -> None:
    database = Database(url, SCHEMA)
    inbox = SharedInbox(database, "main", clock=SystemClock(), owner=f"gateway {number}", lease_s=600)
    inbox.renew()
    keys = [str(_key(at)) for at in range(conversations)]

    def accept() -> int:
        for at in range(messages):
            inbox.receive(_key(at % conversations), Inbound(f"{number}-{at}", "Hello"))
        return messages

    def take_over() -> int:
        """Take the conversations of a dead gateway, a few at a time."""
        return sum(len(inbox.claim(keys[at : at + 5])) for _ in range(20) for at in range(0, len(keys), 5))

    def answer() -> int:
        inbox.catch_up()
        answered = 0
        for message in inbox.waiting():
            if inbox.owns(message.key):
                run = inbox.begin([message], "s")
                inbox.answer(run, ["Hi"], push=False, entry_id=None)
                answered += 1
        return answered

    actions: list[Callable[[], int]] = [accept, take_over, answer]
    for action in actions:
        if action is take_over and number == 0:
            with database.writing() as connection:
                connection.execute("UPDATE conversations SET owner = 'dead'")
        if action is take_over:
            inbox._owned.clear()
        barrier.wait()
        began = time.monotonic()
        count = action()
        results.put((action.__name__, count, time.monotonic() - began))
        barrier.wait()
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_inbox", description=__doc__)
    parser.add_argument("--messages", type=int, default=600, help="messages for each gateway (default: 600)")
    parser.add_argument("--conversations", type=int, default=50, help="conversations (default: 50)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-inbox-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = start_server(folder / "data", folder / "s", folder / "log", synchronous_commit="on")
        try:
            url = f"postgresql://postgres@/postgres?host={folder / 's'}"
            database = Database(url, SCHEMA)
            migrate(database, create=True)
            database.close()
            _measure(url, options.messages, options.conversations)
        finally:
            stop_server(server)


def _measure(url: str, messages: int, conversations: int) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(GATEWAYS), context.Queue()
    gateways = [
        context.Process(target=_run_gateway, args=(url, number, messages, conversations, barrier, results), daemon=True)
        for number in range(GATEWAYS)
    ]
    for gateway in gateways:
        gateway.start()
    figures: dict[str, list[tuple[int, float]]] = {}
    for _ in range(3 * GATEWAYS):
        action, count, took_s = results.get(timeout=600)
        figures.setdefault(action, []).append((count, took_s))
    for gateway in gateways:
        gateway.join()
    for action, parts in figures.items():
        total, longest_s = sum(count for count, _ in parts), max(took_s for _, took_s in parts)
        print(f"{action:12} {total:7,} in {longest_s:6.2f} s: {total / longest_s:8,.0f} a second")


if __name__ == "__main__":
    main()
