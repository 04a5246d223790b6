"""The HTTP channel, over real HTTP."""

import asyncio
import socket

import pytest

from kept.base.remote_errors import ModelFailed
from kept.errors import UsageError
from kept.testing import ScriptedChat, Stall
from tests.support.http_gateway import serving
from tests.support.serve_process import create_token
from tests.support.waiting import wait_until_async


async def test_a_message_is_answered_and_its_state_can_be_asked_for(tmp_path):
    async with serving(tmp_path) as at:
        answered = await at.post(user="ada", text="Good morning", id="m1")
        assert answered.status_code == 200
        state = answered.json()
        assert (state["id"], state["status"]) == ("m1", "answered")
        assert "Good morning" in state["reply"]
        assert (await at.client.get("/v1/messages/m1")).json() == state
        again = await at.post(user="ada", text="Good morning", id="m1")
        assert again.json() == state, "a client that tries again gets the same reply"
        assert (await at.client.get("/v1/messages/m2")).status_code == 404
        assert (await at.client.get("/healthz")).json() == {"status": "ok"}


async def test_an_unknown_path_or_method_is_refused_in_json(tmp_path):
    async with serving(tmp_path) as at:
        for method, path, status in (("GET", "/nowhere", 404), ("GET", "/", 404), ("PUT", "/v1/messages", 405)):
            answer = await at.client.request(method, path)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
            assert {*answer.json()["error"]} >= {"code", "message", "hint"}
            assert path in answer.json()["error"]["message"]
        assert "POST" in answer.headers["allow"]


async def test_a_reply_is_streamed_as_it_is_written(tmp_path):
    async with serving(tmp_path, ScriptedChat(["The port is 5433."])) as at:
        events = await at.events(user="ada", text="Which port?", id="m1", stream=True)
        assert events[0] == ("accepted", {"id": "m1"})
        deltas = [value["text"] for name, value in events if name == "delta"]
        assert len(deltas) > 1
        assert "".join(deltas) == "The port is 5433."
        assert events[-1][0] == "reply"
        assert events[-1][1]["reply"] == "The port is 5433."


async def test_a_client_that_goes_away_is_answered_all_the_same(tmp_path):
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: ["A beginning", Stall(gate), " and an end."])
    async with serving(tmp_path, model) as at:
        async with at.client.stream(
            "POST", "/v1/messages", json={"user": "ada", "text": "Hi", "id": "m1", "stream": True}
        ) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("event: delta"):
                    break
        assert (await at.client.get("/v1/messages/m1")).json()["status"] == "answering"
        gate.set()
        await wait_until_async(lambda: not at.gateway.responder.inbox.unfinished())
        assert (await at.client.get("/v1/messages/m1")).json()["reply"] == "A beginning and an end."


async def test_a_client_need_not_wait_and_can_stop_the_answer(tmp_path):
    model = ScriptedChat(lambda request: [Stall(), "never"])
    async with serving(tmp_path, model) as at:
        accepted = await at.post(user="ada", text="Hi", id="m1", wait=False)
        assert (accepted.status_code, accepted.json()["status"]) == (202, "waiting")
        await wait_until_async(lambda: len(model.requests) == 1)
        assert (await at.post(user="ada", text="/stop")).json()["reply"] == "Stopped."
        assert (await at.client.get("/v1/messages/m1")).json()["status"] == "cancelled"
        assert (await at.client.get("/v1/messages/m2")).status_code == 404


async def test_of_messages_answered_together_the_last_has_the_reply(tmp_path):
    async with serving(tmp_path, ScriptedChat(["Both."]), **{"http.debounce_ms": 600_000}) as at:
        for number in (1, 2):
            await at.post(user="ada", text=f"part {number}", id=f"m{number}", wait=False)
        await at.post(user="ada", text="/status", id="m3")
        first = (await at.client.get("/v1/messages/m1")).json()
        assert (first["reply"], first["answeredWith"]) == (None, "m2")
        assert (await at.client.get("/v1/messages/m2")).json()["reply"] == "Both."


async def test_too_much_is_refused_with_when_to_come_back(tmp_path):
    gate = asyncio.Event()
    model = ScriptedChat(lambda request: [Stall(gate), "Done."])
    async with serving(tmp_path, model, **{"auto_responder.max_queued": 2}) as at:
        await at.post(user="a", text="Hi", wait=False)
        full = await at.post(user="a", text="Hi", wait=False)
        assert (full.status_code, full.json()["error"]["code"]) == (429, "conversation_full")
        assert int(full.headers["retry-after"]) > 0
        await at.post(user="b", text="Hi", wait=False)
        full = await at.post(user="c", text="Hi", id="later", wait=False)
        assert (full.status_code, full.json()["error"]["code"]) == (503, "queue_full")
        assert (await at.client.get("/v1/messages/later")).status_code == 404, "it was not accepted"
        gate.set()


