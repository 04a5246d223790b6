"""Calls of tools that a person decides about: allowed, denied, too late, and interrupted."""

import asyncio

from kept.agent.events import UNDECIDED, ApprovalAsked, ApprovalDecided, Inbound, Reply, ToolStarted, describe_approval
from kept.agent.extra_tools import FunctionTool
from kept.models.base import ToolUse
from kept.sessions.entries import StateEntry
from kept.testing import ScriptedChat
from tests.support.agents import open_agent
from tests.support.session_strategies import path_of

CALL = [ToolUse("1", "send_mail", {"to": "bob"})]


class Mail:
    """Tool that records what it sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.tool = FunctionTool(self.send_mail, permission="ask")

    def send_mail(self, to: str) -> str:
        """Send a mail."""
        self.sent.append(to)
        return "Sent."


async def respond(at, text="Write to Bob.", *, decide=None, stop=False, as_id="m1"):
    events = []
    stream = at.agent.respond(at.session().id, [Inbound(as_id, text)])
    async for event in stream:
        events.append(event)
        if isinstance(event, ApprovalAsked):
            if stop:
                break
            if decide is not None:
                assert at.agent.approvals.waiting(at.session().id) == [event]
                assert at.agent.approvals.decide(event.id, allow=decide, by="terminal")
                assert not at.agent.approvals.decide(event.id, allow=True, by="terminal"), "a decision is made once"
    await stream.aclose()
    return events


def decisions(at) -> list[dict]:
    return [body.value for body in at.bodies() if isinstance(body, StateEntry) and body.name == "approval"]


def results(at) -> list:
    return [block for message in at.messages() if message.role == "tool" for block in message.content]


def question(arguments: dict) -> str:
    return describe_approval(ApprovalAsked("1", "s", "send_mail", arguments, 300))


def test_the_question_shows_every_argument_however_long_the_others_are():
    polite = "Dear Ann, " + "thank you for the minutes. " * 30
    assert question({"a": 2, "b": [True, None, 1.5]}) == (
        'The agent wants to call send_mail with {"a": 2, "b": [true, null, 1.5]}'
    )
    shown = question(
        {
            "note": polite,
            "mail": {"text": polite, "to": ["ann@example.com", "evil@example.com"]},
            "number": int("7" * 900),
            "k" * 900 + "1": "first",
            "k" * 900 + "2": "second",
            "quoted": '"' * 900,
        }
    )
    for part in (
        '"note": "Dear Ann, ',
        "evil@example.com",
        "(820 characters)",
        '…" (900 characters)',
        "first",
        "second",
    ):
        assert part in shown
    assert shown.count("(820 characters)") == 2
    assert len(shown) < 2_500


def test_the_question_spells_out_what_a_person_could_not_see():
    shown = question({"to": "\u202emoc.elpmaxe@live", "text": "a\nb\u2028c\x1b[2J\u200b"})
    assert "\\u202emoc.elpmaxe" in shown
    assert "a\\nb\\u2028c\\u001b[2J\\u200b" in shown
    assert shown.isprintable()


def test_a_call_that_is_allowed_runs_and_the_decision_stands_in_the_transcript(tmp_path):
    mail = Mail()
    with open_agent(tmp_path, ScriptedChat([CALL, "Done."]), tools=[mail.tool]) as at:
        events = asyncio.run(respond(at, decide=True))
        asked = next(event for event in events if isinstance(event, ApprovalAsked))
        assert (asked.tool, dict(asked.arguments), asked.timeout_s) == ("send_mail", {"to": "bob"}, 300)
        assert [type(event) for event in events if isinstance(event, ApprovalDecided | ToolStarted)] == [
            ApprovalDecided,
            ToolStarted,
        ]
        assert mail.sent == ["bob"]
        asked_value, decided_value = decisions(at)
        assert asked_value == {"call": "1", "tool": "send_mail", "decision": "asked"}
        assert decided_value == {"call": "1", "tool": "send_mail", "decision": "allowed", "by": "terminal"}
        assert [result.text for result in results(at)] == ["Sent."]


def test_a_call_that_is_denied_does_not_run_and_the_model_is_told(tmp_path):
    mail = Mail()
    with open_agent(tmp_path, ScriptedChat([CALL, "All right, I will not."]), tools=[mail.tool]) as at:
        events = asyncio.run(respond(at, decide=False))
        assert isinstance(events[-1], Reply)
        assert mail.sent == []
        (result,) = results(at)
        assert result.is_error
        assert "did not allow this call" in result.text
        assert decisions(at)[-1]["decision"] == "denied"


def test_no_answer_in_time_counts_as_no(tmp_path, monkeypatch):
    monkeypatch.setattr("kept.agent.events.ASK_TIMEOUT_S", 0.1)
    mail = Mail()
    with open_agent(tmp_path, ScriptedChat([CALL, "Later."]), tools=[mail.tool]) as at:
        asyncio.run(respond(at))
        assert mail.sent == []
        assert "counts as no" in results(at)[0].text
        assert decisions(at)[-1] == {"call": "1", "tool": "send_mail", "decision": "timeout", "by": "nobody"}
        assert at.agent.approvals.waiting() == []


def test_a_turn_that_is_stopped_while_it_asks_leaves_a_clear_result(tmp_path):
    mail = Mail()
    with open_agent(tmp_path, ScriptedChat([CALL]), tools=[mail.tool]) as at:
        asyncio.run(respond(at, stop=True))
        assert [result.text for result in results(at)] == [UNDECIDED]
        assert at.agent.approvals.waiting() == []
        assert mail.sent == []


def test_a_call_that_was_asked_about_when_the_program_was_killed_is_denied_after_the_restart(tmp_path):
    mail = Mail()
    with open_agent(tmp_path, ScriptedChat([CALL]), tools=[mail.tool]) as at:
        path = path_of(at.sessions, at.session())
        asyncio.run(respond(at, stop=True))
        with open(path, "rb") as file:
            lines = file.readlines()
        with open(path, "wb") as file:
            file.writelines(lines[:-1])  # as it was when the person was asked
    model = ScriptedChat(["It was not sent. Shall I try again?"])
    with open_agent(tmp_path, model, tools=[mail.tool]) as at:
        events = asyncio.run(respond(at))
        assert isinstance(events[-1], Reply)
        assert [result.text for result in results(at)] == [UNDECIDED]
        assert mail.sent == []


def test_a_denied_function_is_not_offered(tmp_path):
    model = ScriptedChat([CALL, "I cannot."])
    mail = Mail()
    with open_agent(tmp_path, model, tools=[FunctionTool(mail.send_mail, permission="deny")]) as at:
        asyncio.run(respond(at))
        assert "send_mail" not in [spec.name for spec in model.requests[0].tools]
        assert "There is no tool 'send_mail'" in results(at)[0].text
        assert mail.sent == []
