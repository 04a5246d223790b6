"""The inbox of a team: gateways of several hosts answer each message once."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from contextlib import AsyncExitStack

import pytest

from kept.agent.events import Inbound
from kept.clock import SystemClock
from kept.errors import StoreUnreachable, WriteFailed
from kept.postgres.database import Database
from kept.remote_errors import ConversationTaken, MessageConflict
from kept.responder.answer_run import message_status
from kept.responder.answer_runner import InboxWriter
from kept.responder.channel import PullChannel, ResponderTiming
from kept.responder.responder import Responder
from kept.responder.shared_inbox import SharedInbox
from kept.sessions.session_key import SessionKey
from tests.support.responders import RecordingChannel, ResponderHarness, tell
from tests.support.waiting import PATIENCE_S, wait_until_async

KEY = SessionKey("main", "http", "default", "direct", "ada")
TIMING = ResponderTiming(first_retry_s=0.05, longest_retry_s=0.2)


def open_inbox(team, owner: str, **more) -> SharedInbox:
    inbox = SharedInbox(team.database, "main", clock=SystemClock(), owner=owner, **more)
    inbox.renew()
    return inbox


def end_lease(team, owner: str) -> None:
    """Let the lease of a gateway end, as if it had given no sign of life for long enough."""
    with team.database.writing() as connection:
        connection.execute("UPDATE leases SET expires = now() - interval '1 s' WHERE owner = %s", [owner])


def states(inbox: SharedInbox) -> dict[str, str]:
    return {message.id: message_status(inbox.find_run(message)) for message in inbox.messages()}


def test_a_conversation_belongs_to_the_gateway_that_first_heard_of_it(team):
    first, second = open_inbox(team, "a"), open_inbox(team, "b")
    one = first.receive(KEY, Inbound("1", "Hello"))
    second.receive(KEY, Inbound("2", "Hello again"))
    assert (first.owns(str(KEY)), second.owns(str(KEY))) == (True, False)
    assert second.claim([str(KEY)]) == []
    with pytest.raises(ConversationTaken):
        second.begin([one], "s")
    assert first.catch_up() == {str(KEY)}
    run = first.begin(first.waiting(), "s")
    assert run.message_ids == ("1", "2")
    first.answer(run, ["Hi"], push=False, entry_id=None)
    second.catch_up()
    assert states(second) == states(first) == {"1": "answered", "2": "answered"}


def test_a_message_that_two_gateways_receive_is_recorded_once(team):
    first, second = open_inbox(team, "a"), open_inbox(team, "b")
    assert first.receive(KEY, Inbound("1", "Hello")) == second.receive(KEY, Inbound("1", "Hello"))
    with pytest.raises(MessageConflict):
        second.receive(KEY, Inbound("1", "Something else"))
    assert len(open_inbox(team, "c").messages()) == 1


def test_a_dead_gateway_loses_its_conversations_and_can_record_nothing_more(team):
    first, second = open_inbox(team, "a"), open_inbox(team, "b")
    run = first.begin([first.receive(KEY, Inbound("1", "Hello"))], "s")
    first.answer(run, ["Hi", "there"], push=True, entry_id=None)
    run = first.mark(run, "sending")
    end_lease(team, "a")
    second.catch_up()
    assert second.claim([str(KEY)]) == [str(KEY)]
    assert second.unfinished() == [run]
    for late in (lambda: first.mark(run, "sent"), lambda: first.begin_again(run)):
        with pytest.raises(ConversationTaken):
            late()
    assert first.renew() == set()  # it has noticed already
    assert not first.owns(str(KEY))


def test_what_is_forgotten_leaves_the_database_and_the_memory_of_every_gateway(team):
    first, second = open_inbox(team, "a"), open_inbox(team, "b")
    first.receive(KEY, Inbound("1", "The gate code is 4711"))
    second.receive(KEY, Inbound("2", "Hello \x00 \ud800"))
    assert second.blank(lambda text: "4711" in text) == 1
    first.catch_up()
    assert [message.inbound.text for message in first.messages()] == ["", "Hello \x00 \ud800"]
    with team.database.reading() as connection:
        rows = connection.execute("SELECT record FROM inbox_records").fetchall()
    assert not any("4711" in record for (record,) in rows)


def test_old_answers_are_dropped(team):
    inbox = open_inbox(team, "a", max_finished_runs=3, rewrite_after_runs=2)
    for number in range(12):
        run = inbox.begin([inbox.receive(KEY, Inbound(str(number), "Hello"))], "s")
        inbox.answer(run, ["Hi"], push=False, entry_id=None)
    assert 3 <= len(inbox.messages()) <= 5
    again = open_inbox(team, "b", max_finished_runs=3, rewrite_after_runs=2)
    assert states(again) == states(inbox)


def test_a_step_whose_confirmation_was_lost_is_recorded_once(team):
    """The connection ends right after the commit: the caller tries again, as it must."""

    class LosingDatabase(Database):
        loses = False

        def writing(self, **more):
            outer = super().writing(**more)

            class Losing:
                def __enter__(self):
                    return outer.__enter__()

                def __exit__(self, *error):
                    outer.__exit__(*error)
                    if LosingDatabase.loses:
                        LosingDatabase.loses = False
                        raise StoreUnreachable("The connection was lost.")

            return Losing()

    database = LosingDatabase(team.server.url, team.schema)
    inbox = SharedInbox(database, "main", clock=SystemClock(), owner="a")
    inbox.renew()

    def do(step):
        LosingDatabase.loses = True
        with pytest.raises(WriteFailed):
            step()
        return step()

    message = do(lambda: inbox.receive(KEY, Inbound("1", "Hello")))
    run = do(lambda: inbox.begin([message], "s"))
    run = do(lambda: inbox.answer(run, ["One", "Two"], push=True, entry_id=None))
    for state in ("sending", "unsure"):
        run = do(lambda run=run, state=state: inbox.mark(run, state, reason="lost"))
    for state in ("sending", "sent"):
        run = do(lambda run=run, state=state: inbox.mark(run, state))
    with database.reading() as connection:
        kinds = [kind for (kind,) in connection.execute("SELECT kind FROM inbox_records ORDER BY seq").fetchall()]
    assert kinds == ["received", "begun", "answered", "sending", "unsure", "sending", "sent"]
    assert open_inbox(team, "b").find_run(message) == run
    assert (run.finished, run.unconfirmed_parts) == (True, ((0, "lost"),))
    database.close()


class Host:
    """A gateway's responder on a host of its own: its notes, its sessions, its home."""

    def __init__(self, team, path, name: str, *, lease_s: float = 15.0) -> None:
        path.mkdir()
        self.name = name
        self.harness = ResponderHarness(path)
        self.channel = RecordingChannel()
        self.inbox = SharedInbox(team.database, "main", clock=SystemClock(), owner=name, lease_s=lease_s)
        self.harness.inbox = lambda: self.inbox
        self.responder: Responder | None = None

    async def start(self) -> Responder:
        channels = {"http": PullChannel(), "telegram": self.channel}
        self.responder = self.harness.responder(channels, timing=TIMING)
        await self.responder.start()
        return self.responder

    async def stop(self) -> None:
        if self.responder is not None:
            await self.responder.drain(PATIENCE_S)
        self.harness.close()


