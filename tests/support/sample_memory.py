"""A small memory that looks lived in: linked notes over some months, and conversations with an agent.

Every screen has something to show. Conversations are held with the real agent and a scripted model.
"""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kept import Message
from kept.models.base import ChatRequest, ToolUse
from kept.notes.history.note_history import Author
from kept.testing import ScriptedChat
from tests.support.agents import NOW, AgentHarness, open_agent
from tests.support.chat_requests import turn_text
from tests.support.workspaces import write_note

NOTES = Path(__file__).with_name("sample_notes")
QUIET_DAYS = (3, 4, 9, 11, 12, 18, 20, 24, 25, 31, 33, 38, 40, 41, 47, 52, 55, 60, 61, 70, 78, 83, 90, 104, 118, 140)
_ANSWERS = {
    "When does the mill deliver?": "On **Tuesdays** before six; orders close on Sunday evening "
    "([memory/suppliers/altenberg-mill.md](memory/suppliers/altenberg-mill.md)).",
    "Please remember that the delivery ramp is closed until Friday.": "Noted: the ramp is closed until Friday.",
    "Who must not handle the praline boxes?": "Jonas, because he is allergic to nuts.",
}


def _answer(request: ChatRequest) -> Any:
    if request.purpose == "flush":
        return "- Ada asks for the delivery times of suppliers (L2-L3)"
    if request.purpose != "reply":
        return "Ada asked when the mill delivers and closed the delivery ramp until Friday."
    texts = [turn_text(turn) for turn in request.turns]
    asked = next(question for text in reversed(texts) for question in _ANSWERS if question in text)
    if "ramp" in asked and asked in texts[-1]:
        return ToolUse("call-1", "memory_write", {"text": "The delivery ramp is closed until Friday."})
    return _ANSWERS[asked]


def write_sample(tmp_path: Path) -> str:
    """Write the sample below tmp_path. Return the id of the conversation with the agent."""
    for file in NOTES.rglob("*.md"):
        write_note(tmp_path / "workspace", str(file.relative_to(NOTES)), file.read_text())
    for days in QUIET_DAYS:
        day = NOW.date() - dt.timedelta(days=days)
        text = f"# {day}\n\n## 08:15\n\nBaked {40 + days % 17} loaves; {days % 5} were left in the evening.\n"
        write_note(tmp_path / "workspace", f"memory/{day}.md", text)
    with ThreadPoolExecutor(1) as thread:  # a thread that drives a browser has a running event loop
        return thread.submit(_talk, tmp_path).result()


def _talk(tmp_path: Path) -> str:
    with open_agent(tmp_path, ScriptedChat(_answer, name="sample-model")) as at:
        return _hold_conversations(at)


def _hold_conversations(at: AgentHarness) -> str:
    at.memory.sync()
    older = at.sessions.get_or_create("telegram", "5054")
    stamp = NOW - dt.timedelta(days=6)
    at.sessions.append(older.id, Message.of("user", "Is the oven repaired?", sender="Jonas"), timestamp=stamp)
    at.sessions.append(older.id, Message.of("assistant", "Not yet: part REF-0200-3 comes on Monday."), timestamp=stamp)
    session = at.sessions.get_or_create("http", "ada").id
    for question in _ANSWERS:
        at.clock.move(minutes=3)
        at.say(question, session=session)
    at.compact(session)
    author = Author("main", session=session, tool="memory_write")
    at.memory.add("Hartmann delivers the part on Monday.", to="memory/ops/oven.md", author=author, why="told by Jonas")
    at.memory.sync()
    return session
