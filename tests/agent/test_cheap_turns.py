"""What is new is flushed when a session ends."""

import pytest

from kept.testing import ScriptedChat
from tests.support.http_gateway import serving
from tests.support.waiting import wait_until_async


@pytest.mark.parametrize("flushes", [True, False])
async def test_a_session_that_ends_is_flushed_unless_that_is_switched_off(tmp_path, flushes):
    model = ScriptedChat(lambda request: "- Ann moved to Oslo. L2" if request.purpose == "flush" else "I see. " * 40)
    settings = {"compaction.memory_flush.at_session_end": flushes}
    async with serving(tmp_path, model, agent_settings=settings) as at:
        for number in range(4):
            await at.post(user="ada", text=f"I have moved to Oslo, and this is part {number}. " * 10)
        await at.post(user="ada", text="/new")
        note = tmp_path / "workspace" / "memory"
        if flushes:
            await wait_until_async(lambda: any("Oslo" in file.read_text() for file in note.rglob("*.md")))
        await at.post(user="bob", text="Hello")
        await at.post(user="bob", text="/new")
    assert [request.purpose for request in model.requests].count("flush") == flushes, "a greeting is not flushed"
