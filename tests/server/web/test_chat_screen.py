"""The chat page, and the page that shows what the model would be sent."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.base.remote_errors import ModelUnavailable
from kept.errors import UsageError
from kept.models.base import ToolUse
from kept.server.web.chat_screen import WebChat
from kept.sessions.entries import Message
from kept.testing import ScriptedChat, Stall
from tests.support.toy_mcp import toy
from tests.support.web_site import PageClient, close_site, open_site, texts, visiting


@pytest.fixture
def model() -> ScriptedChat:
    return ScriptedChat()


@pytest.fixture
def talking(tmp_path: Path, workspace: Path, model: ScriptedChat) -> Iterator[PageClient]:
    """Pages whose requests share one event loop, as in a server."""
    with visiting(tmp_path, model=model, session__reset__mode="none") as pages, pages.http:
        yield pages
        pages.http.portal.call(pages.site.close_chat)


def test_a_message_is_answered_and_both_are_remembered(talking, model):
    model.follow(["Staging is on **port 5433**."])
    page = talking.follow(talking.post("/chat/send", text="Which port is staging on?"))
    assert texts(page, ".line.user .said") == ["Which port is staging on?"]
    assert page.select_one(".line.assistant strong").text == "port 5433"
    session = talking.site.sessions.find("terminal", "main")
    assert [message.text for message in messages(talking, session.id)] == [
        "Which port is staging on?",
        "Staging is on **port 5433**.",
    ]
    assert talking.page("/?q=staging+port&source=sessions").select(".hit")


def messages(pages, session_id):
    entries = pages.site.sessions.load(session_id)
    return [entry.body for entry in entries if isinstance(getattr(entry, "body", None), Message)]


def test_a_script_gets_the_answer_piece_by_piece(talking, model):
    model.follow(["It is on port 5433."])
    token = talking.access.form_token(talking.cookie)
    headers = {"Origin": "http://127.0.0.1:8740", "Accept": "application/x-ndjson"}
    answer = talking.http.post("/chat/send", data={"text": "Which port?", "form_token": token}, headers=headers)
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert "".join(event["text"] for event in events if event["type"] == "delta") == "It is on port 5433."
    assert len(events) > 2
    assert events[-1] == {"type": "done"}


def test_an_error_of_the_model_is_shown(talking, model):
    model.follow([ModelUnavailable("The model is down.", hint="Try later.")] * 5)
    answer = talking.post("/chat/send", text="Hello?")
    assert "The model is down. Try later." in texts(talking.follow(answer), ".notice")


def test_an_empty_message_is_refused(talking, model):
    assert talking.post("/chat/send", text="  ").status_code == 400
    assert model.requests == []


def test_an_answer_goes_on_without_a_browser_and_can_be_followed_later(tmp_path, workspace):
    async def talk() -> tuple[str, bool]:
        until = asyncio.Event()
        site = open_site(tmp_path, model=ScriptedChat([["It is ", Stall(until), "on port 5433."]]))
        chat = WebChat(site, ScriptedChat([["It is ", Stall(until), "on port 5433."]]))
        answer = chat.ask("Which port?")
        first = answer.follow()
        await anext(first)
        await first.aclose()  # the tab is closed
        with pytest.raises(UsageError, match="being written"):
            chat.ask("And now?")
        until.set()
        events = [event async for event in answer.follow()]
        is_over = chat.running is None
        await chat.close()
        close_site(site)
        return "".join(event["text"] for event in events if event["type"] == "delta"), is_over

    assert asyncio.run(talk()) == ("It is on port 5433.", True)


def test_a_stopped_answer_ends_and_is_not_asked_again(tmp_path, workspace):
    async def talk() -> tuple[list[str], str]:
        model = ScriptedChat([["It is ", Stall()], "Fine."])
        site = open_site(tmp_path, model=model)
        answer = site.chat.ask("Which port?")
        events = answer.follow()
        await anext(events)
        await site.chat.stop()
        rest = [event["type"] async for event in events]
        follow_up = site.chat.ask("How are you?")
        assert [event async for event in follow_up.follow()]
        request = str(model.requests[-1].turns[-1])
        await site.close_chat()
        close_site(site)
        return rest, request

    rest, request = asyncio.run(talk())
    assert rest[-2:] == ["notice", "done"]
    assert "How are you?" in request
    assert "Which port?" not in request


@pytest.mark.parametrize(("allow", "result"), [(True, "5"), (False, "not carried out")])
def test_a_person_decides_about_a_call_on_the_page(tmp_path, workspace, allow, result):
    async def talk() -> list[str]:
        model = ScriptedChat([[ToolUse("1", "toy__add", {"a": 2, "b": 3})], "Done."])
        site = open_site(tmp_path, model=model, **toy(permission="ask"))
        answer = site.chat.ask("Add them.")
        async for event in answer.follow():
            if event["type"] == "approval":
                site.chat.decide(event["id"], allow=allow)
                with pytest.raises(UsageError, match="no longer waits"):
                    site.chat.decide("another", allow=True)
        outcome = str(model.requests[-1].turns[-1])
        await site.close_chat()
        close_site(site)
        return [outcome]

    assert result in asyncio.run(talk())[0]


def test_without_a_model_the_pages_say_what_to_set(tmp_path, workspace):
    with visiting(tmp_path) as pages, pages.http:
        page = pages.follow(pages.post("/chat/send", text="Hello?"))
        assert "model.provider" in " ".join(texts(page, ".notice"))
