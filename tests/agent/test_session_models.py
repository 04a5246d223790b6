"""Model of a session, how much it thinks, and a second model for work in the background."""

import asyncio

import pytest

from kept import Memory, SessionStore
from kept.config import load_config
from kept.config.schema import ModelChoiceSettings, ModelSettings
from kept.gateway.app import open_dispatcher, open_model
from kept.gateway.dispatcher import LocalConversation
from kept.models.base import ModelFamily
from kept.sessions.entries import StateEntry, Thinking
from kept.testing import FakeEmbedder, ScriptedChat
from tests.support.agents import open_agent
from tests.support.chat_server import Call, ModelServer, Says

KEY = "sk-test-01234567"


@pytest.fixture
def server():
    with ModelServer() as server:
        server.otherwise = lambda request: Says(f"I am {request.body['model']}.")
        yield server


class Program:
    """A run of a program on one home, as `kept chat` is."""

    def __init__(self, tmp_path, server, provider="anthropic", **settings) -> None:
        url = server.anthropic_url if provider == "anthropic" else server.openai_url
        given = {"provider": provider, "name": "claude-opus-4-8", "base_url": url, "api_key": KEY}
        loaded = load_config(
            home=str(tmp_path / "home"),
            workspace=str(tmp_path / "workspace"),
            settings={**{f"model.{name}": value for name, value in given.items()}, **settings},
            environ={},
        )
        (tmp_path / "workspace").mkdir(exist_ok=True)
        self.memory = Memory(loaded.config, embedder=FakeEmbedder())
        self.sessions = SessionStore(loaded.config)
        self.model = open_model(loaded)
        self.dispatcher = open_dispatcher(self.memory, self.sessions, self.model)
        self.conversation = LocalConversation(self.dispatcher)
        self.runner = asyncio.Runner()

    def say(self, text: str) -> str:
        return self.runner.run(self.conversation.answer(text, lambda event: None)).text

    def close(self) -> None:
        self.runner.run(self.dispatcher.close())
        self.runner.run(self.model.close())
        self.runner.close()
        self.memory.close()
        self.sessions.close()


@pytest.fixture
def program(tmp_path, server):
    opened = []

    def start(**settings) -> Program:
        opened.append(Program(tmp_path, server, **settings))
        return opened[-1]

    yield start
    for run in opened:
        run.close()


CHOICES = {"model.choices.fast.name": "claude-haiku-4-5", "model.choices.fast.context_window": 50_000}


def test_a_session_keeps_its_model_across_restarts(program, server):
    first = program(**CHOICES)
    assert first.say("Hello") == "I am claude-opus-4-8."
    assert "default, fast" in first.say("/model")
    assert "claude-haiku-4-5 (anthropic)" in first.say("/model fast")
    assert first.say("Hello") == "I am claude-haiku-4-5."
    second = program(**CHOICES)
    assert second.say("Hello") == "I am claude-haiku-4-5."
    assert "model claude-haiku-4-5 (anthropic)" in second.say("/status")
    assert second.sessions.find("terminal", "main").model_override == "fast"
    assert "claude-opus-4-8" in second.say("/model default")
    assert second.say("Hello") == "I am claude-opus-4-8."


def test_only_models_of_the_settings_can_be_chosen(program, server):
    run = program(**CHOICES)
    assert run.say("/model gpt-9").endswith("You can choose: default, fast.")
    run.sessions.append(run.sessions.find("terminal", "main").id, StateEntry("model", "imported/model"))
    assert run.say("Hello") == "I am claude-opus-4-8.", "a name from an import is not used"


@pytest.mark.parametrize(
    ("name", "level", "thinking", "effort"),
    [
        ("claude-opus-4-8", "high", {"type": "adaptive"}, {"effort": "high"}),
        ("claude-sonnet-5-5", "low", {"type": "adaptive"}, {"effort": "low"}),
        ("claude-haiku-4-5", "medium", None, None),
        ("claude-sonnet-4-20250514", "low", None, None),
        ("claude-3-7-sonnet-latest", "high", None, None),
        ("some-other-model", "high", None, None),
        ("claude-opus-4-8", "off", {"type": "disabled"}, None),
        ("claude-opus-4-8", None, None, None),
    ],
)
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
def test_models_of_anthropic_that_take_an_effort_get_one(program, server, name, level, thinking, effort):
    run = program(**{"model.name": name, **({"model.thinking": level} if level else {})})
    run.say("Hello")
    body = server.chats[-1].body
    assert body.get("thinking") == thinking
    assert body.get("output_config") == effort


