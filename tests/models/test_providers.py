"""Anthropic's and OpenAI's formats over real HTTP: what is sent, what is heard, and what every failure means."""

import asyncio
import json
from typing import Any

import pytest

from kept.base.remote_errors import ContextOverflow, ModelFailed, ModelRefused, ModelUnavailable
from kept.config import load_config
from kept.models.base import MALFORMED, ChatModel, ModelUsage, TextDelta, TextPart, ToolOutput, ToolUse, Turn
from kept.models.registry import make_model
from kept.models.streaming import StreamedChat
from tests.support.chat_requests import SEARCH, ask, end_of, request, text_of, tools_of
from tests.support.chat_server import (
    Breaks,
    Call,
    ErrorEvent,
    Fails,
    ModelServer,
    Raw,
    Says,
    Stalls,
    anthropic_error,
    openai_error,
)

KEY = "sk-test-0123456789abcdef"
PROVIDERS = ("anthropic", "openai")
both = pytest.mark.parametrize("provider", PROVIDERS)
NO_WAIT = (("retry-after-ms", "1"),)


def model_at(server: ModelServer, provider: str, **settings: Any) -> ChatModel:
    url = server.anthropic_url if provider == "anthropic" else server.openai_url
    given = {"provider": provider, "base_url": url, "name": "some-model", "api_key": KEY, **settings}
    config = load_config(settings={f"model.{name}": value for name, value in given.items() if value is not None}).config
    return make_model(config.agent.model, config.keys)


@both
def test_text_is_streamed_in_pieces_with_usage_and_the_reason_of_its_end(server, provider):
    server.script(Says("The parrot is green. Grün! 绿", usage=(120, 30, 100)))
    events = ask(model_at(server, provider), "What colour is it?")
    assert len([event for event in events if isinstance(event, TextDelta)]) == 4
    assert text_of(events) == "The parrot is green. Grün! 绿"
    assert (end_of(events).reason, end_of(events).usage) == ("end", ModelUsage(120, 30, 100))


@both
@pytest.mark.parametrize("told", [10**19, -(10**19), 10**400, True, 1.5, "many", None, [], float("nan")])
def test_a_number_of_tokens_that_cannot_be_true_counts_as_not_told(server, provider, told):
    server.script(Says("The parrot is green.", usage=(told, 30, 0)), Says("The parrot is green.", usage=(120, told, 0)))
    model = model_at(server, provider)
    first, second = (end_of(ask(model, "What colour is it?")).usage for _ in range(2))
    assert 0 < first.input < 1_000, "it is estimated"
    assert first.output == 30
    assert second.input == 120
    assert 0 < second.output < 1_000


@both
def test_tool_calls_in_parallel_arrive_whole_after_the_text(server, provider):
    calls = [Call("memory_search", {"query": "parrot"}), Call("memory_get", {"path": "a.md", "deep": {"x": [1]}})]
    server.script(Says("Looking.", *calls, piece_chars=3))
    events = ask(model_at(server, provider), request("Find it.", tools=(SEARCH,)))
    assert text_of(events) == "Looking."
    assert [(use.id, use.name, use.arguments) for use in tools_of(events)] == [
        ("call_1", "memory_search", {"query": "parrot"}),
        ("call_2", "memory_get", {"path": "a.md", "deep": {"x": [1]}}),
    ]
    assert end_of(events).reason == "tools"


@both
@pytest.mark.parametrize("raw", ['{"query": "par', "[1]", "NaN", '{"x": NaN}', '"text"', "[" * 100_000])
def test_arguments_that_are_no_json_object_are_handed_on_as_such(server, provider, raw):
    server.script(Says("", Call("memory_search", raw), piece_chars=50_000))
    (use,) = tools_of(ask(model_at(server, provider), request("Find it.", tools=(SEARCH,))))
    assert use.arguments == {MALFORMED: raw[:2_000]}


CONVERSATION = (
    Turn.of("user", "Where is it?"),
    Turn("assistant", (TextPart("Looking."), ToolUse("a|b", "memory_search", {"query": "ü"}), ToolUse("c", "x", {}))),
    Turn("user", (TextPart("Hurry."), ToolOutput("a|b", "Port 5433"), ToolOutput("c", "no such tool", is_error=True))),
    Turn.of("user", "   "),
    Turn.of("user", "And?"),
)


