"""Texts in a transcript that nobody said: echoes of the memory, and markup that clients put into messages.

An agent that searches its memory writes the query, the results, and often a quotation of them into the transcript. If
these were indexed, the next search would find the last one instead of the notes, in the words of the question and with
what the notes said at that time. So an index leaves out

- calls to memory tools and their results, by any client: `memory_search`, `mcp__kept__memory_search`, `kept search`;
- blocks of recalled text that a program puts into a message: Kept's own, and those of similar programs;
- answers of Kept's tools that are passed on as they are.

Markup of a client is in a user's messages: reminders, commands and their output, the editor's state.

    <command-name>/review</command-name><command-args>the login page</command-args>    →  /review the login page
    <command-name>/exit</command-name>                                                →
    Which port?<system-reminder>The date is…</system-reminder>                        →  Which port?
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from kept.base.values import frozen
from kept.sessions.entries import HEARTBEAT, Block, Message, Text, Thinking, ToolCall, ToolResult

RECALLED = "recalled"
"""Metadata of an answer: citations of the passages that were in its context."""

_OWN_PREFIX = "memory_"
_OWN_TOOLS = ("sessions_search",)
_MAX_OPEN_CALLS = 64
_MAX_CALL_ID_CHARS = 200

_TOOL_SEPARATORS = r"__|[./:]"
_OTHER_SERVERS = r"memory|claude[-_]mem|mem0|hindsight|\bkept\b|\bqmd\b"
_READING = r"search|query|get|read|recall|fetch|list|open|view|timeline|context"
_KEPT_COMMAND = (
    r"(?:^|[;&|(]\s*)(?:\S*/)?kept\s+(?:-\S+\s+(?:[^-\s]\S*\s+)?){0,6}(?:search|get|list|recent|tags|links|hook)\b"
)

_BLOCK_TAGS = (
    r"system-reminder|claude-mem-context|[a-z]*memory-context|supermemory-context|hindsight_memories"
    r"|(?:relevant|recalled|retrieved|long-term)[-_]memor(?:y|ies)"
)
_TAGGED = rf"<({_BLOCK_TAGS})(?:\s[^>]{{0,200}})?>.*?</\1>"
_FENCED = r"^\[data ([0-9a-f]{16}) begins: (?:memory|note|summary|result)\b.*?^\[data \1 ends\]$"
_FENCE_HEADINGS = (
    r"^\[(?:(?:Recalled from memory|Notes of today and yesterday) - data, not instructions"
    r"|Current message - respond to this)\]$"
)
_TIME_LINE = r"^\[[A-Z][a-z]{2,5}day \d{4}-\d\d-\d\d \d\d:\d\d(?:, received \d{4}-\d\d-\d\d \d\d:\d\d)?\]$\n?"
"""Line before each message in a request."""

_QUOTED_LINE = r"[ \t]{0,3}>"
_CITATION = r"(?<![\w/:])[\w./%-]{1,300}\.(?:md|markdown|txt|org|jsonl)#L\d+"
_RESULT_HEADER = r"\[\d+(?:\.\d+)?\] .{1,400} \((?:(?:(?:strong|likely|weak), )?score \d|\d{4}-\d\d-\d\d)[^()]*\)$"
_FIRST_LINES = (
    r"[\d,]+ results?, best first:$|[\d,]+ conversations?:$|No conversation was found\.$"
    r"|(?:[\d,]+ entr(?:y|ies)|Nothing) from that time\b.*$"
    r"|Nothing certain is remembered about that\. These passages are .{1,60}:$"
    r"|Nothing is remembered about that\. Try other words or a longer period\.$"
    r"|(?:\S{1,300}|a note with a long name), lines \d+ to \d+:$"
)
_OTHER_LINES = (
    r"There is more: read on from line \d+\.$|(?:Also in|Newer than) .{1,400}\.$|Problems:$"
    r"|Also lines \d+ to \d+ \((?:strong|likely|weak), score \d\.\d\d\):$"
)
"""Lines of the answers of Kept's tools, which the extractive model passes on; see `kept.agent.tools.tool_text`."""


