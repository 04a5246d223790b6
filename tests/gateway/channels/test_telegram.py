"""The Telegram channel, against a Bot API server on loopback."""

import asyncio
import json

import pytest

from kept.base.remote_errors import ChannelUnavailable
from kept.testing import ScriptedChat, Stall
from tests.support.responders import asked
from tests.support.telegram_bot import bot
from tests.support.telegram_server import TOKEN, BotApi, Fault
from tests.support.waiting import wait_until_async


def texts(api: BotApi) -> list[str]:
    return [message["text"] for message in api.sent]


async def test_a_message_is_answered_where_it_came_from(tmp_path, api):
    async with bot(tmp_path, api) as at:
        assert "Telegram: @kept_bot, for 2 people" in at.lines
        api.write("Good morning", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
        assert api.sent[0]["chat_id"] == "7"
        assert "Good morning" in api.sent[0]["text"]
        await wait_until_async(lambda: bool(api.actions))
        assert api.actions[0]["action"] == "typing"
        assert at.sessions.find("telegram", "7").messages == 2


async def test_each_of_several_bots_answers_its_own_messages(tmp_path, api):
    """Both number the messages of a person alike."""
    with BotApi() as shop:
        api.others["shop-token"] = shop
        async with bot(tmp_path, api, **{"telegram.accounts": {"shop": "shop-token"}}) as at:
            await wait_until_async(lambda: sum(line.startswith("Telegram") for line in at.lines) == 2)
            api.write("Good morning", user=7)
            shop.write("Are you open?", user=7)
            await wait_until_async(lambda: len(api.sent) == len(shop.sent) == 1)
            assert "Good morning" in api.sent[0]["text"]
            assert "Are you open?" in shop.sent[0]["text"]
            assert at.sessions.find("telegram", "7").messages == 2
            assert at.sessions.find("telegram", "7", account_id="shop").messages == 2


async def test_an_update_is_confirmed_when_its_message_is_on_disk(tmp_path, api):
    async with bot(tmp_path, api, ScriptedChat(lambda request: "Yes.")) as at:
        number = api.write("Hello", user=7)
        await wait_until_async(lambda: api.pending == [])
        assert at.inbox.find("telegram", f"7:{number}") is not None
        assert api.offsets[-1] == number + 1


async def test_only_people_on_the_list_are_answered(tmp_path, api, caplog):
    caplog.set_level("INFO", "kept")
    async with bot(tmp_path, api) as at:
        api.write("Let me in", user=666, username="mallory")
        api.write("Hello", user=8, username="Grace")
        await wait_until_async(lambda: len(api.sent) == 1)
        await wait_until_async(lambda: api.pending == [])
        assert api.sent[0]["chat_id"] == "8"
        assert len(at.inbox.messages()) == 1
    assert "ignored user 666" in caplog.text
    assert "Let me in" not in caplog.text


async def test_in_a_group_it_answers_when_it_is_spoken_to_and_has_heard_the_rest(tmp_path, api):
    model = ScriptedChat(lambda request: f"You said: {asked(request)}")
    async with bot(tmp_path, api, model) as at:
        group = {"chat": -100}
        api.write("The printer is broken", user=9, name="Bea", **group)
        api.write("Is it?", user=7, **group)
        api.write("/help@other_bot", user=7, **group)
        api.write("@kept_bot tell me a secret", user=666, **group)
        api.write("@Kept_Bot what is broken?", user=7, **group)
        await wait_until_async(lambda: len(api.sent) == 1)
        assert api.sent[0]["chat_id"] == "-100"
        api.write("/help@kept_bot", user=7, **group)
        await wait_until_async(lambda: len(api.sent) == 2)
        own = {"message_id": 1, "date": 1, "chat": {"id": -100, "type": "supergroup"}, "from": BOT_USER}
        api.write("And this?", user=7, reply_to_message=own, **group)
        await wait_until_async(lambda: len(api.sent) == 3)
        assert at.sessions.find("telegram", "-100", chat_type="group") is not None
    first = asked(model.requests[0])
    assert "The printer is broken" in first
    assert "what is broken?" in first
    assert "@Kept_Bot" not in first
    assert "/new [TEXT]" in api.sent[1]["text"]
    assert len(model.requests) == 2


BOT_USER = {"id": 123456, "is_bot": True, "first_name": "Kept", "username": "kept_bot"}


async def test_what_telegram_says_failed_is_sent_again_and_arrives_once(tmp_path, api):
    api.fail("sendMessage", 429, retry_after=1)
    api.fail("sendMessage", 500)
    api.fail("sendMessage", 502)
    async with bot(tmp_path, api, ScriptedChat(["Hi."])) as at:
        api.write("Hello", user=7)
        await wait_until_async(lambda: len(api.sent) == 1 and not at.inbox.unfinished())
        assert at.inbox.unconfirmed_runs() == []
    assert texts(api) == ["Hi."]
    assert api.calls.count("sendMessage") == 4


@pytest.mark.parametrize(
    "fault",
    [
        Fault(502, b"<html>Bad Gateway</html>", done=True),
        Fault(504, b"", done=True),
        Fault(200, b"not json", done=True),
        Fault(0, done=True, hang_up=True),
    ],
    ids=["gateway", "timeout", "nonsense", "hung up"],
)
async def test_what_may_have_arrived_is_not_sent_again(tmp_path, api, fault):
    api.fail_raw("sendMessage", fault)
    async with bot(tmp_path, api, ScriptedChat(["Hi.", "Again."])) as at:
        api.write("Hello", user=7)
        await wait_until_async(lambda: bool(at.inbox.unconfirmed_runs()))
        api.write("Are you there?", user=7)
        await wait_until_async(lambda: len(api.sent) == 2)
        api.write("/status", user=7)
        await wait_until_async(lambda: len(api.sent) == 3)
    assert texts(api)[:2] == ["Hi.", "Again."]
    assert "may not have arrived, and are not sent again: 1" in texts(api)[2]


@pytest.mark.parametrize("status", [400, 403])
async def test_a_chat_that_refuses_a_reply_does_not_hold_up_the_next(tmp_path, api, status):
    api.fail("sendMessage", status)
    async with bot(tmp_path, api, ScriptedChat(["Hi.", "Again."])) as at:
        api.write("Hello", user=7)
        await wait_until_async(lambda: bool(at.inbox.unconfirmed_runs()))
        api.write("Hello?", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
    assert texts(api) == ["Again."]


async def test_trouble_with_fetching_passes(tmp_path, api, caplog):
    api.fail("getMe", 500)
    for status in (409, 500, 502):
        api.fail("getUpdates", status)
    api.fail("getUpdates", 429, retry_after=1)
    api.fail_raw("getUpdates", Fault(0, hang_up=True))
    api.fail("sendChatAction", 500)
    async with bot(tmp_path, api, ScriptedChat(["Hi."])):
        api.write("Hello", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
    assert "another program fetches messages with the same token" in caplog.text
    assert TOKEN not in caplog.text


async def test_nothing_more_is_fetched_while_nothing_more_is_taken(tmp_path, api):
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: [Stall(gate), "Done."])
    async with bot(tmp_path, api, model, **{"auto_responder.max_queued": 10}) as at:
        for number in range(5):
            api.write(f"Message {number}", user=7)
        await wait_until_async(lambda: len(at.inbox.messages()) == 2 and len(api.offsets) >= 1)
        polled = len(api.offsets)
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert len(at.inbox.messages()) == 2
        assert len(api.offsets) == polled
        gate.set()
        await wait_until_async(lambda: len(at.inbox.messages()) == 5)
        await wait_until_async(lambda: not at.inbox.unfinished() and not at.inbox.waiting())


def test_a_token_that_telegram_does_not_know_is_said_in_one_line(tmp_path, api):
    async def scenario():
        async with bot(tmp_path, api, token="1:wrong"):
            pass

    with pytest.raises(ChannelUnavailable, match="does not know this token"):
        asyncio.run(scenario())


def update_of(number: int, **wrong) -> dict:
    chat = {"id": 7, "type": "private"}
    sender = {"id": 7, "is_bot": False, "first_name": "Ada"}
    message = {"message_id": number, "date": 1_770_000_000, "chat": chat, "from": sender, "text": "Hello"}
    return {"update_id": number, "message": {**message, **wrong}}


UNREADABLE = [
    {"date": "yesterday"},
    {"date": 10**19},
    {"date": -(10**19)},
    {"date": None},
    {"chat": None},
    {"chat": "7"},
    {"chat": {}},
    {"from": [1]},
    {"from": {"id": 7}},
    {"text": 7},
    {"entities": 7},
    {"reply_to_message": "x"},
    {"message_id": "x"},
]


async def test_updates_that_cannot_be_read_are_left_out_and_the_next_ones_answered(tmp_path, api, caplog):
    async with bot(tmp_path, api):
        for number, wrong in enumerate(UNREADABLE, 1):
            api.redeliver(update_of(number, **wrong))
        api.redeliver({"update_id": 900, "message": "no message"})
        api.redeliver({"update_id": 901})
        api.write("Good morning", user=7)
        await wait_until_async(lambda: any("Good morning" in text for text in texts(api)))
        await wait_until_async(lambda: api.pending == [])
    assert "could not be read, and is left out" in caplog.text
    assert "the library cannot read update" in caplog.text


async def test_updates_without_a_number_are_not_fetched_in_a_loop(tmp_path, api):
    nobody = {"ok": True, "result": [{"message": {}}, 7, {"update_id": "x"}]}
    api.fail_raw("getUpdates", Fault(200, json.dumps(nobody).encode()))
    async with bot(tmp_path, api):
        api.write("Good morning", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)


async def test_an_answer_that_is_not_the_bot_apis_puts_no_token_into_the_log(tmp_path, api, caplog):
    """A proxy's page may repeat the address, which has the token in it."""
    page = f"<html>No route to /bot{TOKEN}/getUpdates</html>".encode()
    for status in (200, 502):
        api.fail_raw("getUpdates", Fault(status, page))
    api.fail_raw("sendMessage", Fault(200, page))
    async with bot(tmp_path, api):
        api.write("Good morning", user=7)
        await wait_until_async(lambda: api.calls.count("sendMessage") == 1)
    assert "messages cannot be fetched" in caplog.text
    assert TOKEN not in caplog.text
