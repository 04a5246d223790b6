"""An agent that is killed again and again, each time at another write, comes to the same end as one that is not."""

import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest

import kept.base.durable
from kept.agent.compaction import verify_receipt
from kept.models.base import ToolUse
from kept.sessions.entries import ToolCall, ToolResult
from kept.testing import ScriptedChat
from tests.support.agents import AgentHarness, open_agent

pytestmark = pytest.mark.kills

MESSAGES = 14
FILLER = "It was a long day with many small things to see to, none of which will matter to anybody in a week. "


def answer(request):
    """What it says follows from what it is asked, so that it is the same after a crash."""
    if request.purpose != "reply":
        return "- Ann moved to Oslo." if request.purpose == "flush" else "They talked."
    last = request.turns[-1].parts[-1]
    text = getattr(last, "text", "")
    if text.startswith("Message ") and int(text.split()[1]) % 3 == 0:
        return ToolUse("t", "memory_search", {"query": "Oslo"})
    return "Heard."


def converse(tmp_path: Path, dies_at: int, behind_it: bool) -> None:
    """Asks all messages from the first on, and is killed at a write to a note or a transcript: before or behind it."""
    writes = 0
    real = kept.base.durable.os.fsync

    def fsync(handle):
        nonlocal writes
        writes += 1
        if writes == dies_at and not behind_it:
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)
        if writes == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    at = AgentHarness(tmp_path, ScriptedChat(answer, context_window=3_500))
    session = at.session().id
    kept.base.durable.os.fsync = fsync
    for number in range(MESSAGES):
        at.say(f"Message {number} {FILLER * 5}", as_id=str(number), session=session)
    at.close()


def test_killed_at_any_write_it_loses_nothing_and_answers_everything_once(tmp_path):
    chance = random.Random(7)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once, by the process that forks
    rounds = 0
    while True:
        rounds += 1
        worker = context.Process(target=converse, args=(tmp_path, chance.randint(1, 9), chance.random() < 0.5))
        worker.start()
        worker.join(120)
        if worker.exitcode == 0:
            break
        assert worker.exitcode == -signal.SIGKILL
        assert rounds < 60
    assert rounds > 5
    with open_agent(tmp_path) as at:
        said = at.messages()
        asked = [message.metadata["inbound"] for message in said if message.role == "user"]
        assert asked == [str(number) for number in range(MESSAGES)]
        answered = [one for message in said for one in message.metadata.get("answers", ())]
        assert answered == asked
        calls = [block.id for message in said for block in message.content if isinstance(block, ToolCall)]
        results = [block.call_id for message in said for block in message.content if isinstance(block, ToolResult)]
        assert len(calls) == len(results) >= 5
        assert at.compactions()
        assert all(verify_receipt(at.memory, at.sessions.transcripts, one.receipt) is None for one in at.compactions())
        assert at.today().count("Ann moved to Oslo.") == 1
        assert at.sessions.load(at.session().id).damage == ()
