"""Asking a person over HTTP, in Telegram and by commands, while other conversations go on."""

import asyncio
import json

import pytest

from kept.agent.events import ApprovalAsked
from kept.gateway.channel import Channel
from kept.models.base import ToolOutput
from kept.testing import ScriptedChat
from tests.support.http_gateway import serving
from tests.support.serve_process import bearer, create_token
from tests.support.telegram_bot import bot
from tests.support.toy_mcp import toy, use
from tests.support.waiting import wait_until_async

ASK = toy(permission="ask")


def adding() -> ScriptedChat:
    """A model that calls a tool for every question about a sum, and repeats what the tool said."""

    def answer(request):
        last = request.turns[-1].parts[-1]
        if isinstance(last, ToolOutput):
            return f"The tool said: {last.text}"
        return use("add", a=2, b=3) if "sum" in last.text else "Hello."

    return ScriptedChat(answer)


async def waiting(at, message_id="m1") -> dict:
    """Return the call that waits, once there is one."""
    state: dict = {}

    async def ask() -> bool:
        state.update((await at.client.get(f"/v1/messages/{message_id}")).json())
        return "approvals" in state

    while not await ask():
        await asyncio.sleep(0)
    return state["approvals"][0]


@pytest.mark.parametrize("allow", [True, False])
async def test_a_client_over_http_sees_the_question_and_answers_it(tmp_path, allow):
    async with serving(tmp_path, adding(), agent_settings=ASK, **{"auto_responder.max_concurrent": 1}) as at:
        events = asyncio.create_task(at.events(user="ada", text="The sum?", id="m1", stream=True))
        asked = await waiting(at)
        assert (asked["tool"], asked["arguments"], asked["timeoutS"]) == ("toy__add", {"a": 2, "b": 3}, 300)
        other = await at.post(user="bob", text="Good morning")
        assert other.json()["reply"] == "Hello.", "another conversation goes on, though only one may at a time"
        url = f"/v1/approvals/{asked['id']}"
        for wrong in ({}, {"allow": "yes"}, [], {"allow": True, "more": 1}):
            assert (await at.client.post(url, json=wrong)).status_code == 400
        decided = await at.client.post(url, json={"allow": allow})
        assert (decided.status_code, decided.json()) == (200, {"id": asked["id"], "allowed": allow})
        assert (await at.client.post(url, json={"allow": True})).status_code == 404
        names = [name for name, _ in await events]
        assert names.index("approval") < names.index("decision") < names.index("reply")
        state = (await at.client.get("/v1/messages/m1")).json()
        assert ("2 + 3 = 5" in state["reply"]) == allow
        assert "approvals" not in state


@pytest.mark.parametrize("command", ["/approve", "/deny"])
async def test_a_command_decides_too(tmp_path, command):
    async with serving(tmp_path, adding(), agent_settings=ASK) as at:
        question = asyncio.create_task(at.post(user="ada", text="The sum?", id="m1"))
        await waiting(at)
        elsewhere = await at.post(user="bob", text=command)
        assert elsewhere.json()["reply"] == "Nothing waits for your permission.", "it is another conversation"
        decided = await at.post(user="ada", text=command)
        allowed = command == "/approve"
        assert decided.json()["reply"] == f"toy__add: {'allowed' if allowed else 'not allowed'}."
        assert ("2 + 3 = 5" in (await question).json()["reply"]) == allowed


async def test_only_a_token_with_review_decides_by_route_and_by_command(tmp_path):
    home = tmp_path / "home"
    program, reviewer = (bearer(create_token(home, scope, scope)) for scope in ("write", "review"))
    person = bearer(create_token(home, "ada", "write", person="http:ada"))
    trusted = bearer(create_token(home, "trusted", "write", "review", person="http:ada"))
    async with serving(tmp_path, adding(), agent_settings=ASK, headers=program, **{"serve.token_rate_per_s": 0}) as at:
        for number, (by, path, body) in enumerate(
            (
                (reviewer, "/v1/approvals/{}", {"allow": True}),
                (trusted, "/v1/approvals/{}", {"allow": True}),
                (trusted, "/v1/messages", {"text": "/approve"}),
            )
        ):
            question = asyncio.create_task(at.post(user="ada", text="The sum?", id=f"m{number}"))
            asked = await waiting(at, f"m{number}")
            for token in (program, person):
                for text in ("/approve", "/deny"):
                    command = {"user": "ada", "text": text}
                    refused = await at.client.post("/v1/messages", json=command, headers=token)
                    assert (refused.status_code, "'review'" in refused.text) == (403, True)
                url = f"/v1/approvals/{asked['id']}"
                assert (await at.client.post(url, json={"allow": True}, headers=token)).status_code == 403
            assert (await at.client.post(path.format(asked["id"]), json=body, headers=by)).status_code == 200
            assert "2 + 3 = 5" in (await question).json()["reply"]