def test_three_hosts_answer_every_message_once_and_in_order(team, tmp_path):
    chance = random.Random(5)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            hosts = [Host(team, tmp_path / name, name) for name in ("a", "b", "c")]
            for host in hosts:
                stack.push_async_callback(host.stop)
                await host.start()
            expected: dict[str, list[str]] = {f"user{at}": [] for at in range(4)}
            for number in range(40):
                user = f"user{number % 4}"
                key = hosts[0].harness.key(user, channel="telegram")
                host = chance.choice(hosts)
                await tell(host.responder, key, f"<{number}>", str(number), chat=user)
                expected[user].append(f"<{number}>")
            inbox = hosts[0].inbox
            await wait_until_async(lambda: len(states(inbox)) == 40 and not inbox.waiting() and not inbox.unfinished())
            sent = [(chat, text) for host in hosts for chat, text in host.channel.sent]
            for user, texts in expected.items():
                answers = "\n".join(text for chat, text in sent if chat == user)
                assert [word for word in answers.split() if word.startswith("<")] == texts
                assert sum(any(chat == user for chat, _ in host.channel.sent) for host in hosts) == 1
            await wait_until_async(lambda: all(host.responder.limits.total == 0 for host in hosts))

    asyncio.run(run())


def test_a_client_gets_the_answer_of_another_host(team, tmp_path):
    async def run() -> None:
        async with AsyncExitStack() as stack:
            first, second = hosts = [Host(team, tmp_path / name, name) for name in ("a", "b")]
            for host in hosts:
                stack.push_async_callback(host.stop)
                await host.start()
            key = first.harness.key()
            await tell(first.responder, key, "<1>", "1")
            await tell(second.responder, key, "<2>", "2")
            async with asyncio.timeout(PATIENCE_S):
                for message_id in ("1", "2"):
                    _, answered = await second.responder.wait("http", message_id)
                    assert answered is not None
                    assert answered.parts is not None
            assert len(first.harness.model.requests) >= 1
            assert not second.harness.model.requests

    asyncio.run(run())