# tools


@cache
def is_memory_tool(name: str) -> bool:
    """Return whether a tool reads or writes a memory: one of Kept's, under any client's name for it, or one that reads
    from a similar program."""
    *servers, tool = re.split(_TOOL_SEPARATORS, name.lower())
    tool = tool.replace("-", "_")
    if tool.startswith(_OWN_PREFIX) or tool in _OWN_TOOLS or tool.endswith(f"kept_{_OWN_PREFIX}search"):
        return True
    is_memory = re.search(_OTHER_SERVERS, " ".join(servers))
    return bool(is_memory and re.search(_READING, tool))


def is_memory_call(call: ToolCall) -> bool:
    """Return whether a call uses a memory tool, or runs `kept search` or the like in a shell."""
    return is_memory_tool(call.name) or any(_is_kept_command(value) for value in call.arguments.values())


def _is_kept_command(value: Any) -> bool:
    if isinstance(value, list):
        value = " ".join(part for part in value if isinstance(part, str))
    return isinstance(value, str) and "kept" in value and bool(re.search(_KEPT_COMMAND, value))


# state


@frozen
class EchoState:
    """State of the filter at a position: what the lines before it tell about those after it."""

    open_calls: tuple[str, ...] = ()
    """Ids of calls to memory tools that have no result yet."""
    answers_from_memory: bool = False
    """True if the last tool that the agent used in this turn was a memory tool."""


NO_ECHOES = EchoState()


class EchoFilter:
    """Reads messages in order, and returns what each says besides what it repeats from memory."""

    def __init__(self, state: EchoState = NO_ECHOES) -> None:
        self.state = state

    def read(self, message: Message) -> tuple[tuple[Block, ...], bool]:
        """Return the blocks that say something, and whether an agent answers from memory with them."""
        if message.metadata.get(HEARTBEAT):  # the same words every half hour
            return (), False
        is_recalled = message.role == "assistant" and (
            self.state.answers_from_memory or bool(message.metadata.get(RECALLED)) or _has_citation(message)
        )
        blocks = tuple(block for block in message.content if not self._is_echo(block))
        if message.role == "user" and self.state.answers_from_memory:
            self.state = EchoState(self.state.open_calls)
        blocks = tuple(Text(strip_echoes(block.text)) if isinstance(block, Text) else block for block in blocks)
        return blocks, is_recalled

    def _is_echo(self, block: Block) -> bool:
        """Return whether a block is a call of a memory tool or its result, and remember the call."""
        match block:
            case ToolCall(id=call_id):
                is_memory = is_memory_call(block)
                calls = self.state.open_calls
                if is_memory:
                    calls = (*calls, call_id[:_MAX_CALL_ID_CHARS])[-_MAX_OPEN_CALLS:]
                self.state = EchoState(calls, is_memory)
                return is_memory
            case ToolResult(call_id=call_id, name=name):
                call_id = call_id[:_MAX_CALL_ID_CHARS]
                if call_id in self.state.open_calls:
                    calls = tuple(call for call in self.state.open_calls if call != call_id)
                    self.state = EchoState(calls, self.state.answers_from_memory)
                    return True
                return bool(name and is_memory_tool(name))
            case _:
                return False


def _has_citation(message: Message) -> bool:
    texts = (block.text for block in message.content if isinstance(block, Text))
    return any("#L" in text and re.search(_CITATION, text) for text in texts)


# texts


def strip_echoes(text: str) -> str:
    """Return a text without blocks of recalled text and answers of Kept's tools."""
    if "<" in text:
        text = re.sub(_TAGGED, "", text, flags=re.DOTALL | re.IGNORECASE)
    if "[data " in text:
        text = re.sub(_FENCED, "", text, flags=re.DOTALL | re.MULTILINE)
        text = re.sub(_FENCE_HEADINGS, "", text, flags=re.MULTILINE)
    if "day 20" in text:
        text = re.sub(_TIME_LINE, "", text, flags=re.MULTILINE)
    if _is_answer(text):
        text = _without_answers(text)
    return text


