"""A preview of what the model would be sent."""

from __future__ import annotations

from kept.models.base import count_tokens
from kept.testing import ScriptedChat
from tests.support.agents import open_agent
from tests.support.workspaces import write_note


def test_a_preview_is_the_request_that_is_sent_then(tmp_path):
    model = ScriptedChat(["Hello.", "5433."])
    with open_agent(tmp_path, model) as at:
        write_note(at.workspace, "MEMORY.md", "# Memory\n\n- Staging runs on port 5433.\n")
        at.say("Hello?")
        preview = at.agent.preview("Which port is staging on?", at.session().id)
        at.say("Which port is staging on?")
        sent = model.requests[-1]
        assert preview.context.request.system == sent.system
        assert [tool.name for tool in preview.context.request.tools] == [tool.name for tool in sent.tools]
        assert str(preview.context.request.turns) == str(sent.turns)
        assert preview.context.tokens == count_tokens(sent)
        assert preview.context.record["tokens"]["total"] > 0


def test_a_preview_writes_nothing_and_calls_no_model(tmp_path):
    model = ScriptedChat(["Hello."])
    with open_agent(tmp_path, model) as at:
        write_note(at.workspace, "memory/servers.md", "# Servers\n\nStaging runs on port 5433.\n")
        at.say("Hello?")
        before = at.sessions.get(at.session().id)
        preview = at.agent.preview("Which port is staging on?", before.id)
        assert len(model.requests) == 1
        assert at.sessions.get(before.id) == before
        assert any("servers.md" in passage["citation"] for passage in preview.context.recalled)


def test_a_conversation_that_has_not_begun_can_be_previewed(tmp_path):
    with open_agent(tmp_path, ScriptedChat()) as at:
        preview = at.agent.preview("Hello?")
        assert "Hello?" in str(preview.context.request.turns)
        assert at.sessions.recent(limit=1) == []
