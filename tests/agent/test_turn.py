"""One turn, from a message to a reply that is remembered."""

import asyncio
from pathlib import Path

import pytest

from kept.agent.events import Inbound, Notice, Reply, ReplyDelta, ToolEnded, ToolStarted
from kept.agent.material import recall
from kept.agent.session_log import NO_RESULT, SessionLog
from kept.agent.tools.toolbox import Toolbox
from kept.agent.turn import GAVE_UP, LAST_STEP
from kept.base.records import SeenTail
from kept.base.remote_errors import BudgetExhausted, ModelFailed
from kept.errors import WriteFailed
from kept.models.base import Finished, ModelUsage, TextPart, ToolOutput, ToolUse
from kept.sessions.entries import Message, Text, Thinking, ToolCall, ToolResult
from kept.testing import ScriptedChat, Stall
from tests.support.agents import open_agent, reply, shown
from tests.support.session_strategies import path_of
from tests.support.workspaces import open_memory, write_note

SEARCH = ToolUse("t1", "memory_search", {"query": "staging port"})


def written(events) -> str:
    return "".join(event.text for event in events if isinstance(event, ReplyDelta))


def outputs(request) -> list[ToolOutput]:
    return [part for turn in request.turns for part in turn.parts if isinstance(part, ToolOutput)]


def test_a_message_is_on_disk_before_the_model_is_asked(tmp_path):
    with open_agent(tmp_path) as at:
        seen = []
        at.model.follow(lambda request: seen.append([message.text for message in at.messages()]) or "Hello.")
        events = at.say("Good morning.", as_id="tg-1")
        assert written(events) == reply(events).text == "Hello."
        assert seen == [["Good morning."]]
        assert [message.text for message in at.messages()] == ["Good morning.", "Hello."]
        assert at.sessions.load(at.session().id).entries[-1].id == reply(events).entry_id
        assert at.messages()[0].metadata["inbound"] == "tg-1"
        assert at.messages()[1].metadata["answers"] == ["tg-1"]
        assert at.messages()[1].metadata["prompt"].startswith("system@")


def test_what_is_in_the_conversation_is_not_recalled_once_more(tmp_path):
    with open_agent(tmp_path) as at:
        at.say("The staging database listens on port 5433.")
        at.say("On which port is the staging database?")
        assert shown(at.model.requests[1]).count("5433") == 1


def test_a_session_that_starts_takes_in_what_changed(tmp_path):
    quiet = {"memory_search.sync.on_search": False}
    with open_agent(tmp_path, **quiet) as at:
        write_note(at.workspace, "memory/servers.md", "The staging database listens on port 5433.\n")
        at.say("On which port is the staging database?")
        assert "5433" in shown(at.model.requests[0])
    with open_agent(tmp_path, **quiet, **{"memory_search.sync.on_session_start": False}) as at:
        write_note(at.workspace, "memory/colours.md", "The kitchen door is painted turquoise.\n")
        at.say("What colour is the kitchen door?", session=at.session("other").id)
        assert "turquoise" not in shown(at.model.requests[0])


def test_a_degraded_memory_is_said_once(tmp_path):
    with open_agent(tmp_path) as at:
        at.memory.add("Something to search for.")
        at.memory.index_service.embedder.broken = True
        first = [event.text for event in at.say("Something?") if isinstance(event, Notice)]
        again = [event.text for event in at.say("Something else?") if isinstance(event, Notice)]
        assert any("broken" in text for text in first)
        assert not set(first) & set(again)


def test_tools_are_used_as_often_as_the_model_asks(tmp_path):
    write_it = ToolUse("t2", "memory_write", {"text": "Ann likes tea."})
    with open_agent(tmp_path, ScriptedChat([["Let me see.", SEARCH], write_it, "Done."])) as at:
        write_note(at.workspace, "memory/servers.md", "The staging port is 5433.\n")
        events = at.say("Look it up.")
        started = [event.name for event in events if isinstance(event, ToolStarted)]
        assert started == ["memory_search", "memory_write"]
        assert [event.ok for event in events if isinstance(event, ToolEnded)] == [True, True]
        assert reply(events).text == written(events) == "Let me see.\n\nDone."
        (first,) = outputs(at.model.requests[1])
        assert "memory/servers.md#L1" in first.text
        assert "Ann likes tea." in at.today()
        roles = [message.role for message in at.messages()]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (ToolUse("t", "rm_rf", {}), "There is no tool 'rm_rf'."),
        (ToolUse("t", "memory_search", {}), "'query' is missing"),
        (ToolUse("t", "memory_search", {"query": 7}), "has to be text"),
        (ToolUse("t", "memory_get", {"path": "../../etc/passwd"}), "Error"),
        (ToolUse("t", "sessions_search", {"query": "x"}), "There is no tool 'sessions_search'."),
    ],
)
def test_a_tool_that_fails_is_told_to_the_model_and_the_turn_goes_on(tmp_path, use, told):
    with open_agent(tmp_path, ScriptedChat([use, "I could not."])) as at:
        events = at.say("Do it.")
        assert reply(events).text == "I could not."
        (result,) = outputs(at.model.requests[1])
        assert result.is_error
        assert told in result.text
        assert [event.ok for event in events if isinstance(event, ToolEnded)] == [False]