@both
def test_half_a_surrogate_pair_in_a_conversation_does_not_end_it(server, provider):
    server.script(Says("Fine."))
    use, output = ToolUse("c\udcff", "search\ud83d", {"q\ud83d": ["\ud83d"]}), ToolOutput("c\udcff", "cut \ud83d")
    turns = (Turn.of("user", "cut \ud83d"), Turn("assistant", (use,)), Turn("user", (output,)))
    asked = request(*turns, system="A system \ud83d")
    assert text_of(ask(model_at(server, provider), asked)) == "Fine."
    assert "cut \ufffd" in json.dumps(server.requests[-1].body, ensure_ascii=False)


def test_anthropic_is_sent_what_it_documents(server):
    ask(model_at(server, "anthropic"), request(*CONVERSATION, tools=(SEARCH,), max_tokens=77))
    (chat,) = server.chats
    assert chat.headers["authorization"] == f"Bearer {KEY}"
    body = chat.body
    assert (body["model"], body["max_tokens"], body["stream"]) == ("some-model", 77, True)
    assert body["system"] == [{"type": "text", "text": "You are Kept.", "cache_control": {"type": "ephemeral"}}]
    assert body["tools"] == [
        {"name": "memory_search", "description": "Searches the notes.", "input_schema": dict(SEARCH.parameters)}
    ]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"][1] == {
        "type": "tool_use",
        "id": "a_b",
        "name": "memory_search",
        "input": {"query": "ü"},
    }
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text", "text"]
    first, second, *_ = body["messages"][2]["content"]
    assert first == {"type": "tool_result", "tool_use_id": "a_b", "is_error": False, "content": "Port 5433"}
    assert second["is_error"] is True


def test_openai_is_sent_what_it_documents(server):
    ask(model_at(server, "openai"), request(*CONVERSATION, tools=(SEARCH,), max_tokens=77))
    (chat,) = server.chats
    assert chat.headers["authorization"] == f"Bearer {KEY}"
    body = chat.body
    assert (body["model"], body["stream"], body["stream_options"]) == ("some-model", True, {"include_usage": True})
    assert body["max_tokens"] == 77, "compatible servers know this name"
    assert body["tools"][0]["function"]["parameters"] == dict(SEARCH.parameters)
    system, first, calls, one, two, last = body["messages"]
    assert system == {"role": "system", "content": "You are Kept."}
    assert first == {"role": "user", "content": "Where is it?"}
    assert [json.loads(call["function"]["arguments"]) for call in calls["tool_calls"]] == [{"query": "ü"}, {}]
    assert one == {"role": "tool", "tool_call_id": "a|b", "content": "Port 5433"}
    assert two["content"] == "The tool failed: no such tool"
    assert last == {"role": "user", "content": "Hurry.\n\nAnd?"}


@both
def test_no_key_is_needed_elsewhere_and_the_one_of_the_environment_stays_at_home(server, provider, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "from-the-environment")
    for name in ("ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-mine: from-the-environment\nauthorization: from-the-environment")
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/elsewhere")
    assert text_of(ask(model_at(server, provider, api_key=None), "Hello?")) == "Fine."
    assert "from-the-environment" not in str(server.chats[0].headers)


@both
def test_a_wrong_key_is_told_in_one_line_without_the_key(provider):
    with ModelServer(key="sk-another-0123456789") as server, pytest.raises(ModelUnavailable) as caught:
        ask(model_at(server, provider), "Hello?")
    assert "does not accept the key" in caught.value.message
    assert "model.api_key" in caught.value.hint
    assert KEY not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"
    assert "\n" not in caught.value.message


TOO_LONG = "prompt is too long: 207791 tokens > 200000 maximum"
OVERFLOWS = [
    ("anthropic", 400, anthropic_error("invalid_request_error", TOO_LONG)),
    ("anthropic", 413, anthropic_error("request_too_large", "Request exceeds the maximum size")),
    ("openai", 400, openai_error("Too many tokens.", code="context_length_exceeded")),
    ("openai", 400, {"object": "error", "message": "max_tokens must be at least 1, got -186.", "code": 400}),
    ("openai", 400, openai_error("The decoder prompt is longer than the maximum model length of 4096.")),
    ("openai", 400, {"error": {"code": 400, "message": "the request exceeds the available context size"}}),
]