async def test_stopping_the_answer_withdraws_the_question(tmp_path):
    async with serving(tmp_path, adding(), agent_settings=ASK) as at:
        question = asyncio.create_task(at.post(user="ada", text="The sum?", id="m1"))
        asked = await waiting(at)
        assert (await at.post(user="ada", text="/stop")).json()["reply"] == "Stopped."
        assert (await question).json()["status"] == "cancelled"
        answer = await at.client.post(f"/v1/approvals/{asked['id']}", json={"allow": True})
        assert answer.status_code == 404


@pytest.mark.parametrize("word", ["allow", "deny"])
async def test_telegram_asks_with_buttons(tmp_path, api, word):
    async with bot(tmp_path, api, adding(), agent_settings=ASK):
        api.write("The sum?", user=7)
        await wait_until_async(lambda: len(api.sent) == 2)
        assert api.sent[0]["text"].startswith('The agent wants to call toy__add with {"a": 2, "b": 3}')
        (buttons,) = json.loads(api.sent[1]["reply_markup"])["inline_keyboard"]
        allow, deny = (button["callback_data"] for button in buttons)
        api.press(allow, user=99)
        await wait_until_async(lambda: len(api.pressed) == 1)
        assert api.pressed[0]["text"] == "You cannot decide this.", "the bot does not answer this user"
        api.press(allow if word == "allow" else deny)
        await wait_until_async(lambda: len(api.sent) == 3 and bool(api.edits))
        assert ("2 + 3 = 5" in api.sent[2]["text"]) == (word == "allow")
        assert api.edits[0]["text"] == ("Allowed." if word == "allow" else "Not allowed.")
        api.press(allow)
        await wait_until_async(lambda: len(api.pressed) == 3)
        assert "decided already" in api.pressed[2]["text"]


def wordy(count: int) -> ScriptedChat:
    """A model that calls a tool with many arguments, and then says that it is done."""
    arguments = {f"value{number}": f"{number} " + "x" * 150 for number in range(count)}
    return ScriptedChat([use("add", **arguments, to="evil@example.com"), "Done."])


async def test_a_call_with_more_arguments_than_anybody_would_read_is_denied(tmp_path, api):
    model = wordy(600)
    async with bot(tmp_path, api, model, agent_settings=ASK):
        api.write("The sum?", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
        assert api.sent[0]["text"] == "Done."
        assert "nobody can be asked here" in model.requests[1].turns[-1].parts[-1].text


class Pages(Channel):
    """A channel that renders Markdown, and remembers what it sent."""

    limit = 400

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    async def send(self, to, text) -> None:
        self.sent.append(text)


async def test_markdown_in_an_argument_hides_nothing_of_the_question():
    channel = Pages()
    text = "||hidden|| [ann@example.com](mailto:evil@example.com)\n```\n||more||"
    arguments = {"text": text, **{f"value{number}": "x" * 100 for number in range(5)}}
    await channel.ask({}, ApprovalAsked("1", "s", "mail", arguments, 300))
    assert len(channel.sent) == 2
    assert all(part.startswith("```\n") and part.count("```") == 2 for part in channel.sent)
    assert "/approve allows it" in channel.sent[-1].rpartition("```")[2]


async def test_if_the_question_cannot_be_sent_the_call_is_denied(tmp_path, api):
    async with bot(tmp_path, api, adding(), agent_settings=ASK):
        api.fail("sendMessage", 403)
        api.write("The sum?", user=7)
        await wait_until_async(lambda: len(api.sent) == 1)
        assert "nobody can be asked here" in api.sent[0]["text"]