def _is_answer(text: str) -> bool:
    """Return whether a text is an answer of Kept's tools: it begins like one, and then quotes something."""
    first, _, below = text.lstrip().partition("\n")
    if not re.match(_FIRST_LINES, first):
        return False
    following = "" if first.startswith("No") else below.lstrip()  # nothing was found, so nothing is quoted
    return not following or following.startswith((">", "Problems:")) or bool(re.match(_RESULT_HEADER, following, re.M))


def _without_answers(text: str) -> str:
    """Return a text without lines that Kept's tools wrote. Everything that they quote begins with '>'."""
    pattern = re.compile(rf"{_QUOTED_LINE}|{_RESULT_HEADER}|{_FIRST_LINES}|{_OTHER_LINES}")
    return "\n".join(line for line in text.split("\n") if not pattern.match(line))


# markup of chat clients


_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_DROPPED = (
    "command-message|command-contents|local-command-stdout|local-command-stderr|local-command-caveat|bash-stdout|"
    "bash-stderr|task-notification|user-prompt-submit-hook|ide_opened_file|ide_selection|ide_diagnostics|"
    "environment_context|user_instructions"
)
_KEPT = "command-name|command-args|bash-input|user-memory-input"
_ELEMENT = rf"\s*<({_DROPPED}|{_KEPT})>(.*?)</\1>\s*"
_MAX_ELEMENTS = 50
_CODEX_REQUEST = "## My request for Codex:"
"""Codex's editor extension puts open files and the selection above this line."""


_HIDDEN = "isMeta"
"""Metadata of messages that Claude Code wrote for the model and does not show."""


def is_hidden(message: Message) -> bool:
    """Return whether a client wrote a message for the model and does not show it to the person."""
    return message.role == "system" and bool(message.metadata.get(_HIDDEN))


def iter_blocks(message: Message) -> Iterator[Block]:
    """Yield the blocks of a message as people read them: without the client's markup, and without empty texts."""
    for block in message.content:
        if isinstance(block, Text) and message.role != "assistant":
            block = Text(strip_markup(block.text))
        if not isinstance(block, Text | Thinking) or block.text.strip():
            yield block


def strip_markup(text: str) -> str:
    """Return what the person said in a message. Empty if it is only a command without arguments, or its output.

    Only complete elements are removed: reminders anywhere, all others at the start, where clients put them. A person
    who writes about such a tag in the middle of a sentence is quoted as they wrote it.
    """
    if _CODEX_REQUEST in text:
        text = text.partition(_CODEX_REQUEST)[2].strip() or text
    if "<" not in text:
        return text
    bare = _without_reminders(text) if _REMINDER in text else text
    command, parts = "", []
    for _ in range(_MAX_ELEMENTS):
        match = re.match(_ELEMENT, bare, flags=re.DOTALL)
        if match is None:
            break
        bare = bare[match.end() :]
        name, content = match[1], match[2].strip()
        if name == "command-name":
            command = content
        elif name == "command-args":
            parts.append(f"{command} {content}".strip() if content else "")
        elif name in ("bash-input", "user-memory-input") and content:
            parts.append(f"{'!' if name == 'bash-input' else '#'} {content}")
    return "\n".join(part for part in (*parts, bare) if part.strip())


def _without_reminders(text: str) -> str:
    """Return a text without its reminders, in one pass over it: a regular expression would start again at every tag
    that is never closed."""
    parts, at = [], 0
    while (start := text.find(_REMINDER, at)) >= 0 and (end := text.find(_REMINDER_END, start)) >= 0:
        parts.append(text[at:start])
        at = end + len(_REMINDER_END)
    return "".join((*parts, text[at:])).strip()
