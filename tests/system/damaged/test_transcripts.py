"""One bad line in one transcript: every other line, and every other conversation, is served by every command."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kept import Memory, SessionStore
from kept.agent.agent import Agent
from kept.agent.events import Inbound
from kept.agent.tools.toolbox import Toolbox
from kept.models.base import Finished, ModelUsage, TextDelta
from kept.sessions.entries import Message, TokenUsage
from kept.testing import FakeEmbedder
from tests.support.damaged_commands import Commands
from tests.support.mutations import flipped_bits, wrong_fields

TIME = "2026-03-14T15:09:26.535+01:00"
KEY = "agent:main:telegram:default:direct:{}"
USAGE = {"input": 10, "output": 5, "context": 15}
START = {
    "type": "session",
    "id": "bad",
    "parentId": None,
    "timestamp": TIME,
    "version": 1,
    "key": KEY.format("bad"),
    "predecessor": "before",
    "compactions": 2,
    "state": {"model": "opus", "title": "About keys"},
    "metadata": {"cwd": "/somewhere"},
}
BLOCKS = [
    {"type": "text", "text": "I look."},
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "toolCall", "id": "c1", "name": "search", "arguments": {"q": "key"}},
    {"type": "toolResult", "toolCallId": "c1", "toolName": "search", "isError": False, "text": "Found."},
    {"type": "attachment", "mediaType": "image/png", "name": "a.png", "path": "a.png"},
]
LINES: dict[str, dict[str, Any]] = {
    "message": {
        "message": {
            "role": "assistant",
            "sender": "Ada",
            "content": BLOCKS,
            "model": "opus",
            "usage": USAGE,
            "metadata": {"inbound": "m1", "answers": ["m1"], "group": [{"sender": "Bo", "text": "x", "time": TIME}]},
        }
    },
    "compaction": {
        "summary": "Keys.",
        "firstKeptId": "e1",
        "source": "manual",
        "tokensBefore": 900,
        "tokensAfter": 90,
        "receipt": {"path": "sessions/x.jsonl", "lines": [[1, 2]], "sha256": "00", "searchable": True},
        "metadata": {"why": "asked"},
    },
    "reset": {"reason": "command", "successor": "next"},
    "state": {"name": "flush", "value": {"outcome": "written", "throughLine": 3, "facts": 1}},
    "forget": {"type": "state", "name": "forget", "value": {"asked": TIME, "cuts": [["MEMORY.md", 1, 2, "00"]]}},
    "custom": {"value": 1},
}


def record_of(kind: str) -> dict[str, Any]:
    return {"type": kind, "id": "line", "parentId": "bad", "timestamp": TIME, **LINES[kind]}


def to_line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def good_line(number: int) -> bytes:
    """A message that has to be served, whatever stands beside it."""
    said = {"role": "user", "content": f"Marker{number} of the zeppelin."}
    return to_line({"type": "message", "id": f"g{number}", "parentId": None, "timestamp": TIME, "message": said})


class Place:
    """A home with a good conversation and a bad one, and every command that reads them."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "home"
        self.workspace = tmp_path / "workspace"
        self.folder = self.home / "agents/main/sessions"
        self.workspace.mkdir(exist_ok=True)
        self.run = Commands(self.home, self.workspace).run
        with self.sessions() as sessions:
            self.good = sessions.get_or_create("telegram", "good").id
            sessions.append(self.good, Message.of("user", "The spare key is under the blue pot."))

    def sessions(self) -> SessionStore:
        return SessionStore.open(home=self.home)

    def memory(self) -> Memory:
        return Memory.open(self.workspace, home=self.home, embedder=FakeEmbedder())

    def write(self, lines: list[bytes], name: str = "20260314T140926Z_bad.jsonl") -> Path:
        path = self.folder / name
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path

    def serves_the_good_one(self) -> None:
        assert self.good in self.run("sessions", "list")
        assert self.good in self.run("sessions", "list", "--json")
        assert "blue pot" in self.run("sessions", "show", self.good)
        assert "blue pot" in self.run("search", "spare key under the blue pot")
        assert "Sessions" in self.run("status")
        self.run("doctor")
        self.run("hook", "session-start", stdin='{"cwd": "/elsewhere"}')
        assert self.run("chat", "-m", "Where is the spare key?", "--session", "telegram:good")
        with self.memory() as memory, self.sessions() as sessions:
            found = Toolbox(memory, sessions).run("sessions_search", {"maxResults": 20})
            assert self.good in found.text
            assert sessions.get_or_create("telegram", "somebody else").messages == 0

    def serves_all_of(self, path: Path, markers: list[str]) -> None:
        """Every good line of a bad transcript is shown, read by the agent and searched."""
        name = path.stem.partition("_")[2]
        shown = self.run("sessions", "show", name)
        shown_as_json = json.dumps(json.loads(self.run("sessions", "show", name, "--json"))["entries"])
        with self.memory() as memory, self.sessions() as sessions:
            memory.sync()
            read = "".join(passages(memory, f"sessions/{path.name}"))
            loaded = " ".join(line.content.body.text for line in sessions.iter_lines(name) if is_said(line.content))
        for marker in markers:
            assert all(marker in text for text in (shown, shown_as_json, read, loaded)), marker