@pytest.mark.parametrize(("level", "effort"), [("off", "none"), ("low", "low"), ("high", "high"), (None, None)])
def test_openai_gets_a_reasoning_effort(program, server, level, effort):
    run = program(provider="openai", **({"model.thinking": level} if level else {}))
    run.say("Hello")
    assert server.chats[-1].body.get("reasoning_effort") == effort


def test_signed_thoughts_go_back_with_the_tool_calls_that_they_led_to_and_are_never_shown(program, server):
    call = Call("memory_search", {"query": "port"})
    server.script(Says("Looking.", call, thought="I should search."), Says("5433.", thought="Found it."), Says("Yes."))
    run = program(**{"model.thinking": "high"})
    assert run.say("Which port?") == "Looking.\n\n5433."
    assistant = server.chats[1].body["messages"][-2]["content"]
    assert assistant[0] == {"type": "thinking", "thinking": "I should search.", "signature": "signed:I should search."}
    assert [block["type"] for block in assistant] == ["thinking", "text", "tool_use"]
    messages = run.sessions.load(run.sessions.find("terminal", "main").id).messages
    assert Thinking("Found it.", "signed:Found it.") in messages[-1].content
    run.say("Sure?")
    assert "I should search." not in str(server.chats[2].body), "thoughts of earlier turns are not sent again"


def test_a_turn_that_another_model_began_goes_on_without_thinking(program, server):
    server.script(Says("", Call("memory_search", {"query": "port"})), Says("5433."))
    run = program(**{"model.thinking": "high"})
    run.say("Which port?")
    assert server.chats[0].body["thinking"] == {"type": "adaptive"}
    assert server.chats[1].body["thinking"] == {"type": "disabled"}, "there is no thought before the call"


def test_flushes_and_summaries_use_the_model_for_the_background(tmp_path):
    cheap = ScriptedChat(lambda request: "- The port is 5433. L2" if request.purpose == "flush" else "About ports.")
    main = ScriptedChat(lambda request: "word " * 120, context_window=6_000)
    family = ModelFamily(main, {}, background=cheap)
    with open_agent(tmp_path, family) as at:
        for number in range(12):
            at.say(f"Question {number}: " + "which port is it? " * 40)
        assert at.compactions()
        assert {request.purpose for request in main.requests} == {"reply"}
        assert {request.purpose for request in cheap.requests} == {"flush", "summary"}
        assert at.compactions()[0].metadata["model"] == "scripted"


def test_a_key_goes_only_where_it_belongs():
    main = ModelSettings(provider="anthropic", name="big", api_key="sk-main", base_url="https://a.example")
    same = main.choose(ModelChoiceSettings(name="small"))
    assert (same.name, same.api_key, same.base_url) == ("small", "sk-main", "https://a.example")
    other = main.choose(ModelChoiceSettings(name="small", base_url="https://b.example"))
    assert (other.api_key, other.provider) == (None, "anthropic")
    foreign = main.choose(ModelChoiceSettings(provider="openai", name="gpt", context_window=9_000))
    assert (foreign.api_key, foreign.base_url, foreign.context_window) == (None, None, 9_000)


@pytest.mark.parametrize(
    ("mode", "chat_type", "words"),
    [
        ("auto", "direct", ""),
        ("auto", "group", "Do not mention file names"),
        ("on", "group", "name its citation"),
        ("off", "direct", "Do not mention file names"),
    ],
)
def test_the_citations_mode_is_part_of_the_prompt(tmp_path, mode, chat_type, words):
    model = ScriptedChat(["Yes."])
    with open_agent(tmp_path, model, **{"memory_search.citations": mode}) as at:
        session = at.sessions.get_or_create("telegram", "7", chat_type=chat_type)
        at.say("Hello?", session=session.id)
        system = model.requests[0].system
        assert words in system
        assert ("Cite what you rely on" in system) == (not words)
        if not words:
            assert "name its citation" not in system
            assert "Do not mention file names" not in system
