"""Hypothesis strategies for conversations, and views of them."""

import datetime as dt

from hypothesis import strategies as st

from kept.agent.session_log import ConversationView, LoggedMessage
from kept.sessions.entries import CompactionEntry, Entry, Message, StateEntry, Text, ToolCall, ToolResult, format_entry
from kept.sessions.transcript import TranscriptLine

NOW = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=dt.UTC)

words = st.text("abc \n", max_size=60)
names = st.sampled_from(["t1", "t2", "t3"])  # few, so that ids repeat
texts = st.builds(Text, words)
calls = st.builds(ToolCall, names, st.just("memory_search"), st.just({"query": "x"}))
results = st.builds(ToolResult, names, words, st.just("memory_search"), st.booleans())
messages = st.one_of(
    st.builds(lambda block: Message("user", (block,)), texts),
    st.builds(lambda blocks: Message("assistant", tuple(blocks)), st.lists(st.one_of(texts, calls), max_size=3)),
    st.builds(lambda blocks: Message("tool", tuple(blocks)), st.lists(results, max_size=3)),
    st.builds(lambda block: Message("system", (block,)), texts),
)


def said_of(messages_: list[Message]) -> tuple[LoggedMessage, ...]:
    return tuple(
        LoggedMessage(line, Entry(f"e{line}", f"e{line - 1}", NOW, message), message)
        for line, message in enumerate(messages_, 2)
    )


def view(messages_: list[Message], summary: str = "") -> ConversationView:
    compaction = Entry("c", None, NOW, CompactionEntry(summary)) if summary else None
    return ConversationView(said_of(messages_), compaction, None, 0, (), (), summary)


def lines_of(bodies: list[Message | CompactionEntry | StateEntry]) -> list[TranscriptLine]:
    entries = [Entry(f"e{number}", f"e{number - 1}", NOW, body) for number, body in enumerate(bodies, 1)]
    raws = [format_entry(entry)[:-1] for entry in entries]
    return [TranscriptLine(number, number * 10, number * 10 + 10, raw) for number, raw in enumerate(raws, 1)]
