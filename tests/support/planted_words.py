"""A home and a workspace with a word in every kind of place, and a search through all bytes that shares no code with
the one under test."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kept import Memory, SessionStore
from kept.sessions.entries import (
    CompactionEntry,
    Message,
    StateEntry,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownEntry,
    format_entry,
)
from tests.support.files import write_file
from tests.support.session_strategies import path_of


def places_of(word: str, *folders: Path) -> list[str]:
    """Return the files that have a word, in any case, in UTF-8 or UTF-16 or escaped as in JSON."""
    spellings = {word.lower(), word.upper(), word.title(), word}
    forms = {form.encode(name) for form in spellings for name in ("utf-8", "utf-16-le", "utf-16-be")}
    forms |= {json.dumps(form)[1:-1].encode() for form in spellings}
    hits = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and any(form.lower() in path.read_bytes().lower() for form in forms):
                hits.append(str(path))
    return hits


@dataclass
class PlantedHome:
    """A memory, its sessions, and where to plant."""

    memory: Memory
    sessions: SessionStore
    session_id: str

    @property
    def workspace(self) -> Path:
        return Path(self.memory.workspace.root)

    @property
    def home(self) -> Path:
        return Path(self.memory.config.home)

    @property
    def folder(self) -> Path:
        return Path(self.memory.config.paths.folder)

    def left(self, word: str) -> list[str]:
        return places_of(word, self.home, self.workspace)

    def note(self, name: str, text: str | bytes) -> None:
        path = self.workspace / "memory" / name
        before = path.read_bytes() if path.exists() and isinstance(text, str) else b""
        write_file(path, before + (text.encode() if isinstance(text, str) else text))

    def say(self, *blocks: object, role: str = "user", **more: object) -> None:
        content = tuple(Text(block) if isinstance(block, str) else block for block in blocks)
        self.sessions.append(self.session_id, Message(role, content, **more))  # type: ignore[arg-type]


def start_planting(memory: Memory) -> PlantedHome:
    sessions = SessionStore(memory.config)
    record = sessions.get_or_create("http", "ada")
    home = PlantedHome(memory, sessions, record.id)
    home.note("harbour.md", "# Harbour\n\n- The lighthouse is at Skerry.\n- Boats leave at seven.\n")
    home.say("When do boats leave?")
    home.say("At seven, says the harbour note.", role="assistant")
    return home


def mark_of(word: str) -> str:
    """Return a name for a word that does not have it."""
    return hashlib.sha256(word.encode()).hexdigest()[:8]


def _deleted_session(home: PlantedHome, word: str) -> None:
    record = home.sessions.get_or_create("http", f"other-{len(home.sessions.deleted())}")
    home.sessions.append(record.id, Message.of("user", f"Do you know {word}?"))
    home.sessions.delete(record.id)


def _once_indexed(home: PlantedHome, word: str) -> None:
    """Leave the word in free pages of the index only."""
    home.note("passing.md", f"Something about {word} that was edited away.\n")
    home.memory.sync()
    (home.workspace / "memory" / "passing.md").unlink()
    home.memory.sync()
    home.note("anchor.md", f"- {word} again\n")


def _propose(home: PlantedHome, text: str) -> None:
    assert home.memory.add(text, to="SOUL.md", by_tool=True).is_proposed


def _append(home: PlantedHome, name: str, line: str) -> None:
    with open(home.folder / name, "ab") as file:
        file.write(line.encode() + b"\n")


def _raw_entry(home: PlantedHome, word: str) -> None:
    escaped = json.dumps({"type": "future", "id": mark_of(word), "note": f"a {word} b"})
    (record,) = [record for record in home.sessions.recent() if record.id == home.session_id]
    with open(path_of(home.sessions, record), "ab") as file:
        file.write(format_entry(UnknownEntry(escaped.encode(), "future")))


RECEIVED = {
    **{"type": "message", "channel": "http", "key": "agent:main:http:default:direct:ada"},
    **{"at": "2026-03-01T10:00:00+00:00", "sender": None, "timestamp": None, "metadata": {}},
}
"""A message in the inbox, without its id and text."""

PLANTS: dict[str, Callable[[PlantedHome, str], None]] = {
    "paragraph": lambda home, word: home.note("plain.md", f"\nA paragraph about {word},\nover two lines.\n"),
    "list item": lambda home, word: home.note(
        "list.md", f"- an item\n- {word.upper()} is one\n  and more of it\n- last\n"
    ),
    "proposal": lambda home, word: _propose(home, f"- Always say {word}."),
    "heading": lambda home, word: home.note("head.md", f"\n## About {word}\n\ntext below\n"),
    "table": lambda home, word: home.note("table.md", f"\n| a | b |\n|---|---|\n| {word} | x |\n| y | z |\n"),
    "fence": lambda home, word: home.note("code.md", f"\n```\nrun {word}\n```\n"),
    "properties": lambda home, word: home.note(
        f"p-{mark_of(word)}.md", f"---\ntitle: {word}\ntags: [{word}]\n---\n\nbody\n"
    ),
    "tag": lambda home, word: home.note("tags.md", f"\nA line with #{word} in it.\n"),
    "link": lambda home, word: home.note("links.md", f"\nSee [[{word}]] there.\n"),
    "CRLF": lambda home, word: home.note(
        f"crlf-{mark_of(word)}.md", f"one\r\n\r\n{word} two\r\n\r\nthree\r\n".encode()
    ),
    "UTF-16": lambda home, word: home.note(
        f"wide-{mark_of(word)}.md", f"one\n\n{word} two\n\nthree\n".encode("utf-16")
    ),
    "name of a note": lambda home, word: home.note(f"{word}.md", "Its name says it all.\n"),
    "message": lambda home, word: home.say(f"Remember {word}, please."),
    "answer": lambda home, word: home.say(f"I know {word}.", role="assistant"),
    "thinking": lambda home, word: home.say(Thinking(f"hm, {word}"), "So be it.", role="assistant"),
    "tool call": lambda home, word: home.say(ToolCall("c1", "search", {"q": [word]}), role="assistant"),
    "tool result": lambda home, word: home.say(ToolResult("c1", f"found {word}", "search"), role="tool"),
    "metadata": lambda home, word: home.say("Look.", metadata={"quoted": {"text": f"he said {word}"}}),
    "sender": lambda home, word: home.say("It is me.", sender=word),
    "title": lambda home, word: void(home.sessions.rename(home.session_id, f"All about {word}")),
    "state": lambda home, word: void(home.sessions.append(home.session_id, StateEntry("flush", {"note": word}))),
    "summary": lambda home, word: void(
        home.sessions.append(home.session_id, CompactionEntry(f"They met. {word} was there. It rained."))
    ),
    "unknown entry": _raw_entry,
    "deleted session": _deleted_session,
    "free pages": _once_indexed,
    "inbox": lambda home, word: _append(
        home, "inbox.jsonl", json.dumps({**RECEIVED, "id": f"m-{mark_of(word)}", "text": f"about {word}"})
    ),
    "damaged record": lambda home, word: _append(home, "ledger.jsonl.damaged", f"{{broken {word}"),
    "torn end": lambda home, word: _append(home, "sessions/20260101T000000Z_x.jsonl.torn", f'{{"type": "mess {word}'),
}


def void(_: object) -> None:
    """Take a value, so that a lambda returns None."""
