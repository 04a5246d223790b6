"""State that the machines of a team share besides the inbox: schedules, usage and budget, and who leads."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kept.agent.events import Inbound
from kept.clock import SystemClock
from kept.config import load_config
from kept.errors import ScheduleNotFound, StoreUnreachable
from kept.ledger import open_embedding_ledger, open_model_ledger
from kept.live.leadership import TeamLead, open_leadership
from kept.llm.base import ChatRequest
from kept.llm.metered import MeteredChat
from kept.postgres.database import Database
from kept.postgres.leases import Lease, take_lease
from kept.postgres.notifications import Listener, notify
from kept.remote_errors import BudgetExhausted
from kept.reports import ModelSpending, Spending
from kept.responder.channel import PullChannel
from kept.responder.scheduler import OWN_CHANNEL, Scheduler
from kept.responder.shared_inbox import SharedInbox
from kept.schedules.open_schedules import open_schedules
from kept.schedules.schedule_book import MAX_SCHEDULES, Schedule
from kept.schedules.shared_schedules import SharedScheduleBook
from kept.sessions.session_key import SessionKey
from kept.testing import ScriptedChat
from tests.support.responders import ResponderHarness, reply_to
from tests.support.waiting import PATIENCE_S
from tests.support.workspaces import write_note

MORNING = dt.datetime(2026, 3, 16, 8, 0, tzinfo=dt.UTC)


class StillClock(SystemClock):
    def now(self) -> dt.datetime:
        return MORNING


def make_schedule(number: int = 0, **fields) -> Schedule:
    created = MORNING - dt.timedelta(days=7)
    defaults = {"id": f"a{number}", "when": "every weekday 8:00", "timezone": "UTC", "text": "What is due?", "to": ""}
    return Schedule(**{**defaults, "created": created, **fields})


def test_hosts_that_change_the_schedules_at_once_lose_none(team):
    config = load_config().config

    def add(number: int) -> None:
        open_schedules(config).change(lambda book: book.with_schedule(make_schedule(number)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(20)))
    book = open_schedules(config)
    assert isinstance(book, SharedScheduleBook)
    assert sorted(schedule.id for schedule in book.read().schedules) == sorted(f"a{number}" for number in range(20))
    with pytest.raises(ScheduleNotFound):
        book.change(lambda found: found.without(found.find("nothing")))
    assert len(book.read().schedules) == 20 <= MAX_SCHEDULES


def test_each_due_run_is_asked_once_by_two_gateways(team, tmp_path):
    asked: list[str] = []

    def answer(request: ChatRequest) -> str:
        asked.append("asked")
        return "Two letters."

    async def run() -> None:
        hosts = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            harness = ResponderHarness(tmp_path / name, ScriptedChat(answer))
            inbox = SharedInbox(team.database, "main", clock=SystemClock(), owner=name)
            harness.inbox = lambda inbox=inbox: inbox
            channels = {OWN_CHANNEL: PullChannel()}
            responder = harness.responder(channels)
            await responder.start()
            scheduler = Scheduler(
                responder, harness.memory.config, channels, clock=StillClock(), read_checklist=lambda: ""
            )
            hosts.append((harness, responder, scheduler))
        hosts[0][2].book.change(lambda book: book.with_schedule(make_schedule(1)).with_schedule(make_schedule(2)))
        for _ in range(2):
            await asyncio.gather(*(scheduler.tick() for _, _, scheduler in hosts))
        for number in (1, 2):
            run = await reply_to(hosts[1][1], f"schedule-a{number}-20260316T080000Z", OWN_CHANNEL)
            assert run.reply == "Two letters."
        assert {schedule.last_due for schedule in hosts[1][2].book.read().schedules} == {MORNING}
        for harness, responder, _ in hosts:
            await responder.drain(PATIENCE_S)
            harness.close()

    asyncio.run(run())
    assert len(asked) == 2


def test_usage_of_all_hosts_is_added_up_and_the_budget_is_for_all(team):
    config = load_config().config
    clock = StillClock()

    def spend(number: int) -> None:
        problem = open_embedding_ledger(config, clock).record(Spending("openai", "m", calls=1, tokens=number))
        assert problem is None

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(spend, range(1, 41)))
    (entry,) = open_embedding_ledger(config, clock).by_day()
    assert (entry.calls, entry.tokens, entry.day) == (40, sum(range(1, 41)), "2026-03-16")

    ledger = open_model_ledger(config, clock)
    refused: list[str] = []

    def begin(_: int) -> None:
        model = MeteredChat(ScriptedChat(lambda request: "Hi"), open_model_ledger(config, clock), budget_tokens=100)
        try:
            model._begin("reply", 30)
        except BudgetExhausted as exc:
            refused.append(exc.code)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(begin, range(6)))
    assert len(refused) == 3
    assert sum(entry.input for entry in ledger.by_day()) == 90
    assert all(isinstance(entry, ModelSpending) for entry in ledger.by_day())


def test_usage_without_the_database_counts_for_the_budget_and_is_added_later_once(team, monkeypatch, tmp_path):
    clock = StillClock()
    here = load_config().config
    assert open_model_ledger(here, clock).record(ModelSpending("p", "m", "reply", calls=1, input=10)) is None
    ledger = open_model_ledger(here, clock)
    assert sum(entry.input for entry in ledger.by_day()) == 10

    away = Database(f"postgresql://postgres@/postgres?host={tmp_path}/none", team.schema)
    monkeypatch.setattr(ledger, "_database", away)
    model = MeteredChat(ScriptedChat(lambda request: "Hi"), ledger, budget_tokens=100)
    model._begin("reply", 30)
    model._begin("reply", 50)
    with pytest.raises(BudgetExhausted, match="90 are used"):
        model._begin("reply", 20)

    back = open_model_ledger(here, clock)
    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", lambda path: None)  # as if it was killed when all was stored
        assert back.record(ModelSpending("p", "m", "reply", calls=1, input=1)) is None
    assert back.record(ModelSpending("p", "m", "reply", calls=1, input=1)) is None
    assert sum(entry.input for entry in back.by_day()) == 10 + 30 + 50 + 2
    assert not [name for name in os.listdir(here.paths.folder) if ".unsent-" in name]


def test_one_process_leads_and_another_takes_over(team, tmp_path):
    assert not isinstance(open_leadership(load_config().config), TeamLead)  # only a workspace with a name is shared
    settings = {"memory_search.store.workspace": "notes"}
    first = open_leadership(load_config(home=str(tmp_path / "a"), settings=settings).config)
    assert isinstance(first, TeamLead)
    other = Lease(team.database, first._lease.name, seconds=30)
    assert first.take()
    assert first.is_leader()
    with team.database.writing() as connection:
        assert not take_lease(connection, other.name, "another host", 30)
        connection.execute("UPDATE leases SET expires = clock_timestamp() - interval '1 s'")
    with team.database.writing() as connection:
        assert take_lease(connection, other.name, "another host", 30)
    first._renew_at = 0.0  # its next look
    assert not first.is_leader()
    assert not first.take()
    assert other.find_owner() == "another host"


def test_a_forget_reaches_the_database(team, kept, workspace):
    write_note(workspace, "memory/gate.md", "The gate code is 4711-otter.\n")
    inbox = SharedInbox(team.database, "main", clock=SystemClock())
    key = SessionKey("main", "http", "default", "direct", "ada")
    inbox.receive(key, Inbound("1", "Is the gate code 4711-otter?"))
    inbox.receive(key, Inbound("2", "Hello"))
    told = make_schedule(1, text="Tell Ada that the gate code is 4711-otter.")
    open_schedules(load_config().config).change(lambda book: book.with_schedule(told))
    ended = kept("forget", "4711-otter", "--yes")
    assert ended.code == 0, ended.err
    with team.database.reading() as connection:
        rows = connection.execute("SELECT record FROM inbox_records UNION ALL SELECT content FROM documents").fetchall()
    assert len(rows) == 3
    assert not any("4711" in text for (text,) in rows)
    inbox.catch_up()
    assert [message.inbound.text for message in inbox.messages()] == ["", "Hello"]


def test_a_listener_hears_of_changes_also_after_a_lost_connection(team):
    heard = threading.Semaphore(0)
    listener = Listener(team.database, "weather", heard.release, me="a")
    assert heard.acquire(timeout=PATIENCE_S)  # it listens
    for topic, by in (("tides", "b"), ("weather", "a"), ("weather", "b")):
        with team.database.writing() as connection:
            notify(connection, team.schema, topic, by=by)
    assert heard.acquire(timeout=PATIENCE_S)
    assert not heard.acquire(blocking=False)
    team.end_connections()
    assert heard.acquire(timeout=PATIENCE_S)  # it listens again, and what happened meanwhile may have been missed
    with team.database.writing() as connection:
        notify(connection, team.schema, "weather", by="b")
    assert heard.acquire(timeout=PATIENCE_S)
    listener.stop()


def test_a_lease_of_a_process_without_the_database_is_not_renewed(team, tmp_path):
    database = Database(f"postgresql://postgres@/postgres?host={tmp_path}/none", team.schema)
    with pytest.raises(StoreUnreachable):
        Lease(database, "x", seconds=5).renew()
    database.close()