def test_a_host_that_falls_silent_is_replaced_and_its_late_answer_is_dropped(team, tmp_path):
    async def run() -> None:
        async with AsyncExitStack() as stack:
            first, second = hosts = [Host(team, tmp_path / name, name, lease_s=1.0) for name in ("a", "b")]
            stack.push_async_callback(second.stop)
            stack.push_async_callback(first.stop)
            for host in hosts:
                await host.start()
            asked, may_answer = asyncio.Event(), asyncio.Event()
            answer_next = first.responder._runner.answer

            async def answer_late(job):
                asked.set()
                await may_answer.wait()
                return await answer_next(job)

            first.responder._runner.answer = answer_late
            key = first.harness.key(channel="telegram")
            await tell(first.responder, key, "<1>", "1", chat="ada")
            await asked.wait()
            first.responder._team._task.cancel()  # it hangs: no more signs of life
            await wait_until_async(lambda: second.channel.texts != [])
            may_answer.set()
            await wait_until_async(lambda: not first.responder._workers)
            assert first.channel.texts == []
            assert [text.count("<1>") for text in second.channel.texts] == [1]
            assert second.harness.said(channel="telegram")  # in a session of its own

    asyncio.run(run())


def test_a_lost_connection_delays_an_answer(team, tmp_path):
    async def run() -> None:
        async with AsyncExitStack() as stack:
            hosts = [Host(team, tmp_path / name, name) for name in ("a", "b")]
            for host in hosts:
                stack.push_async_callback(host.stop)
                await host.start()
            for number in range(12):
                host = hosts[number % 2]
                key = host.harness.key(f"user{number % 3}", channel="telegram")
                while True:
                    try:
                        await tell(host.responder, key, f"<{number}>", str(number), chat="x")
                        break
                    except WriteFailed:
                        continue  # as a client does that is told to come again
                if number % 4 == 1:
                    await asyncio.to_thread(team.end_connections)
            inbox = hosts[0].inbox
            await wait_until_async(lambda: len(states(inbox)) == 12 and not inbox.waiting() and not inbox.unfinished())
            words = [word for host in hosts for text in host.channel.texts for word in text.split() if word[0] == "<"]
            assert sorted(words) == sorted(f"<{number}>" for number in range(12))

    asyncio.run(run())


def test_a_change_that_fails_after_its_caller_has_gone_is_not_an_error_of_the_loop():
    problems: list[object] = []

    async def lose_caller() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        writer, may_fail = InboxWriter(TIMING), threading.Event()

        def fail() -> None:
            may_fail.wait(PATIENCE_S)
            raise ConversationTaken("Another gateway answers this conversation.")

        caller = asyncio.create_task(writer.write_until_done(fail))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        may_fail.set()
        await writer.write(lambda: None)  # the thread makes one change after another
        gc.collect()
        writer.close()

    asyncio.run(lose_caller())
    assert problems == []
