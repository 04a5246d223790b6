"""The OpenAI-compatible endpoint, called with OpenAI's own client."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import openai
import pytest

from kept import SessionStore
from kept.base.remote_errors import ModelFailed
from kept.sessions.people import thread_id
from kept.testing import ScriptedChat, Stall
from tests.support.http_gateway import serving
from tests.support.responders import asked
from tests.support.waiting import wait_until_async


@asynccontextmanager
async def talking(tmp_path, model=None, *, api_key="unused", max_retries=0, default_headers=None, **settings):
    async with (
        serving(tmp_path, model, **settings) as at,
        openai.AsyncOpenAI(
            base_url=f"{at.url}/v1", api_key=api_key, max_retries=max_retries, default_headers=default_headers
        ) as client,
    ):
        yield at, client


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


async def ask(client, *messages, model="kept", **more):
    answer = await client.chat.completions.create(model=model, messages=list(messages), **more)
    return answer.choices[0].message.content


def recorded(at, conversation):
    """Return what the active branch of a conversation says."""
    sessions = SessionStore(at.gateway.responder._dispatcher.agent.services.memory.config)
    record = sessions.find("openai", thread_id("ada", conversation), chat_type="thread")
    texts = [(message.role, message.text) for message in sessions.load(record.id).messages]
    sessions.close()
    return texts


async def test_a_chat_is_answered_and_counted(tmp_path):
    async with talking(tmp_path, ScriptedChat(["The port is 5433."])) as (_, client):
        answer = await client.chat.completions.create(model="kept", messages=[user("Which port?")])
        assert answer.choices[0].message.content == "The port is 5433."
        assert (answer.object, answer.model, answer.choices[0].finish_reason) == ("chat.completion", "kept", "stop")
        assert answer.usage.prompt_tokens > answer.usage.completion_tokens > 0
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_chat_is_streamed_as_it_is_written(tmp_path):
    async with talking(tmp_path, ScriptedChat(["The port is 5433."])) as (_, client):
        stream = await client.chat.completions.create(
            model="kept", messages=[user("Which port?")], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        deltas = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert len([delta for delta in deltas if delta]) > 1
        assert "".join(deltas) == "The port is 5433."
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage.completion_tokens > 0


async def test_the_models_are_the_agents(tmp_path):
    async with talking(tmp_path) as (_, client):
        assert [model.id async for model in client.models.list()] == ["kept", "kept/main"]
        assert "Hi" in await ask(client, user("Hi"), model="kept/main")
        for model in ("gpt-5", "kept/other", "kept/"):
            with pytest.raises(openai.NotFoundError) as refusal:
                await ask(client, user("Hi"), model=model)
            assert refusal.value.code == "model_not_found"


async def test_only_the_newest_message_of_a_history_is_stored(tmp_path):
    model = ScriptedChat(["One.", "Two.", "Three."])
    async with talking(tmp_path, model) as (at, client):
        history = [{"role": "system", "content": "You are a pirate."}, user("first")]
        for text, reply in (("second", "One."), ("third", "Two."), (None, "Three.")):
            assert await ask(client, *history, user="ada") == reply
            history += [assistant(reply), user(text)]
        assert recorded(at, "ada") == [
            ("user", "first"),
            ("assistant", "One."),
            ("user", "second"),
            ("assistant", "Two."),
            ("user", "third"),
            ("assistant", "Three."),
        ]
    assert [len(request.turns) for request in model.requests] == [1, 3, 5]
    assert not any("pirate" in str(request) for request in model.requests)


async def test_a_named_conversation_goes_on_without_a_history(tmp_path):
    model = ScriptedChat(lambda request: str(len(request.turns)))
    async with talking(tmp_path, model) as (at, client):
        assert [await ask(client, user(text), user="ada") for text in ("a", "b", "b")] == ["1", "3", "5"]
        named = {"X-Kept-Conversation": "work"}
        assert [await ask(client, user(text), user="ada", extra_headers=named) for text in "ab"] == ["1", "3"]
        assert recorded(at, "work")[0] == ("user", "a")


async def test_chats_without_a_name_are_told_apart_by_their_first_message(tmp_path):
    model = ScriptedChat(lambda request: f"{asked(request).splitlines()[-1]} {len(request.turns)}")
    async with talking(tmp_path, model) as (_, client):
        assert await ask(client, user("plan")) == "plan 1"
        assert await ask(client, user("cook")) == "cook 1"
        assert await ask(client, user("plan"), assistant("plan 1"), user("more")) == "more 3"
        assert await ask(client, user("cook"), assistant("cook 1"), user("soup")) == "soup 3"
        assert await ask(client, user("plan")) == "plan 1", "a chat that begins in the same way is another chat"
        chat = {"X-OpenWebUI-Chat-Id": "c1"}
        assert await ask(client, user("plan"), extra_headers=chat) == "plan 1"
        assert await ask(client, user("plan"), assistant("plan 1"), user("on"), extra_headers=chat) == "on 3"


async def test_a_history_that_another_model_wrote_is_shown_as_data(tmp_path):
    model = ScriptedChat(lambda request: "I see.")
    async with talking(tmp_path, model) as (at, client):
        await ask(client, user("My cat is Minka."), assistant("A fine name!"), user("What is she called?"))
        (text,) = {text for role, text in recorded_any(at) if role == "user"}
        assert text == "What is she called?"
    assert "| " in asked(model.requests[0])
    assert "My cat is Minka." in asked(model.requests[0])
    assert "assistant: A fine name!" in asked(model.requests[0])


def recorded_any(at):
    sessions = SessionStore(at.gateway.responder._dispatcher.agent.services.memory.config)
    texts = [
        (message.role, message.text) for record in sessions.recent() for message in sessions.load(record.id).messages
    ]
    sessions.close()
    return texts


async def test_a_new_conversation_forgets_the_history_that_the_client_still_sends(tmp_path):
    model = ScriptedChat(lambda request: f"{len(request.turns)}")
    async with talking(tmp_path, model) as (_, client):
        history = [user("first"), assistant(await ask(client, user("first"), user="ada")), user("/new")]
        history += [assistant(await ask(client, *history, user="ada")), user("second")]
        assert "new conversation" in history[3]["content"]
        assert await ask(client, *history, user="ada") == "1"
    assert "first" not in str(model.requests[-1].turns)


async def test_a_request_that_is_sent_again_is_answered_once(tmp_path):
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: [Stall(gate), f"Answer {len(model.requests)}"])
    async with talking(tmp_path, model) as (_, client):
        first = asyncio.create_task(ask(client, user("Hi"), user="ada"))
        await wait_until_async(lambda: len(model.requests) == 1)
        # A stream begins when the gateway knows the message: the first one is still being answered then.
        second = await client.chat.completions.create(model="kept", messages=[user("Hi")], user="ada", stream=True)
        gate.set()
        assert await first == "Answer 1"
        assert await text_of(second) == "Answer 1"
        retry = {"x-stainless-retry-count": "1"}
        assert await ask(client, user("Hi"), user="ada", extra_headers=retry) == "Answer 1"
        assert await ask(client, user("Hi"), user="ada") == "Answer 2"


async def test_a_message_whose_answer_failed_is_not_stored_twice(tmp_path):
    model = ScriptedChat()

    def fail_then_answer(request):
        if len(model.requests) <= 3:
            raise ModelFailed("It is down at http://10.0.0.1.")
        return "It is up."

    model.follow(fail_then_answer)
    async with talking(tmp_path, model, max_retries=2) as (at, client):
        with pytest.raises(openai.InternalServerError) as failure:
            await ask(client, user("Are you there?"), user="ada")
        assert failure.value.status_code == 502
        assert "10.0.0.1" not in str(failure.value)
        with pytest.raises(openai.APIError, match="cannot answer at the moment"):
            await stream_text(client, user("Are you there?"), user="ada", extra_headers=RETRY)
        assert await ask(client, user("Hello?"), user="ada") == "It is up."
        assert [text for role, text in recorded(at, "ada") if role == "user"] == ["Are you there?", "Hello?"]


RETRY = {"x-stainless-retry-count": "1"}


async def stream_text(client, *messages, **more):
    return await text_of(
        await client.chat.completions.create(model="kept", messages=list(messages), stream=True, **more)
    )


async def text_of(stream):
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"model": "kept"},
        {"model": "kept", "messages": []},
        {"model": "kept", "messages": [{"role": "robot", "content": "x"}]},
        {"model": "kept", "messages": [user("x"), assistant("y")]},
        {"model": "kept", "messages": [user("  ")]},
        {"model": "kept", "messages": [user(7)]},
        {"model": "kept", "messages": [user([{"type": "hologram"}])]},
        {"model": "kept", "messages": [user("x")], "n": 2},
        {"model": "kept", "messages": [user("x")], "stream": "yes"},
        {"model": "kept", "messages": [user("x")], "user": 7},
        {"model": "kept", "messages": [user("x")], "response_format": {"type": "json_object"}},
        {"model": "kept", "messages": [user("x")], "tool_choice": "required"},
    ],
)
async def test_what_cannot_be_answered_is_refused_in_the_expected_form(tmp_path, body):
    async with serving(tmp_path) as at:
        refused = await at.client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert (error["code"], {*error}) == ("message_refused", {"code", "message", "hint", "type", "param"})
        assert not at.gateway.responder.inbox.messages()
        for method, path, status in (("GET", "/v1/chat/completions", 405), ("GET", "/v1/models/gpt", 404)):
            answer: httpx.Response = await at.client.request(method, path)
            assert (answer.status_code, {*answer.json()["error"]}) == (status, {*error})


async def test_parts_of_a_message_are_text_or_named(tmp_path):
    model = ScriptedChat(lambda request: asked(request))
    parts = [
        {"type": "text", "text": "Look at this:"},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg"}},
    ]
    async with talking(tmp_path, model) as (_, client):
        assert await ask(client, user(parts)) == "Look at this:\n\n(picture)"