def test_a_tool_that_crashes_is_told_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(Toolbox, "run", lambda *call, **more: 1 / 0)
    with open_agent(tmp_path, ScriptedChat([SEARCH, "I could not."])) as at:
        assert reply(at.say("Do it.")).text == "I could not."
        assert "ZeroDivisionError" in outputs(at.model.requests[1])[0].text


def test_a_model_that_never_stops_asking_is_stopped(tmp_path):
    calls = ScriptedChat(lambda request: SEARCH)
    with open_agent(tmp_path, calls, **{"tools.max_steps": 3}) as at:
        events = at.say("Go on.")
        assert reply(events).text == GAVE_UP
        assert len(calls.requests) == 4
        assert calls.requests[-1].turns[-1].parts[-1] == TextPart(LAST_STEP)
        assert sum(isinstance(event, ToolStarted) for event in events) == 3
        assert at.say("Still there?", as_id="next")  # every call has a result: the conversation can go on
        assert all(LAST_STEP in part.text or not part.is_error for part in outputs(calls.requests[-1]))


@pytest.mark.parametrize("setting", [{"tools.max_steps": 0}, {"memory_search.enabled": False}])
def test_without_steps_or_search_no_tools_are_offered_and_the_turn_goes_on(tmp_path, setting):
    with open_agent(tmp_path, **setting) as at:
        assert reply(at.say("Hello?")).text == "All right."
        assert at.model.requests[0].tools == ()
        assert "memory_search" not in at.model.requests[0].system


def test_what_was_said_beside_the_last_call_is_the_reply_where_nothing_follows(tmp_path):
    note = ToolUse("t", "memory_write", {"text": "Ann likes tea."})
    with open_agent(tmp_path, ScriptedChat([["Ann likes tea, noted.", note], ""])) as at:
        assert reply(at.say("Ann likes tea.", as_id="a")).text == "Ann likes tea, noted."
        assert reply(at.say("Ann likes tea.", as_id="a")).text == "Ann likes tea, noted."


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        *(
            (silent, "")
            for silent in ("NO_REPLY", " NO_REPLY\n", "`NO_REPLY`", "**NO_REPLY**", "NO_REPLY.", "no_reply")
        ),
        ("No_Reply - nothing was asked.", ""),
        ("Noted.\n\nNO_REPLY", "Noted."),
        ("Noted.\nno_reply\nAnd more.", "Noted.\nAnd more."),
        ("Noted. NO_REPLY", "Noted."),
        ("Say NO_REPLY to stay silent.", "Say NO_REPLY to stay silent."),
        ("NO_REPLYING\nNO\n\n  N\nend", "NO_REPLYING\nNO\n\n  N\nend"),
    ],
)
def test_no_reply_is_never_streamed_and_alone_it_is_silent(tmp_path, answer, sent):
    for size in (1, 2, 3, 100):
        with open_agent(tmp_path, ScriptedChat([answer], piece_chars=size)) as at:
            events = at.say("Remember this.", as_id=f"{answer}{size}")
            assert written(events) == reply(events).text == sent
            assert reply(events).silent == (not sent)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_reasoning_before_an_answer_is_recorded_and_never_shown(tmp_path, size):
    answer = "<think>\nThe user greets me.\n</think>\n\nHello! Some models write <think> tags."
    with open_agent(tmp_path, ScriptedChat([answer, "<think>never closed"], piece_chars=size)) as at:
        events = at.say("Hi")
        assert written(events) == reply(events).text == "Hello! Some models write <think> tags."
        assert at.messages()[-1].content[0] == Thinking("The user greets me.")
        events = at.say("Hi again")
        assert (written(events), reply(events).text) == ("", "The model sent an empty answer.")
        assert "greets me" not in shown(at.model.requests[-1])