@pytest.mark.parametrize(("provider", "status", "body"), OVERFLOWS)
def test_every_way_to_say_that_a_request_is_too_long_is_an_overflow(server, provider, status, body):
    server.otherwise = Fails(status, body)
    with pytest.raises(ContextOverflow):
        ask(model_at(server, provider), "Hello?")
    assert len(server.chats) == 1


def test_an_answer_for_which_there_is_no_room_is_an_overflow(server):
    server.script(Says("", stop="model_context_window_exceeded"), Says("So", stop="model_context_window_exceeded"))
    with pytest.raises(ContextOverflow):
        ask(model_at(server, "anthropic"), "Hello?")
    assert end_of(ask(model_at(server, "anthropic"), "Hello?")).reason == "length"


FAILURES = [
    ("anthropic", Fails(429, anthropic_error("rate_limit_error", "slow down"), NO_WAIT), ModelFailed, True),
    ("anthropic", Fails(529, anthropic_error("overloaded_error", "Overloaded"), NO_WAIT), ModelFailed, True),
    ("anthropic", Fails(500, b"<html>nginx</html>", NO_WAIT), ModelFailed, True),
    ("anthropic", Fails(400, anthropic_error("invalid_request_error", "tools: bad")), ModelRefused, False),
    ("anthropic", Fails(404, anthropic_error("not_found_error", "model: some-model")), ModelUnavailable, False),
    ("anthropic", Fails(302, b"", (("location", "http://127.0.0.1:9/"),)), ModelRefused, False),
    (
        "openai",
        Fails(429, openai_error("You exceeded your current quota", code="insufficient_quota"), NO_WAIT),
        ModelUnavailable,
        False,
    ),
    ("openai", Fails(503, b"", NO_WAIT), ModelFailed, True),
    ("openai", Fails(400, openai_error("Unknown parameter")), ModelRefused, False),
    ("openai", Fails(404, openai_error('model "x" not found, try pulling it first')), ModelUnavailable, False),
]


@pytest.mark.parametrize(("provider", "fault", "kind", "retryable"), FAILURES)
def test_every_failure_says_what_it_is_and_whether_to_try_again(server, provider, fault, kind, retryable):
    server.otherwise = fault
    with pytest.raises((ModelFailed, ModelUnavailable)) as caught:
        ask(model_at(server, provider), "Hello?")
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert caught.value.hint
    assert KEY not in caught.value.message


@both
def test_a_server_that_is_busy_for_a_moment_is_asked_again_and_not_for_ever(server, provider):
    server.script(Fails(503, b"", NO_WAIT), Fails(429, b"", NO_WAIT), Says("At last."))
    assert text_of(ask(model_at(server, provider), "Hello?")) == "At last."
    server.otherwise = Fails(503, b"", NO_WAIT)
    with pytest.raises(ModelFailed):
        ask(model_at(server, provider), "Hello?")
    assert len(server.chats) == 6


@both
@pytest.mark.parametrize(
    "fault",
    [
        Breaks("Half an"),
        Breaks("Half an", in_order=True),
        ErrorEvent("Half an", "overloaded_error", "Overloaded"),
        Stalls("Half an"),
        Stalls("Half an", pings=True),
    ],
    ids=["reset", "closed", "error", "silent", "pings"],
)
def test_an_answer_that_breaks_off_is_a_failure_after_what_was_heard(server, provider, fault):
    server.script(fault)
    model = model_at(server, provider, timeout_s=0.5)
    heard = []

    async def listen():
        try:
            async for event in model.stream(request("Hello?")):
                heard.append(event)
        finally:
            await model.close()

    with pytest.raises(ModelFailed) as caught:
        asyncio.run(listen())
    assert text_of(heard) == "Half an"
    assert caught.value.retryable is not isinstance(fault, Stalls), "a silent model is waited for once"
    assert len(server.chats) == 1, "what has begun is not asked for again"


