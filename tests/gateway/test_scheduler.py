"""Schedules and heartbeats: asked once, answered in their conversation, delivered like any reply."""

import asyncio
import datetime as dt
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kept.base.remote_errors import BudgetExhausted
from kept.errors import LockBusy, ScheduleInvalid
from kept.gateway.channel import Channel
from kept.gateway.channels.gateway import hold_gateway_lease
from kept.gateway.responder import Responder
from kept.gateway.scheduler import OWN_CHANNEL, Scheduler, has_entries, target_key
from kept.models.base import ChatRequest
from kept.sessions.schedules.schedule_book import Schedule, open_schedules
from kept.storage.contract import Write
from kept.storage.open import open_agent
from kept.testing import FrozenClock, ScriptedChat
from tests.support.agents import shown
from tests.support.responders import RecordingChannel, ResponderHarness, asked, crash, reply_to, running_responder
from tests.support.waiting import wait_until_async
from tests.support.workspaces import write_note

MORNING = dt.datetime(2026, 3, 16, 8, 0, tzinfo=dt.UTC)
"""A Monday."""
MESSAGE_ID = "schedule-3f2a91-20260316T080000Z"


def schedule(**fields) -> Schedule:
    created = MORNING - dt.timedelta(days=7)
    defaults = {"id": "3f2a91", "when": "every weekday 8:00", "timezone": "UTC", "text": "What is due today?"}
    return Schedule(**{**defaults, "to": "telegram:5054", "created": created, **fields})


class ScheduleHarness:
    """A responder with a list of schedules, a clock that stands still, and a channel that records."""

    def __init__(self, tmp_path, model=None, **heartbeat) -> None:
        self.harness = ResponderHarness(tmp_path, model)
        config = self.harness.memory.config
        settings = replace(config.agent.heartbeat, **heartbeat)
        self.config = replace(config, agent=replace(config.agent, heartbeat=settings))
        self.clock = FrozenClock(MORNING)
        self.channel = RecordingChannel()
        self.channels = {"telegram": self.channel, OWN_CHANNEL: Channel()}
        self.book = open_schedules(config)

    def add(self, **fields) -> None:
        self.book.change(lambda book: book.with_schedule(schedule(**fields)))

    @asynccontextmanager
    async def running(self):
        async with running_responder(self.harness, **self.channels) as responder:
            yield responder, self.scheduler(responder)

    def scheduler(self, responder: Responder) -> Scheduler:
        path = self.harness.memory.workspace.root + "/HEARTBEAT.md"

        def read_checklist() -> str:
            with open(path, encoding="utf-8") as file:
                return file.read()

        return Scheduler(responder, self.config, clock=self.clock, read_checklist=read_checklist)

    def write_checklist(self, text: str) -> None:
        write_note(Path(self.harness.memory.workspace.root), "HEARTBEAT.md", text)

    def close(self) -> None:
        self.harness.close()


@pytest.fixture
def make(tmp_path):
    made = []

    def make_harness(model=None, **heartbeat):
        made.append(ScheduleHarness(tmp_path, model, **heartbeat))
        return made[-1]

    yield make_harness
    for harness in made:
        harness.close()


async def test_a_schedule_is_asked_at_its_time_and_the_reply_is_sent(make):
    at = make(ScriptedChat(lambda request: "Two letters."))
    at.add()
    async with at.running() as (responder, scheduler):
        await scheduler.tick()
        await scheduler.tick()
        await reply_to(responder, MESSAGE_ID, "telegram")
    assert at.channel.sent == [("5054", "Two letters.")]
    (request,) = at.harness.model.requests
    assert asked(request) == "[Scheduled by the person, every weekday 8:00]\nWhat is due today?"
    assert "[Monday 2026-03-16" in shown(request)
    assert at.book.read().schedules[0].last_due == MORNING
    assert [message.role for message in at.harness.said("5054", channel="telegram")] == ["user", "assistant"]


async def test_a_run_that_a_killed_process_accepted_is_not_repeated(make):
    """Killed between the inbox and the list: the list does not know that the run began, the inbox does."""
    at = make(ScriptedChat(lambda request: "Two letters."))
    at.add()
    responder = at.harness.responder(at.channels)
    await responder.start()
    scheduler = at.scheduler(responder)
    at.book.change(lambda book: book)
    before = at.book.read()
    await scheduler.tick()
    await crash(responder)
    at.book.change(lambda _: before)
    assert at.book.read().schedules[0].last_due is None
    async with at.running() as (responder, scheduler):
        await scheduler.tick()
        await reply_to(responder, MESSAGE_ID, "telegram")
    assert [text for _, text in at.channel.sent] == ["Two letters."]
    assert len(at.harness.said("5054", channel="telegram")) == 2


async def test_a_schedule_for_nobody_has_a_session_of_its_own(make):
    at = make(ScriptedChat(lambda request: "Noted."))
    at.add(to="")
    async with at.running() as (responder, scheduler):
        await scheduler.tick()
        await reply_to(responder, MESSAGE_ID, OWN_CHANNEL)
    assert at.channel.sent == []
    assert [message.text for message in at.harness.said("3f2a91", channel=OWN_CHANNEL)][-1] == "Noted."


