"""What was recalled and sent for an answer is recorded with it, small, readable, and within reach of a forget."""

import json

from kept.agent.context import read_context
from kept.models.base import ToolUse, count_tokens
from kept.sessions.entries import Message, Text
from kept.testing import ScriptedChat
from tests.support.agents import open_agent, reply
from tests.support.session_strategies import path_of
from tests.support.workspaces import write_note

PORT = "The staging database listens on port 5433."


def test_an_answer_records_what_was_recalled_and_the_size_of_each_part(tmp_path):
    with open_agent(tmp_path) as at:
        write_note(at.workspace, "memory/servers.md", f"{PORT}\n")
        write_note(at.workspace, "USER.md", "Ann lives in Oslo.\n")
        answered = reply(at.say("Which port does the staging database listen on?"))
        record = at.messages()[-1].metadata
        context = read_context(at.messages()[-1])
        assert answered.context == context
        (passage,) = context["recalled"]
        assert passage["citation"] == "memory/servers.md#L1"
        assert (passage["grade"], 0 < passage["score"] <= 1) == ("strong", True)
        tokens = context["tokens"]
        assert [*tokens["files"]] == ["USER.md"]
        assert tokens["history"] == tokens["summary"] == 0
        assert min(tokens[name] for name in ("system", "tools", "recalled", "message")) > 0
        parts = sum(tokens[name] for name in ("system", "tools", "summary", "history", "recalled", "message"))
        assert parts + sum(tokens["files"].values()) == tokens["total"]
        assert PORT not in json.dumps(record), "a note is named, not copied"
        assert len(json.dumps(record)) < 800


def test_the_total_is_the_size_of_the_last_request_and_history_grows(tmp_path):
    search = ToolUse("1", "memory_search", {"query": "harbour"})
    model = ScriptedChat(["Good morning.", ["Let me see.", search], "Nothing is known about it."])
    with open_agent(tmp_path, model) as at:
        at.say("Good morning, I am back from the islands.")
        at.say("Is the harbour open?")
        first, last = (message for message in at.messages() if message.metadata.get("context"))
        assert (first.metadata["context"]["requests"], last.metadata["context"]["requests"]) == (1, 2)
        history = read_context(last)["tokens"]["history"]
        assert history > read_context(first)["tokens"]["history"] == 0
        total = read_context(last)["tokens"]["total"]
        assert abs(total - count_tokens(model.requests[-1])) <= 8, "parts are rounded up"
        assert last.metadata["context"]["lines"][0] == 2, "the first message"


def test_a_passage_without_room_is_recorded_as_not_sent(tmp_path, monkeypatch):
    monkeypatch.setattr("kept.agent.context.RECALLED_TOKENS", 150)
    with open_agent(tmp_path) as at:
        for number in range(4):
            write_note(at.workspace, f"memory/{number}.md", f"{PORT} Reason {number}. " + f"why{number} " * 20 + "\n")
        at.say("Which port does the staging database listen on?")
        sent = [passage.get("sent", True) for passage in read_context(at.messages()[-1])["recalled"]]
        assert sent[0] is True
        assert False in sent


def test_damage_in_a_record_is_left_out():
    damaged = Message(
        "assistant", (Text("5433"),), metadata={"recalled": [{"citation": "memory/servers.md#L1"}, 7, {"score": 1}]}
    )
    assert read_context(damaged) == {"recalled": [{"citation": "memory/servers.md#L1"}]}
    assert read_context(Message("assistant", (Text("5433"),))) is None
    wrong = Message("assistant", (), metadata={"context": {"tokens": {"system": -1, "files": [], "total": 9}}})
    assert read_context(wrong) == {"recalled": [], "tokens": {"total": 9, "files": {}}}


def test_forgetting_a_word_takes_it_out_of_the_record(tmp_path):
    with open_agent(tmp_path) as at:
        write_note(at.workspace, "memory/walrus-launch.md", f"{PORT}\n")
        at.say("Which port does the staging database listen on?")
        assert "walrus-launch" in json.dumps(at.messages()[-1].metadata)
        plan = at.memory.forgetting.plan("walrus-launch")
        at.memory.forgetting.apply(plan)
        path = path_of(at.sessions, at.session())
        with open(path, encoding="utf-8") as file:
            assert "walrus-launch" not in file.read()
        context = read_context(at.messages()[-1])
        assert context["tokens"]["total"] > 0