@both
@pytest.mark.parametrize(
    ("piece", "encoding", "reason"),
    [
        ("x" * 50_000, "", "more than can be an answer"),
        ("data: x\n" * 100, "", "more than can be an answer"),
        (": still here\n\n" * 100, "", "more than can be an answer"),
        ("\x1f\x08" * 100, "gzip", "compressed"),
    ],
    ids=["no line ends", "no event ends", "nothing is said", "compressed"],
)
def test_an_answer_without_end_is_not_listened_to_until_it_ends(server, provider, piece, encoding, reason, monkeypatch):
    server.script(Raw((piece,), endless=True, encoding=encoding))
    model = model_at(server, provider)
    monkeypatch.setattr("kept.models.streaming.MAX_ANSWER_BYTES", 200_000)
    monkeypatch.setattr("kept.models.streaming.MAX_EVENT_BYTES", 100_000)
    with pytest.raises(ModelFailed, match=reason):
        ask(model, "Hello?")


def test_signs_of_life_do_not_extend_an_answer_for_ever(monkeypatch):
    monkeypatch.setattr("kept.models.streaming._MAX_ANSWER_TIMEOUTS", 0.005)  # a slow machine is not silent for so long

    class Alive(StreamedChat):
        label, timeout_s = "The model", 20

        async def ask(self, request):
            while True:
                await asyncio.sleep(0)
                yield None

    async def listen():
        return [event async for event in Alive().stream(None)]

    with pytest.raises(ModelFailed, match=r"The model did not finish within 0\.1 s"):
        asyncio.run(listen())


GARBLED = {
    "anthropic": [
        ("event: message_start\ndata: {not json",),
        ('event: content_block_delta\ndata: {"type": "content_block_delta", "index": 3}',),
        (
            'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 3, "delta": {"type": '
            '"input_json_delta", "partial_json": "{"}}',
        ),
        ('event: message_delta\ndata: {"type": "message_delta"}',),
        ("event: error\ndata: not json",),
        ("<html>",),
        (),
    ],
    "openai": [
        ("data: {not json",),
        ('data: {"choices": [{"index": 0}]}',),
        ('data: {"choices": 7}',),
        ("data: [DONE]",),
        ('data: {"error": "odd"}',),
        ("<html>",),
        (),
    ],
}


@pytest.mark.parametrize(
    ("provider", "lines"), [(provider, lines) for provider, all_lines in GARBLED.items() for lines in all_lines]
)
def test_what_cannot_be_understood_is_a_failure(server, provider, lines):
    server.script(Raw(lines))
    with pytest.raises(ModelFailed) as caught:
        ask(model_at(server, provider), "Hello?")
    assert caught.value.retryable


@both
def test_a_server_that_is_not_there_is_named(provider):
    server = ModelServer()
    server.__exit__()
    with pytest.raises(ModelFailed) as caught:
        ask(model_at(server, provider), "Hello?")
    assert server.anthropic_url in caught.value.message


@both
def test_the_end_of_an_answer_has_its_reason(server, provider):
    words = {"anthropic": ("max_tokens", "refusal"), "openai": ("length", "content_filter")}[provider]
    server.script(*(Says("So", stop=word) for word in words))
    assert [end_of(ask(model_at(server, provider), "Go.")).reason for _ in words] == ["length", "refused"]


def test_servers_that_number_and_name_their_calls_oddly_are_understood(server):
    def chunk(delta, finish=None):
        return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def call(index, call_id, name, arguments):
        return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}

    server.script(
        Raw(
            (
                chunk({"tool_calls": [call(0, "a", "x", '{"n":1}')]}),
                chunk({"tool_calls": [call(0, "b", "y", "{}")]}, "stop"),
            )
        ),
        Raw((chunk({"tool_calls": [{"function": {"name": "x", "arguments": "{}"}}]}, "stop"), "data: [DONE]")),
    )
    events = ask(model_at(server, "openai"), "Go.")
    assert [(use.id, use.name, use.arguments) for use in tools_of(events)] == [("a", "x", {"n": 1}), ("b", "y", {})]
    assert end_of(events).reason == "tools"
    assert end_of(events).usage.input > 0, "what is not counted is estimated"
    assert tools_of(ask(model_at(server, "openai"), "Go."))[0].id == "call_1"


def test_an_address_without_a_path_is_understood(server):
    assert text_of(ask(model_at(server, "openai", base_url=server.anthropic_url), "Hello?")) == "Fine."
    assert text_of(ask(model_at(server, "anthropic", base_url=server.openai_url), "Hello?")) == "Fine."