async def test_a_model_that_fails_is_an_error_that_says_what(tmp_path):
    async with serving(tmp_path, ScriptedChat(lambda request: ModelFailed("The model is gone."))) as at:
        failed = await at.post(user="a", text="Hi", id="m1")
        assert (failed.status_code, failed.json()["status"]) == (502, "failed")
        assert failed.json()["error"]["code"] == "model_failed"
        assert failed.json()["error"]["message"] == "The model cannot answer at the moment. Try again later."
        assert (await at.events(user="a", text="Hi", id="m2", stream=True))[-1][0] == "error"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"[" * 100_000, b'"text"', b'{"user": "a"}', b'{"text": "Hi"}',
        b'{"user": "a", "text": "   "}', b'{"user": "a", "text": 5}', b'{"user": 5, "text": "Hi"}',
        b'{"user": "", "text": "Hi"}', b'{"user": "' + b"x" * 300 + b'", "text": "Hi"}',
        b'{"user": "a", "text": "Hi", "id": "a/b"}', b'{"user": "a", "text": "Hi", "id": 7}',
        b'{"user": "a", "text": "Hi", "stream": "yes"}', b'{"user": "a", "text": "Hi", "colour": "red"}',
        b'{"user": "a", "text": "' + b"x" * 2000 + b'"}',
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused_in_words_and_not_kept(tmp_path, body, monkeypatch):
    monkeypatch.setattr("kept.gateway.channels.http.MAX_BODY_BYTES", 1_000)
    async with serving(tmp_path) as at:
        refused = await at.client.post("/v1/messages", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 400
        assert refused.json()["error"]["message"]
        assert at.gateway.responder.inbox.waiting() == []


async def test_any_text_that_json_can_carry_is_a_message(tmp_path):
    async with serving(tmp_path) as at:
        for text in ('"half a pair \\ud83d"', '"\\u0000 and \\u202e"', '"/etc/hosts is a path"', '"สวัสดี"'):
            body = b'{"user": "a\\ud800:\\n", "text": ' + text.encode() + b"}"
            sent = await at.client.post("/v1/messages", content=body, headers={"Content-Type": "application/json"})
            assert sent.status_code == 200, sent.text


async def test_a_form_that_a_web_page_can_send_is_no_message(tmp_path):
    async with serving(tmp_path) as at:
        body = b'{"user": "a", "text": "Hi"}'
        for headers in ({"Content-Type": "text/plain"}, {}):
            assert (await at.client.post("/v1/messages", content=body, headers=headers)).status_code == 400
        evil = {"Content-Type": "application/json", "Origin": "https://evil.example"}
        assert (await at.client.post("/v1/messages", content=body, headers=evil)).status_code == 403
        own = {"Content-Type": "application/json", "Origin": "http://localhost:3000"}
        assert (await at.client.post("/v1/messages", content=body, headers=own)).status_code == 200


async def test_only_names_that_are_served_are_answered(tmp_path):
    async with serving(tmp_path, **{"serve.allowed_hosts": "kept.example"}) as at:
        expected = {"evil.example": 421, "kept.example:80": 200, "localhost:1": 200, "[::1]:1": 200}
        for host, status in expected.items():
            assert (await at.client.get("/v1/models", headers={"Host": host})).status_code == status, host


async def test_a_token_is_asked_for_once_there_is_one(tmp_path):
    token = create_token(tmp_path / "home", "program", "write")
    async with serving(tmp_path) as at:
        for header in (None, "Bearer wrong", f"Basic {token}", token, "Bearer", f"Bearer {token}"):
            headers = {"Authorization": header} if header else {}
            got = await at.client.post("/v1/messages", json={"user": "a", "text": "/help"}, headers=headers)
            assert got.status_code == (200 if header == f"Bearer {token}" else 401), header
            if got.status_code == 401:
                assert got.headers["www-authenticate"] == "Bearer"
        assert (await at.client.get("/healthz")).status_code == 200


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path):
    async def start(port):
        async with serving(tmp_path, **{"http.port": port}):
            pass

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        with pytest.raises(UsageError, match="cannot be listened on"):
            asyncio.run(start(busy.getsockname()[1]))
