"""Several processes in one session: every request ends with the person, and no result is lost."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kept import SessionStore
from kept.agent.agent import Agent
from kept.agent.events import Inbound, Reply
from kept.agent.extra_tools import FunctionTool
from kept.models.base import ToolOutput, ToolUse
from kept.testing import ScriptedChat
from tests.support.agents import open_agent, shown
from tests.support.chat_server import Call, ModelServer, Says
from tests.support.commands import Outcome, kept_environment, run_kept


def test_an_answer_of_another_process_comes_before_the_message_that_is_still_open(tmp_path):
    other_model = ScriptedChat(["B is answered."])
    model = ScriptedChat([["Wait.", ToolUse("1", "ask_elsewhere", {})], "A is answered."])

    def ask_elsewhere() -> str:
        """Let another process answer in the same session."""

        async def respond() -> None:
            with SessionStore(at.memory.config, clock=at.clock) as sessions:
                other = Agent(at.memory, sessions, other_model)
                async for _ in other.respond(at.session().id, [Inbound("b", "This is B.")]):
                    pass

        thread = threading.Thread(target=lambda: asyncio.run(respond()))
        thread.start()
        thread.join()
        return "The other one has answered."

    with open_agent(tmp_path, model, tools=[FunctionTool(ask_elsewhere)]) as at:
        events = at.say("This is A.", as_id="a")
        assert isinstance(events[-1], Reply)
        last = model.requests[-1].turns[-1]
        assert last.role == "user"
        assert "This is A." in shown(model.requests[-1]).rpartition("B is answered.")[2]
        outputs = [part for turn in model.requests[-1].turns for part in turn.parts if isinstance(part, ToolOutput)]
        assert ["The other one has answered." in output.text for output in outputs] == [True], "not 'interrupted'"
        assert all(turn.role == "user" for turn in other_model.requests[0].turns[-1:])


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_four_processes_in_one_session_never_send_a_request_that_ends_with_the_assistant(tmp_path, provider):
    def answer(request):
        last = json.dumps(request.body["messages"][-1])
        if "tool_result" in last or '"role": "tool"' in last:
            return Says("Port 5433.")
        return Says("Let me look.", Call("memory_search", {"query": "staging port"}))

    with ModelServer() as server:
        server.otherwise = answer
        url = server.anthropic_url if provider == "anthropic" else server.openai_url
        settings = {"provider": provider, "name": "m", "base_url": url, "api_key": "sk-test-01234567"}
        options = [part for name, value in settings.items() for part in ("--set", f"model.{name}={value}")]
        in_home: Any = {"env": kept_environment(tmp_path), "cwd": tmp_path}
        run_kept("init", tmp_path / "workspace", **in_home)

        def say(text: str) -> Outcome:
            return run_kept(*options, "chat", "--session", "work", "-m", text, **in_home)

        with ThreadPoolExecutor(4) as pool:
            for turn in range(3):
                ended = [*pool.map(say, [f"Question {turn}.{number}?" for number in range(4)])]
                assert [outcome.code for outcome in ended] == [0, 0, 0, 0], ended
        # Not 24: a process whose request ends with the tool result of another is answered without a call of its own.
        assert len(server.chats) >= 12
        for request in server.chats:
            assert request.body["messages"][-1]["role"] in ("user", "tool"), json.dumps(request.body["messages"][-3:])