def test_of_messages_of_which_some_were_answered_only_the_others_are(tmp_path):
    with open_agent(tmp_path, ScriptedChat(["First.", "Second."])) as at:
        at.say("One.", as_id="1")
        session = at.session().id
        events = asyncio.run(at.collect(session, [Inbound("1", "One."), Inbound("2", "Two.")]))
        assert reply(events).text == "Second."
        assert [message.text for message in at.messages()] == ["One.", "First.", "Two.", "Second."]
        assert at.messages()[-1].metadata["answers"] == ["2"]


def test_cut_off_at_every_line_the_turn_comes_to_the_same_end(tmp_path):
    """Whatever line of a turn was the last to reach the disk, asking again gives a reply, once, to one message."""
    script = lambda: ScriptedChat([["Looking.", SEARCH], "Found."])  # noqa: E731
    with open_agent(tmp_path / "whole", script()) as at:
        at.say("Port?", as_id="a")
        lines = path_of(at.sessions, at.session()).read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines) + 1):
        with open_agent(tmp_path / str(kept), ScriptedChat(lambda request: "Found.")) as at:
            session = at.session()
            with open(path_of(at.sessions, session), "ab") as file:
                file.write(b"".join(lines[1:kept]))
            texts = "Looking.\n\nFound." if kept > 2 else "Found."  # what was written before the crash counts
            assert reply(at.say("Port?", as_id="a")).text == texts
            messages = at.messages(session.id)
            assert [message.text for message in messages if message.role == "user"] == ["Port?"]
            assert sum("answers" in message.metadata for message in messages) == 1
            calls = [block.id for message in messages for block in message.content if isinstance(block, ToolCall)]
            results = [
                block.call_id for message in messages for block in message.content if isinstance(block, ToolResult)
            ]
            assert calls == results
            if kept == 3:
                assert NO_RESULT in str(messages)


def test_a_turn_that_is_cancelled_while_a_tool_runs_leaves_no_call_without_a_result(tmp_path):
    async def cancelled(at):
        events = at.agent.respond(at.session().id, [Inbound("a", "Port?")])
        async for event in events:
            if isinstance(event, ToolStarted):
                break
        await events.aclose()

    with open_agent(tmp_path, ScriptedChat([[SEARCH, ToolUse("t2", "memory_status", {})], "Found."])) as at:
        asyncio.run(cancelled(at))
        assert [message.role for message in at.messages()] == ["user", "assistant", "tool"]
        assert [block.call_id for block in at.messages()[-1].content] == ["t1", "t2"]
        assert reply(at.say("Port?", as_id="a")).text == "Found."


def test_a_turn_that_is_cancelled_while_the_model_thinks_can_be_asked_again(tmp_path):
    async def cancelled(at):
        turn = asyncio.create_task(at.collect(at.session().id, [Inbound("a", "Hello?")]))
        while not at.model.requests:
            await asyncio.sleep(0)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    with open_agent(tmp_path, ScriptedChat([["Half of", Stall()], "Whole."])) as at:
        asyncio.run(cancelled(at))
        assert [message.text for message in at.messages()] == ["Hello?"]
        assert at.model.broken_off == 1
        assert reply(at.say("Hello?", as_id="a")).text == "Whole."


def test_an_answer_that_was_cut_off_or_declined_is_said(tmp_path):
    ends = [["A long", Finished("length", ModelUsage())], [Finished("refused", ModelUsage())]]
    with open_agent(tmp_path, ScriptedChat(ends)) as at:
        assert Notice("The answer was cut off at the model's limit.") in at.say("Write a book.")
        assert reply(at.say("Do harm.")).text == "The model declined to answer."


def test_a_reply_that_breaks_off_is_asked_for_again_and_says_so(tmp_path):
    with open_agent(tmp_path, ScriptedChat([["The answer to your", ModelFailed("Cut off.")], "Again."])) as at:
        events = at.say("Hello?")
        assert reply(events).text == "Again."
        streamed = "".join(event.text for event in events if isinstance(event, ReplyDelta))
        assert streamed == "The answer to your\n\n[The answer broke off and begins again.]\n\nAgain."


def test_a_stopped_message_is_not_asked_again(tmp_path):
    with open_agent(tmp_path, ScriptedChat([["Half an", BudgetExhausted("Stopped.")], "Fine."])) as at:
        with pytest.raises(BudgetExhausted):
            at.say("Delete everything!", as_id="a")
        asyncio.run(at.agent.stop(at.session().id, ["a", "unknown"]))
        asyncio.run(at.agent.stop(at.session().id, ["a"]))
        assert len(at.messages()) == 2
        assert reply(at.say("Hello?", as_id="b")).text == "Fine."
        turns = at.model.requests[-1].turns
        assert [turn.role for turn in turns] == ["user", "assistant", "user"]
        assert reply(at.say("Delete everything!", as_id="a")).silent