async def test_a_schedule_for_a_channel_that_is_not_served_says_so_and_is_not_tried_for_ever(make):
    at = make()
    at.add(to="discord:7")
    async with at.running() as (_, scheduler):
        await scheduler.tick()
    (stored,) = at.book.read().schedules
    assert stored.problem == "The gateway serves no channel 'discord'."
    assert stored.last_due == MORNING
    assert at.harness.model.requests == []


async def test_the_scheduler_runs_until_it_is_cancelled_and_outlives_a_damaged_list(make):
    at = make(ScriptedChat(lambda request: "Two letters."))
    at.add()
    good = at.book.read()
    async with at.running() as (_, scheduler):
        open_agent(at.config).commit([Write("schedules.json", b"{")])
        await scheduler.tick()
        at.book.change(lambda _: good)
        task = asyncio.create_task(scheduler.run())
        await wait_until_async(lambda: at.channel.sent)
        task.cancel()
    assert at.channel.texts == ["Two letters."]


@pytest.mark.parametrize(
    ("to", "key"),
    [
        ("telegram:5054", "agent:main:telegram:default:direct:5054"),
        ("telegram:-100777", "agent:main:telegram:default:group:-100777"),
        ("agent:main:telegram:bot2:group:-100", "agent:main:telegram:bot2:group:-100"),
        ("", "agent:main:schedule:default:direct:x"),
    ],
)
def test_targets_are_keys_of_conversations(to, key):
    assert str(target_key(to, "main", own_id="x")) == key


@pytest.mark.parametrize("to", ["telegram", "agent:other:telegram:default:direct:5054", "telegram:"])
def test_a_target_that_cannot_be_read_is_refused(to):
    with pytest.raises(ScheduleInvalid):
        target_key(to, "main", own_id="x")


# heartbeat


def beat(at, *times: int) -> None:
    """Look at the heartbeat at these minutes after the morning."""

    async def scenario():
        async with at.running() as (_, scheduler):
            for minutes in times:
                at.clock.move(seconds=(MORNING + dt.timedelta(minutes=minutes) - at.clock.now()).total_seconds())
                await scheduler.tick()

    asyncio.run(scenario())


CHECKLIST = "# Heartbeat\n\n- Remind me of what is due today.\n"


def test_a_heartbeat_reads_the_checklist_and_sends_what_needs_attention(make):
    at = make(ScriptedChat(lambda request: "The letter is due."), every="30m", target="telegram:5054")
    at.write_checklist(CHECKLIST)
    beat(at, 0, 10, 29)
    beat(at, 30)
    assert at.channel.sent == [("5054", "The letter is due."), ("5054", "The letter is due.")]
    assert len(at.harness.model.requests) == 2
    assert "Go through HEARTBEAT.md" in asked(at.harness.model.requests[0])
    assert at.harness.said("5054", channel="telegram") == [], "it has a session of its own"


@pytest.mark.parametrize("answer", ["NO_REPLY", "HEARTBEAT_OK", "**HEARTBEAT_OK**", "HEARTBEAT_OK."])
def test_a_heartbeat_without_anything_to_say_is_silent(make, answer):
    at = make(ScriptedChat(lambda request: answer), every="30m", target="telegram:5054")
    at.write_checklist(CHECKLIST)
    beat(at, 0)
    assert len(at.harness.model.requests) == 1
    assert at.channel.sent == []


def test_a_heartbeat_that_fails_is_silent_too(make):
    def exhausted(request: ChatRequest):
        raise BudgetExhausted("The budget is used up.")

    at = make(ScriptedChat(exhausted), every="30m", target="telegram:5054")
    at.write_checklist(CHECKLIST)
    beat(at, 0)
    assert at.channel.sent == []
    at.add()
    beat(at, 1)
    assert at.channel.texts == ["Today's budget for the model is used up. Try again tomorrow."]


@pytest.mark.parametrize("checklist", ["", "# Heartbeat\n", "# Heartbeat\n\n<!-- - Something\n- more -->\n- \n- [ ]\n"])
def test_an_empty_checklist_costs_nothing(make, checklist):
    at = make(every="30m", target="telegram:5054")
    at.write_checklist(checklist)
    beat(at, 0)
    assert at.harness.model.requests == []
    assert not has_entries(checklist)


def test_a_heartbeat_is_not_found_by_a_search(make):
    at = make(ScriptedChat(lambda request: "The letter is due."), every="30m")
    at.write_checklist(CHECKLIST)
    beat(at, 0)
    beat(at, 30)
    hits = at.harness.memory.search("go through the heartbeat, person's attention", source="sessions").hits
    assert not any("Go through" in hit.snippet for hit in hits)


def test_of_two_gateways_on_one_home_only_one_runs_schedules(make):
    config = make().config
    with ExitStack() as held:
        hold_gateway_lease(config, held)
        with pytest.raises(LockBusy):
            hold_gateway_lease(config, held)
