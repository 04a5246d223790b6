"""The model for tests does as it is told, and tells what it was asked."""

from __future__ import annotations

import asyncio

import pytest

from kept.llm.base import Finished, ModelUsage, TextDelta, ToolUse
from kept.remote_errors import ContextOverflow, ModelFailed
from kept.testing import ScriptedChat, Stall
from tests.support.chat_requests import ask, end_of, request, text_of, tools_of


def test_answers_come_in_the_order_of_the_list_and_in_pieces():
    model = ScriptedChat(["The parrot is green.", "Yes."], piece_chars=5)
    events = ask(model, "What colour is the parrot?")
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["The p", "arrot", " is g", "reen."]
    assert end_of(events) == Finished("end", ModelUsage(input=end_of(events).usage.input, output=5))
    assert text_of(ask(model, "Sure?")) == "Yes."
    assert [asked.turns[0].parts[0].text for asked in model.requests] == ["What colour is the parrot?", "Sure?"]


def test_an_answer_can_depend_on_the_request():
    model = ScriptedChat(lambda asked: f"{asked.purpose}, {len(asked.turns)} turns")
    assert text_of(ask(model, request("a", "b", "c", purpose="flush"))) == "flush, 3 turns"


def test_text_tool_calls_and_the_end_are_given_as_scripted():
    call = ToolUse("1", "memory_search", {"query": "parrot"})
    events = ask(ScriptedChat([["Looking.", call]]), "Find the parrot.")
    assert (text_of(events), tools_of(events), end_of(events).reason) == ("Looking.", [call], "tools")
    end = Finished("length", ModelUsage(7, 8, 9))
    assert end_of(ask(ScriptedChat([["Cut o", end, "never said"]]), "Go on.")) == end


def test_an_error_is_raised_where_it_stands():
    model = ScriptedChat([["Half an", ModelFailed("The line went dead.")], ContextOverflow("Too long.")])

    heard = []

    async def listen():
        async for event in model.stream(request("Go on.")):
            heard.append(event)

    with pytest.raises(ModelFailed):
        asyncio.run(listen())
    assert text_of(heard) == "Half an"
    with pytest.raises(ContextOverflow):
        ask(model, "Again.")
    assert model.broken_off == 0


def test_a_stall_lasts_until_it_is_let_go_or_the_listener_leaves():
    async def listen():
        gate = asyncio.Event()
        model = ScriptedChat([["before ", Stall(gate), "after"], ["before ", Stall()]])
        heard = []
        async for event in model.stream(request("Wait.")):
            heard.append(event)
            gate.set()
        task = asyncio.create_task(anext(aiter(_after_the_first(model))))
        while len(model.requests) < 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return text_of(heard), model.broken_off

    async def _after_the_first(model):
        async for event in model.stream(request("Wait for ever.")):
            if not isinstance(event, TextDelta):
                yield event

    assert asyncio.run(listen()) == ("before after", 1)


def test_a_call_too_many_fails_the_test_whatever_is_caught():
    with pytest.raises(AssertionError, match=r"no answer to call 1 \(summary\)"):
        ask(ScriptedChat(), request("Hello?", purpose="summary"))
