"""Two teams in schemas of one database: neither sees, wakes or waits for the other, though locks and notices are the
database's."""

from __future__ import annotations

import os
import threading

import pytest

from kept.agent.events import Inbound
from kept.clock import SystemClock
from kept.ledger import ModelSpending, SharedLedger
from kept.postgres.leases import Lease
from kept.postgres.notifications import Listener, notify
from kept.responder.shared_inbox import SharedInbox
from kept.sessions.session_key import SessionKey
from kept.store.postgres.index import PostgresIndex
from tests.support.teams import Team
from tests.support.waiting import PATIENCE_S
from tests.support.workspaces import open_memory, write_note

KEY = SessionKey("main", "http", "default", "direct", "ada")


@pytest.fixture
def teams(postgres_server):
    start = f"team_{os.urandom(4).hex()}_".ljust(
        60, "x"
    )  # the name of a channel or lock may not end before they differ
    both = [Team(postgres_server, schema=start + end) for end in ("one", "two")]
    yield both
    for team in both:
        team.close()


def test_a_notice_wakes_only_the_team_that_it_is_for(teams):
    one, two = teams
    heard = threading.Semaphore(0)
    listener = Listener(one.database, "weather", heard.release, me="a")
    assert heard.acquire(timeout=PATIENCE_S)  # it listens
    for team in (two, one):  # notices arrive in the order of their commits
        with team.database.writing() as connection:
            notify(connection, team.schema, "weather", by="b")
    assert heard.acquire(timeout=PATIENCE_S)
    listener.stop()
    assert not heard.acquire(blocking=False)


def test_neither_waits_for_a_lock_or_a_lease_of_the_other(teams, tmp_path):
    one, two = teams
    indexes = [PostgresIndex(team.database, "notes") for team in teams]
    ledgers = [
        SharedLedger(team.database, "main", SystemClock(), ModelSpending, unsent=str(tmp_path / "unsent"))
        for team in teams
    ]
    with indexes[0].indexing(wait_s=0), indexes[1].indexing(wait_s=0), ledgers[0].locked():
        other = threading.Thread(target=lambda: _add_nothing(ledgers[1]), daemon=True)
        other.start()
        other.join(PATIENCE_S)
        assert not other.is_alive()
    assert Lease(one.database, "live notes", seconds=60).renew()
    assert Lease(two.database, "live notes", seconds=60).find_owner() is None


def _add_nothing(ledger: SharedLedger[ModelSpending]) -> None:
    with ledger.locked():
        pass


def test_neither_sees_messages_or_notes_of_the_other(teams, tmp_path):
    inboxes = [SharedInbox(team.database, "main", clock=SystemClock()) for team in teams]
    for inbox, text in zip(inboxes, ("Hello one", "Hello two"), strict=True):
        inbox.renew()
        inbox.receive(KEY, Inbound("1", text))
        inbox.catch_up()
    assert [[message.inbound.text for message in inbox.messages()] for inbox in inboxes] == [
        ["Hello one"],
        ["Hello two"],
    ]
    paths = []
    for team, word in zip(teams, ("heron", "otter"), strict=True):
        folder = tmp_path / word
        write_note(folder / "workspace", f"memory/{word}.md", f"The {word} at the weir.\n")
        store = {"driver": "postgres", "url": team.server.url, "schema": team.schema, "workspace": "notes"}
        settings = {f"memory_search.store.{name}": value for name, value in store.items()}
        with open_memory(folder, settings=settings) as memory:
            paths.append([hit.path for hit in memory.search("weir").hits])
    assert paths == [["memory/heron.md"], ["memory/otter.md"]]