def test_turns_of_one_session_follow_each_other_and_those_of_two_do_not_wait(tmp_path):
    async def both(at):
        gate = asyncio.Event()
        at.model.follow(lambda request: [Stall(gate), "Done."] if "slow" in shown(request) else "Quick.")
        first, second = at.session("one").id, at.session("two").id
        slow = asyncio.create_task(at.collect(first, [Inbound("1", "slow")]))
        waiting = asyncio.create_task(at.collect(first, [Inbound("2", "behind it")]))
        quick = await at.collect(second, [Inbound("3", "quick")])
        assert reply(quick).text == "Quick."
        assert not waiting.done()
        gate.set()
        await asyncio.gather(slow, waiting)
        return [message.text for message in at.messages(first)]

    with open_agent(tmp_path) as at:
        assert asyncio.run(both(at)) == ["slow", "Done.", "behind it", "Done."]


def test_what_a_channel_says_by_our_names_and_what_a_transcript_from_elsewhere_holds_does_no_harm(tmp_path):
    with open_agent(tmp_path, ScriptedChat(["Fine."])) as at:
        session = at.session().id
        odd = {"inbound": 7, "answers": {"a": 1}, "group": "x"}
        at.sessions.append(session, Message("user", (Text("Before."),), metadata=odd))
        at.sessions.append(session, Message("assistant", (Text("Odd."),), metadata={"answers": 5, "inbound": []}))
        given = Inbound(
            "b", "Hello?", metadata={"group": [{"sender": "Eve", "text": "x"}], "answers": ["b"], "chat": 1}
        )
        events = asyncio.run(at.collect(session, [given]))
        assert reply(events).text == "Fine."
        assert at.messages()[2].metadata == {"chat": 1, "inbound": "b", "channel": "terminal"}


def test_what_does_not_work_behind_the_reply_does_not_take_it_back(tmp_path, caplog):
    with open_agent(tmp_path, ScriptedChat(["Fine."])) as at:
        session, real = at.session().id, at.sessions.append_all

        async def listen():
            events = []
            async for event in at.agent.respond(session, [Inbound("a", "Hello?" * 4_000)]):
                events.append(event)
                if isinstance(event, Reply):
                    at.model.context_window = 3_000
                    at.sessions.append_all = lambda *given, **more: _refuse()
            at.sessions.append_all = real
            return events

        def _refuse():
            raise WriteFailed("No space left.")

        at.model.follow(lambda request: "Fine." if request.purpose == "reply" else "NONE")
        assert reply(asyncio.run(listen())).text == "Fine."
        assert "the conversation could not be compacted (write_failed)" in caplog.text


def test_a_message_that_another_process_adds_meanwhile_is_not_added_twice(tmp_path):
    with open_agent(tmp_path, ScriptedChat(["Both."])) as at:
        session = at.session().id
        log = SessionLog(at.sessions, session)
        log.view()
        at.sessions.append(session, Message("user", (Text("One."),), metadata={"inbound": "1"}))
        real, raced = at.sessions.append_all, []

        def append_all(session_id, bodies, **more):
            if not raced:
                raced.append(real(session_id, [Message("user", (Text("Two."),), metadata={"inbound": "2"})]))
            return real(session_id, bodies, **more)

        at.sessions.append_all = append_all
        log.receive([Inbound(str(number), "x") for number in (1, 2, 3)])
        assert [message.metadata["inbound"] for message in at.messages(session)] == ["1", "2", "3"]


def write_walrus(workspace: Path, *, notes: int) -> None:
    for number in range(notes):
        parts = [
            f"## Part {part}\n\n- The walrus ledger {number} is in room {part}.\n" + f"word{part} " * 60
            for part in (1, 2, 3)
        ]
        write_note(workspace, f"memory/walrus-{number}.md", "\n\n".join(parts))


@pytest.mark.parametrize(("notes", "recalled_notes"), [(1, 1), (5, 3)])
def test_recall_takes_other_notes_first_and_then_further_passages(tmp_path, notes, recalled_notes):
    write_walrus(tmp_path / "workspace", notes=notes)
    with open_memory(tmp_path, settings={"memory_search.provider": "none"}) as memory:
        recalled, _ = recall(memory, ["walrus ledger"], (), seen=SeenTail("", 1), limit=3)
    paths = [passage.citation.partition("#")[0] for passage in recalled]
    assert (len(paths), len(set(paths))) == (3, recalled_notes)
