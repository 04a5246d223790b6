"""A conversation as text for people: what was said, as the index has it, with speakers and times.

A tool call is one line, and its result is left out unless it failed. What clients put into messages (reminders,
commands and their output) and thinking are left out too; JSON has them all.
"""

from __future__ import annotations

from kept.base.wording import plural
from kept.cli.output import dim, local_time, style
from kept.sessions.echoes import is_hidden
from kept.sessions.entries import Entry, Message, UnknownEntry
from kept.sessions.record import SessionRecord
from kept.sessions.spoken import SHOWN_SPEAKERS, find_utterance, line_text
from kept.sessions.transcript import TranscriptLine

_COLOURS = {"user": "cyan", "assistant": "green", "system": "magenta"}
_OF_TOOLS = ("→ ", "← failed: ")
"""How the lines of a call and of a result begin that failed."""


def describe_session(record: SessionRecord) -> str:
    name = f"{record.channel}:{record.folder}" if record.folder else record.key or "whose first line is lost"
    return f"Session {record.id}, {name}, {plural(record.messages, 'message')}"


def is_talk(line: TranscriptLine) -> bool:
    """Return whether a line is a message of a person or the agent with words in it."""
    kind, texts = _read(line)
    return kind in ("user", "assistant") and any(not text.startswith(_OF_TOOLS) for text in texts)


def show_line(line: TranscriptLine) -> str:
    """Return a line of a transcript, or nothing."""
    content = line.content
    if isinstance(content, UnknownEntry) and "/" not in content.type:  # with a slash, it is another program's record
        return dim(f"\n(line {line.number} is of a kind this version does not know: {content.type})")
    if not isinstance(content, Entry) or not isinstance(content.body, Message):
        text = line_text(line)
        return dim(f"\n{text}") if text else ""
    kind, texts = _read(line)
    shown = [dim(f"  {text}") if text.startswith(_OF_TOOLS) else text for text in texts]
    if is_talk(line) or kind == "system":
        speaker = style(content.body.speaker or SHOWN_SPEAKERS[kind], fg=_COLOURS[kind], bold=True)
        shown.insert(0, f"\n{dim(local_time(content.timestamp))} {speaker}")
    return "\n".join(shown)


def _read(line: TranscriptLine) -> tuple[str, list[str]]:
    """Return who says something in a line, and what; of a tool, only that it failed."""
    content, utterance = line.content, find_utterance(line.number, line.content)
    if utterance is None or (
        isinstance(content, Entry) and isinstance(content.body, Message) and is_hidden(content.body)
    ):
        return "", []
    texts = utterance.text.split("\n")
    return utterance.kind, [text for text in texts if text.startswith(_OF_TOOLS)] if utterance.kind == "tool" else texts
