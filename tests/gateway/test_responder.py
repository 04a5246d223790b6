"""From a message that was accepted to a reply that was delivered."""

import asyncio
import datetime as dt
from dataclasses import replace

import pytest

from kept.agent.events import GroupLine, Inbound, ReplyDelta
from kept.base.remote_errors import ConversationFull, QueueFull
from kept.gateway.channel import Channel, ResponderTiming
from kept.gateway.conversation_queue import EventReplay
from kept.gateway.dispatcher import Dispatcher
from kept.gateway.inbox import message_status
from kept.testing import ScriptedChat, Stall
from tests.support.responders import RecordingChannel, ResponderHarness, asked, crash, reply_to, running_responder, tell
from tests.support.session_strategies import NOW
from tests.support.waiting import PATIENCE_S, wait_until_async

MINUTES = 60_000


@pytest.fixture
def open_harness(tmp_path):
    opened = []

    def make(model=None, **settings) -> ResponderHarness:
        opened.append(ResponderHarness(tmp_path, model, **settings))
        return opened[-1]

    yield make
    for harness in opened:
        harness.close()


class Gate:
    """A model that does not answer before it is let to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.model = ScriptedChat(lambda request: [Stall(self.open), f"Re: {asked(request)}"])

    @property
    def waiting(self) -> int:
        return len(self.model.requests)


async def test_messages_that_come_close_together_are_one_turn(open_harness):
    harness = open_harness()
    async with running_responder(harness, http=Channel(debounce_ms=10 * MINUTES)) as responder:
        for number, text in enumerate(["I was wondering", "about the port", "of staging"]):
            await tell(responder, harness.key(), text, f"m{number}")
        assert message_status(responder.get("http", "m0")[1]) == "waiting"
    assert len(harness.model.requests) == 1
    run = harness.inbox().find_run(harness.inbox().find("http", "m0"))
    assert run.message_ids == ("m0", "m1", "m2")
    assert [message.text for message in harness.said()][:3] == ["I was wondering", "about the port", "of staging"]


async def test_a_command_is_a_turn_of_its_own_and_waits_for_no_more(open_harness):
    harness = open_harness()
    async with running_responder(harness, http=Channel(debounce_ms=10 * MINUTES)) as responder:
        await tell(responder, harness.key(), "First", "m1")
        await tell(responder, harness.key(), "/help", "m2")
        await tell(responder, harness.key(), "/status", "m3")
        assert "/remember TEXT" in (await reply_to(responder, "m2")).reply
        assert "Session" in (await reply_to(responder, "m3")).reply
    assert len(harness.model.requests) == 1


async def test_a_conversation_is_answered_in_order_however_fast_it_comes(open_harness):
    harness = open_harness(max_queued=250)
    box = RecordingChannel()
    async with running_responder(harness, telegram=box) as responder:
        key = harness.key(channel="telegram")
        await asyncio.gather(*(tell(responder, key, f"number {n}", f"m{n}", chat=1) for n in range(20)))
    assert len(box.texts) == len(harness.model.requests)
    texts = [message.text for message in harness.said(channel="telegram") if message.role == "user"]
    assert texts == [f"number {n}" for n in range(20)]


async def test_more_than_the_queue_holds_is_refused_and_not_kept(open_harness):
    gate = Gate()
    harness = open_harness(gate.model, max_queued=5)
    async with running_responder(harness) as responder:
        await tell(responder, harness.key("a"), "Hello", "a0")
        with pytest.raises(ConversationFull):
            await tell(responder, harness.key("a"), "Hello", "a1")
        for name in ("b", "d", "e", "f"):
            await tell(responder, harness.key(name), "Hello", f"{name}0")
        with pytest.raises(QueueFull):
            await tell(responder, harness.key("c"), "Hello", "c0")
        assert responder.inbox.find("http", "c0") is None
        waiting = asyncio.create_task(responder.limits.wait_for_space(str(harness.key("c"))))
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.open.set()
        async with asyncio.timeout(30):
            await waiting
        await tell(responder, harness.key("c"), "Hello", "c0")
        assert (await reply_to(responder, "c0")).reply
    with pytest.raises(QueueFull, match="shutting down"):
        await tell(responder, harness.key("c"), "Hello", "c1")


async def test_a_message_that_comes_twice_is_answered_once(open_harness):
    harness = open_harness()
    box = RecordingChannel()
    async with running_responder(harness, telegram=box) as responder:
        key = harness.key(channel="telegram")
        await asyncio.gather(*(tell(responder, key, "Hello", "m1", chat=1) for _ in range(5)))
        await tell(responder, key, "Hello", "m1", chat=1)
    async with running_responder(harness, telegram=box) as responder:
        await tell(responder, key, "Hello", "m1", chat=1)
    assert len(box.sent) == 1
    assert len(harness.model.requests) == 1


async def test_another_message_with_a_known_id_is_refused_also_while_that_arrives(open_harness):
    harness = open_harness()
    async with running_responder(harness) as responder:
        both = await asyncio.gather(
            tell(responder, harness.key(), "Hello", "m1"),
            tell(responder, harness.key(), "Goodbye", "m1"),
            return_exceptions=True,
        )
        assert [type(result).__name__ for result in both] == ["AcceptedMessage", "MessageConflict"]


async def test_what_was_accepted_before_a_crash_is_answered_after_it(open_harness):
    gate = Gate()
    harness = open_harness(gate.model, max_concurrent=1)
    responder = harness.responder({"http": Channel()})
    await responder.start()
    await tell(responder, harness.key("a"), "one", "m1")
    await tell(responder, harness.key("b"), "two", "m2")
    await wait_until_async(lambda: gate.waiting == 1)
    await crash(responder)
    assert {message_status(harness.inbox().find_run(message)) for message in harness.inbox().messages()} == {
        "answering",
        "waiting",
    }
    gate.open.set()
    async with running_responder(harness) as responder:
        assert "one" in (await reply_to(responder, "m1")).reply
        assert "two" in (await reply_to(responder, "m2")).reply
        assert responder.get("http", "m1")[1].attempts == 2
    assert [message.role for message in harness.said("a")] == ["user", "assistant"]
    assert [message.role for message in harness.said("b")] == ["user", "assistant"]


async def test_a_turn_is_the_same_after_a_crash_whatever_came_since(open_harness):
    gate = Gate()
    harness = open_harness(gate.model)
    responder = harness.responder({"http": Channel()})
    await responder.start()
    await tell(responder, harness.key(), "one", "m1")
    await wait_until_async(lambda: gate.waiting == 1)
    await tell(responder, harness.key(), "two", "m2")
    await crash(responder)
    gate.open.set()
    async with running_responder(harness) as responder:
        await reply_to(responder, "m2")
        assert responder.get("http", "m1")[1].message_ids == ("m1",)
        assert responder.get("http", "m2")[1].message_ids == ("m2",)
    assert [message.text for message in harness.said() if message.role == "user"] == ["one", "two"]


async def test_a_reply_that_was_ready_before_a_crash_is_sent_after_it_once(open_harness):
    harness = open_harness()
    inbox = harness.inbox()
    key = harness.key(channel="telegram")
    message = inbox.receive(key, Inbound("m1", "Hello", metadata={"chat": 1}))
    inbox.change(inbox.begin([message], "s"), parts=("part one", "part two"), push=True, entry_id=None)
    box = RecordingChannel()
    for _ in range(2):
        async with running_responder(harness, telegram=box):
            pass
    assert box.texts == ["part one", "part two"]
    assert harness.model.requests == []


async def test_a_part_that_may_have_been_sent_is_not_sent_again_and_that_is_said(open_harness, caplog):
    harness = open_harness()
    inbox = harness.inbox()
    message = inbox.receive(harness.key(channel="telegram"), Inbound("m1", "Hello", metadata={"chat": 1}))
    run = inbox.change(inbox.begin([message], "s"), parts=("part one", "part two"), push=True, entry_id=None)
    inbox.change(run, sending=True)
    box = RecordingChannel()
    async with running_responder(harness, telegram=box) as responder:
        await wait_until_async(lambda: bool(box.sent))
        await wait_until_async(lambda: not responder.inbox.unfinished())
        assert any("may not have arrived" in line for line in responder.status_lines())
    assert box.texts == ["part two"]
    assert [run.unconfirmed for run in harness.inbox().unconfirmed_runs()] == [1]
    assert "is not sent again: the program ended while it was being sent" in caplog.text


async def test_what_came_by_a_channel_that_is_not_there_waits_for_it(open_harness):
    harness = open_harness()
    harness.inbox().receive(harness.key(channel="telegram"), Inbound("m1", "Hello", metadata={"chat": 1}))
    async with running_responder(harness):
        pass
    assert len(harness.inbox().waiting()) == 1
    box = RecordingChannel()
    async with running_responder(harness, telegram=box):
        pass
    assert len(box.sent) == 1


async def test_a_message_that_takes_every_process_down_is_given_up_in_the_end(open_harness):
    timing = ResponderTiming(max_attempts=3)
    gate = Gate()
    harness = open_harness(gate.model)
    for attempt in range(3):
        responder = harness.responder({"http": Channel()}, timing=timing)
        await responder.start()
        await tell(responder, harness.key(), "poison", "m1")
        await wait_until_async(lambda attempt=attempt: gate.waiting == attempt + 1)
        await crash(responder)
    async with running_responder(harness, timing=timing) as responder:
        run = await reply_to(responder, "m1")
        assert (message_status(run), run.error) == ("failed", "gave_up")
    assert gate.waiting == 3


async def test_a_conversation_that_comes_to_a_halt_lets_go_of_those_who_wait_and_is_answered_by_the_next_start(
    open_harness, caplog
):
    harness = open_harness()

    class BrokenForAda(Dispatcher):
        async def current_session_id(self, key):
            if key.user_id == "ada":
                raise RuntimeError("an error that no code expects")
            return await super().current_session_id(key)

    async with running_responder(harness, dispatcher_class=BrokenForAda) as responder:
        await tell(responder, harness.key(), "Hello?", "m1")
        async with asyncio.timeout(PATIENCE_S):
            _, run = await responder.wait("http", "m1")
        assert run is None
        await tell(responder, harness.key("bob"), "And I?", "m2")
        assert "And I?" in (await reply_to(responder, "m2")).reply
    assert "came to a halt" in caplog.text
    async with running_responder(harness) as responder:
        assert "Hello?" in (await reply_to(responder, "m1")).reply


async def test_a_fault_of_our_own_is_told_without_its_details(open_harness):
    harness = open_harness(ScriptedChat(lambda request: ZeroDivisionError("secret detail")))
    async with running_responder(harness) as responder:
        await tell(responder, harness.key(), "Hello", "m1")
        run = await reply_to(responder, "m1")
        assert run.error == "internal"
        assert "secret detail" not in run.reply


async def test_whoever_watches_sees_all_of_it_however_late(open_harness):
    gate = asyncio.Event()
    harness = open_harness(ScriptedChat(lambda request: ["The beginning, ", Stall(gate), "and the end."]))
    async with running_responder(harness) as responder:
        await tell(responder, harness.key(), "Hello", "m1")
        early = responder.follow("http", "m1")
        first = await anext(early)
        late = responder.follow("http", "m1")
        gate.set()
        rest = [event async for event in early]
        written = [event.text async for event in late if isinstance(event, ReplyDelta)]
        assert "".join(written) == "The beginning, and the end."
        assert first.text + "".join(event.text for event in rest if isinstance(event, ReplyDelta)) == "".join(written)


async def test_a_follower_gets_a_heartbeat_while_nothing_happens():
    replay = EventReplay()
    events = replay.follow(heartbeat_s=0.0)
    assert await anext(events) is None
    replay.add(ReplyDelta("Hello"))
    replay.end()
    assert [event async for event in events] == [ReplyDelta("Hello")]


async def test_stop_overtakes_whatever_was_said_before(open_harness):
    gate = Gate()
    harness = open_harness(gate.model)
    box = RecordingChannel()
    async with running_responder(harness, telegram=box) as responder:
        key = harness.key(channel="telegram")
        await tell(responder, key, "one", "m1", chat=1)
        await wait_until_async(lambda: gate.waiting == 1)
        await tell(responder, key, "two", "m2", chat=1)
        await tell(responder, key, "/stop", "m3", chat=1)
        await wait_until_async(lambda: box.texts == ["Stopped."])
        gate.open.set()
        await tell(responder, key, "three", "m4", chat=1)
        await reply_to(responder, "m4", channel="telegram")
    inbox = harness.inbox()
    statuses = [message_status(inbox.find_run(message)) for message in inbox.messages()]
    assert statuses == ["cancelled", "cancelled", "answered", "answered"]
    assert [message.text for message in harness.said(channel="telegram") if message.role == "user"] == ["one", "three"]


async def test_a_drain_that_takes_too_long_leaves_the_rest_to_the_next_start(open_harness):
    gate = Gate()
    harness = open_harness(gate.model)
    responder = harness.responder({"http": Channel()})
    await responder.start()
    await tell(responder, harness.key(), "one", "m1")
    waiting = asyncio.create_task(responder.wait("http", "m1"))
    await wait_until_async(lambda: gate.waiting == 1)
    at_once = asyncio.Event()
    draining = asyncio.create_task(responder.drain(3600, at_once=at_once))
    await asyncio.sleep(0)
    at_once.set()
    assert await draining is False
    assert message_status((await waiting)[1]) == "answering", "whoever waited is let go"
    assert len(harness.inbox().unfinished()) == 1


async def test_what_was_said_in_a_group_since_the_last_reply_comes_with_the_question_once(open_harness):
    harness = open_harness(max_history_messages=2)
    async with running_responder(harness, telegram=RecordingChannel()) as responder:
        key = harness.key("-100", channel="telegram", chat_type="group")
        for number in range(3):
            responder.add_group_line(key, GroupLine("Bea", f"line {number}", dt.datetime.now().astimezone()))
        await tell(responder, key, "@bot what do you think?", "m1", chat=-100)
        await reply_to(responder, "m1", "telegram")
        await tell(responder, key, "@bot and now?", "m2", chat=-100)
        await reply_to(responder, "m2", "telegram")
    first, second = (asked(request) for request in harness.model.requests)
    assert "line 0" not in first
    assert "line 1" in first
    assert "line 2" in first
    assert "line 1" not in second


async def test_the_index_follows_every_few_messages(open_harness):
    harness = open_harness(memory_index_interval_messages=2)
    async with running_responder(harness) as responder:
        await tell(responder, harness.key(), "The parrot is called Polly.", "m1")
        await reply_to(responder, "m1")
    with harness.memory.index_service.inspecting() as (index, _):
        assert index.live.counts().by_source["sessions"]["files"] == 1


async def test_the_group_silent_for_longest_is_forgotten_first(open_harness):
    harness = open_harness()
    async with running_responder(harness) as responder:
        for name in (*range(1_000), 0, "new"):
            responder.add_group_line(replace(harness.key(), user_id=f"g{name}"), GroupLine("Ada", "hello", NOW))
        counts = {key.rpartition(":")[2]: len(lines) for key, lines in responder._groups.items()}
    assert len(counts) == 1_000
    assert (counts["g0"], counts["gnew"], "g1" in counts) == (2, 1, False)