def passages(memory: Memory, path: str) -> Iterator[str]:
    start: int | None = 1
    while start is not None:
        passage = memory.read(path, start=start, lines=100_000)
        yield passage.text
        start = passage.next_from


def is_said(content: Any) -> bool:
    return isinstance(getattr(content, "body", None), Message)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def interleaved(lines: list[bytes]) -> tuple[list[bytes], list[str]]:
    mixed = [to_line(START)]
    for number, line in enumerate(lines):
        mixed += [line, good_line(number)]
    return mixed, [f"Marker{number} " for number in range(len(lines))]


@pytest.mark.parametrize("kind", LINES)
def test_a_line_with_a_wrong_field_takes_no_other_down(place, kind):
    lines, markers = interleaved(list(wrong_fields(record_of(kind))))
    path = place.write(lines)
    before = path.read_bytes()
    place.serves_all_of(path, markers)
    place.serves_the_good_one()
    assert path.read_bytes() == before, "what is canonical stays byte for byte"
    assert place.run("chat", "-m", "And where is the zeppelin?", "--session", "telegram:bad")


@pytest.mark.parametrize("kind", LINES)
def test_a_line_with_a_flipped_bit_takes_no_other_down(place, kind):
    lines, markers = interleaved(list(flipped_bits(to_line(record_of(kind)), every=11)))
    path = place.write(lines)
    place.serves_all_of(path, markers)
    place.serves_the_good_one()


def test_a_first_line_that_is_wrong_takes_no_other_session_down(place):
    starts = [*wrong_fields(START), *flipped_bits(to_line(START), every=17)]
    for number, start in enumerate(starts):
        place.write([start, good_line(number)], f"20260314T140926Z_bad{number}.jsonl")
    with place.sessions() as sessions:
        found = {Path(record.log).name: record for record in sessions.recent()}
        assert len(found) == len(starts) + 1
        for record in found.values():
            assert sessions.tail(record.id, 1), "its messages can be read"
    place.serves_the_good_one()


@pytest.mark.parametrize("name", ["99991231T235959Z_x.jsonl", "00000000T000000Z_x.jsonl", "x\udcff.jsonl", "é.jsonl"])
def test_a_strange_file_name_takes_no_other_session_down(place, name):
    place.write([good_line(1)], name)
    place.serves_the_good_one()


def test_files_from_the_far_future_take_no_others_down(place):
    path = place.write([to_line(START), good_line(1)])
    note = place.workspace / "MEMORY.md"
    note.write_text("# Memory\n\nThe plotter was sold.\n")
    for file in (path, note):
        os.utime(file, ns=(0, 13_569_465_600 * 10**9))
    assert "plotter" in place.run("search", "who bought the plotter")
    place.serves_the_good_one()


def test_an_impossible_number_or_time_is_ignored_and_the_message_counts(place):
    message = record_of("message")
    message["message"]["usage"]["input"] = 10**19
    place.write([to_line(START), to_line(message), to_line({**message, "timestamp": "9999-12-31T23:59:59-12:00"})])
    with place.sessions() as sessions:
        (record,) = [one for one in sessions.recent() if one.id == "bad"]
    assert (record.messages, record.tokens_in, record.tokens_out, record.damaged_lines) == (2, 0, 10, 0)
    assert record.updated.year == 2026


def test_a_program_cannot_write_what_could_not_be_read(place):
    with place.sessions() as sessions:
        sessions.append(place.good, Message.of("assistant", "Yes.", usage=TokenUsage(10**19, -1, 10**30)))
        assert sessions.get(place.good).tokens_total == 0
    place.serves_the_good_one()


class Boastful:
    """A model that says it has read more than there is."""

    provider, name, context_window, runs_tools, writes = "test", "boastful", 200_000, True, True

    async def stream(self, request):
        yield TextDelta("It is under the pot.")
        yield Finished("end", ModelUsage(10**19, 10**19, -5))

    async def close(self) -> None:
        pass


def test_what_a_model_claims_to_have_used_takes_no_conversation_down(place):
    async def talk() -> None:
        with place.memory() as memory, place.sessions() as sessions:
            agent = Agent(memory, sessions, Boastful())
            for number in range(2):
                events = agent.respond(place.good, [Inbound(f"m{number}", "Where is the key?")])
                assert [event async for event in events][-1].text == "It is under the pot."

    asyncio.run(talk())
    place.serves_the_good_one()
