"""Old tool results are cut, long imports are not compacted whole, and what is new is flushed when a session ends."""

from __future__ import annotations

import asyncio

from kept.agent.events import Reply
from kept.agent.extra_tools import FunctionTool
from kept.agent.session_log import SessionLog
from kept.llm.base import ToolOutput, ToolUse
from kept.sessions.entries import Message, StateEntry
from kept.testing import ScriptedChat
from tests.support.agents import open_agent
from tests.support.http_gateway import serving
from tests.support.waiting import wait_until_async

REPORT = "The harbour report says that all is well. " * 60


def report() -> str:
    """Return the report."""
    return REPORT


def reporting():
    def answer(request):
        if request.purpose != "reply":
            return "NO_REPLY" if request.purpose == "flush" else "A summary."
        is_result = isinstance(request.turns[-1].parts[0], ToolOutput)
        return "All is well." if is_result else [ToolUse("1", "report", {})]

    return ScriptedChat(answer, context_window=16_000)


def test_old_tool_results_are_cut_in_rare_steps_before_a_compaction_is_needed(tmp_path):
    model = reporting()
    with open_agent(tmp_path, model, tools=[FunctionTool(report)], **{"compaction.keep_recent_tokens": 2_000}) as at:
        for number in range(30):
            assert isinstance(at.say(f"Report {number}?")[-1], Reply)
        pruned = [body.value for body in at.bodies() if isinstance(body, StateEntry) and body.name == "pruned"]
        assert 2 <= len(pruned) <= 8, "in steps, not in every turn"
        assert at.compactions() == []
        outputs = [part for turn in model.requests[-1].turns for part in turn.parts if isinstance(part, ToolOutput)]
        uses = [part for turn in model.requests[-1].turns for part in turn.parts if isinstance(part, ToolUse)]
        assert [output.call_id for output in outputs] == [use.id for use in uses], "every call keeps its result"
        assert len(outputs) == 30
        path = at.sessions.get(at.session().id).citation
        assert outputs[0].text == f"[630 tokens of report were cut here to make room; the full text is in {path}#L4]"
        assert "all is well" in outputs[-1].text
        assert at.messages()[2].content[0].text == REPORT, "the transcript keeps it"


def test_a_long_imported_session_gets_its_first_reply_after_few_requests_and_is_flushed_later(tmp_path):
    def answer(request):
        return {"flush": "- Ann likes fact. L2", "summary": "They talked."}.get(request.purpose, "Here I am.")

    model = ScriptedChat(answer, context_window=4_000)
    with open_agent(tmp_path, model) as at:
        session = at.session().id
        messages = []
        for number in range(600):
            messages.append(Message.of("user", f"Question {number}: " + "what is new in the harbour? " * 6))
            messages.append(Message.of("assistant", f"Answer {number}."))
        at.sessions.append_all(session, messages)
        events = at.say("Are you there?")
        assert isinstance(events[-1], Reply)
        purposes = [request.purpose for request in model.requests]
        before = purposes[: purposes.index("reply")]
        assert before.count("flush") <= 2
        assert before.count("summary") <= 2
        first, last = at.compactions()[0].metadata["deferred"]
        assert last > 1_000 > first
        turns = 0
        backlog = 1
        while backlog and turns < 80:
            turns += 1
            at.say(f"And {turns}?")
            backlog = len(SessionLog(at.sessions, session).view().backlog)
        assert backlog == 0
        lines = [value["throughLine"] for value in at.flushes() if value.get("backlog")]
        assert lines == sorted(lines)
        assert lines[-1] == last


def test_a_session_that_ends_is_flushed(tmp_path):
    model = ScriptedChat(lambda request: "- Ann moved to Oslo. L2" if request.purpose == "flush" else "I see. " * 40)

    async def scenario():
        async with serving(tmp_path, model) as at:
            for number in range(4):
                await at.post(user="ada", text=f"I have moved to Oslo, and this is part {number}. " * 10)
            await at.post(user="ada", text="/new")
            note = tmp_path / "workspace" / "memory"
            await wait_until_async(lambda: any("Oslo" in file.read_text() for file in note.rglob("*.md")))
            await at.post(user="bob", text="Hello")
            await at.post(user="bob", text="/new")
        assert [request.purpose for request in model.requests].count("flush") == 1, "a greeting is not flushed"

    asyncio.run(scenario())


def test_flushes_at_the_end_of_a_session_can_be_switched_off(tmp_path):
    model = ScriptedChat(lambda request: "I see. " * 40)

    async def scenario():
        settings = {"compaction.memory_flush.at_session_end": False}
        async with serving(tmp_path, model, agent_settings=settings) as at:
            for number in range(4):
                await at.post(user="ada", text=f"I have moved to Oslo, and this is part {number}. " * 10)
            await at.post(user="ada", text="/new")
        assert {request.purpose for request in model.requests} == {"reply"}

    asyncio.run(scenario())
