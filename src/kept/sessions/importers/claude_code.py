"""Claude Code's transcripts: records linked by uuid and parentUuid, one for each part of an answer.

Side conversations (of the agents that were sent out) become sessions of their own. A question asked anew from an
earlier point is a branch; calls of several tools at once, which fork too, are not.
"""

from __future__ import annotations

import os
import re
from typing import Any

from kept.sessions.entries import (
    Block,
    CompactionEntry,
    Message,
    StateEntry,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from kept.sessions.importers.draft import (
    TITLE,
    Draft,
    Drafting,
    as_count,
    as_dict,
    as_list,
    as_text,
    attachment,
    given,
    is_id,
    key_for,
    read_time,
    short_text,
    unknown_block,
)
from kept.sessions.importers.source import Record, Source

FORMAT = "claude-code"
SIDECHAIN = "sidechain"
_SPEECH = ("user", "assistant")
_NOISE = ("progress", "file-history-snapshot", "last-prompt", "permission-mode")
_QUIET_EVENTS = ("stop_hook_summary", "turn_duration")
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def read(source: Source, agent_id: str) -> list[Draft]:
    reading = _ClaudeCodeReader(source)
    for record in source.records():
        reading.take(record)
    return [talk.finish(agent_id) for talk in reading.talks.values()]


class _ClaudeCodeReader:
    """The conversations in one file: the main one, and those on the side."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.talks: dict[str, _Talk] = {}
        self._sides: dict[str, str] = {}
        self._early: list[Record] = []

    def take(self, record: Record) -> None:
        tree = record.tree
        if not self.talks and tree.get("type") not in (*_SPEECH, "system"):
            self._early.append(record)  # whose it is only the first message says
            return
        if not isinstance(tree.get("sessionId"), str) and tree.get("type") in _SPEECH and "uuid" not in tree:
            return
        talk = self._talk(record)
        early, self._early = self._early, []
        for one in early:
            talk.take(one)
        talk.take(record)

    def _talk(self, record: Record) -> _Talk:
        tree = record.tree
        side = self._side(tree)
        if side not in self.talks:
            self.talks[side] = _Talk(self.source, self._session_id(tree), side, tree)
        return self.talks[side]

    def _side(self, tree: dict[str, Any]) -> str:
        """Which conversation a record belongs to: an agent's, or that of the record it follows; '' is the main one."""
        own, parent = tree.get("uuid"), tree.get("parentUuid")
        if tree.get("isSidechain") is not True:
            return ""
        side = short_text(tree.get("agentId")) or (self._sides.get(parent) if is_id(parent) else None)
        side = side or (own[:8] if is_id(own) else "") or SIDECHAIN
        if is_id(own):
            self._sides[own] = side
        return side

    def _session_id(self, tree: dict[str, Any]) -> str:
        """A file that goes on from another begins with a copy of it; its own name tells whose it is."""
        named = _UUID.search(os.path.basename(self.source.path))
        stem = os.path.basename(self.source.path).partition(".jsonl")[0]
        return (named[0] if named else None) or as_text(tree.get("sessionId")) or stem or "session"


class _Talk:
    def __init__(self, source: Source, session_id: str, side: str, first: dict[str, Any]) -> None:
        self.source = source
        self.side = side
        self.drafting = Drafting(source, FORMAT, f"{session_id}.{side}" if side else session_id)
        self.drafting.created = read_time(first.get("timestamp"))
        self.drafting.metadata = given(first, "cwd", "gitBranch", "version", "slug", "agentId")
        if side:
            self.drafting.metadata["parentSession"] = session_id
        self._last_prompt = -1
        self._boundary: dict[str, Any] = {}
        self._used: tuple[str, TokenUsage] | None = None

    def finish(self, agent_id: str) -> Draft:
        folder = short_text(self.drafting.metadata.get("cwd"))
        return self.drafting.finish(key_for(agent_id, FORMAT, folder, chat_type=SIDECHAIN if self.side else "direct"))

    def take(self, record: Record) -> None:
        tree, drafting = record.tree, self.drafting
        kind = short_text(tree.get("type")) or "unknown"
        own_id, parent = tree.get("uuid"), tree.get("parentUuid")
        if drafting.is_repeated(record, own_id):
            return drafting.leave_out(f"{kind} (repeated)")
        if kind in _SPEECH and isinstance(tree.get("message"), dict):
            return self._speech(record, kind)
        if kind in _TITLES:
            return self._title(record, kind)
        if kind == "system":
            return self._system(record)
        if kind in _NOISE:
            return drafting.leave_out(kind, own_id, parent)
        return drafting.keep(record, kind, own_id=own_id, when=tree.get("timestamp"))

    def _title(self, record: Record, kind: str) -> None:
        """The name of a conversation; a file also names conversations that it was taken from."""
        title, leaf = record.tree.get(_TITLES[kind]), record.tree.get("leafUuid")
        if not isinstance(title, str) or (kind == "summary" and self.drafting.find_place(leaf) < 0):
            return self.drafting.leave_out(f"{kind} (of another conversation)")
        self.drafting.add(record, kind, StateEntry(TITLE, title))
        return None

    def _system(self, record: Record) -> None:
        tree = record.tree
        own_id, parent, when = tree.get("uuid"), tree.get("parentUuid"), tree.get("timestamp")
        name = short_text(tree.get("subtype"))
        kind = f"system/{name}" if name else "system"
        if name == "compact_boundary":
            self._boundary = as_dict(tree.get("compactMetadata"))
            self.drafting.leave_out(f"{kind} (told by its summary)", own_id, tree.get("logicalParentUuid") or parent)
        elif isinstance(tree.get("content"), str):
            told = given(tree, "subtype", "level")
            self.drafting.add(
                record, kind, Message.of("system", tree["content"], metadata=told), own_id=own_id, when=when
            )
        elif name in _QUIET_EVENTS:
            self.drafting.leave_out(kind, own_id, parent)
        else:
            self.drafting.keep(record, kind, own_id=own_id, when=when)

    def _speech(self, record: Record, kind: str) -> None:
        tree, message = record.tree, record.tree["message"]
        own_id, when = tree.get("uuid"), tree.get("timestamp")
        content = self._content(message.get("content"), record)
        if "toolUseResult" in tree:
            self.drafting.note("toolUseResult (details of a result)", "left out")
        if tree.get("isCompactSummary") is True:
            summary = "\n\n".join(part.text for part in content if isinstance(part, Text))
            body = CompactionEntry(
                summary,
                tokens_before=as_count(self._boundary.get("preTokens")) or None,
                source="model",
                metadata=given(self._boundary, "trigger"),
            )
            self._boundary = {}
            self.drafting.add(record, f"{kind} (compact summary)", body, own_id=own_id, when=when)
            return
        told = given(tree, "isMeta", "isApiErrorMessage", "requestId", "permissionMode")
        if kind == "assistant":
            told |= given(message, "stop_reason")
            body_said = Message(
                "assistant", content, model=as_text(message.get("model")), usage=self._usage(message), metadata=told
            )
            self.drafting.add(record, kind, body_said, own_id=own_id, when=when)
            return
        self._user(record, content, told)

    def _user(self, record: Record, content: tuple[Block, ...], told: dict[str, Any]) -> None:
        tree = record.tree
        own_id, when = tree.get("uuid"), tree.get("timestamp")
        if any(isinstance(part, ToolResult) for part in content):
            self.drafting.add(
                record, "user (tool result)", Message("tool", content, metadata=told), own_id=own_id, when=when
            )
            return
        if tree.get("isMeta") is True:
            self.drafting.add(
                record, "user (meta)", Message("system", content, metadata=told), own_id=own_id, when=when
            )
            return
        parent = tree.get("parentUuid")
        if not is_id(parent) or self.drafting.find_place(parent) >= self._last_prompt:
            parent = ""  # not asked anew from an earlier point, so it follows what came last
        made = self.drafting.add(
            record, "user", Message("user", content, metadata=told), own_id=own_id, parent=parent, when=when
        )
        self._last_prompt = self.drafting.find_place(made)

    def _usage(self, message: dict[str, Any]) -> TokenUsage | None:
        """The parts of one answer repeat its count as it grows: each gets what was added."""
        usage = message.get("usage")
        if not isinstance(usage, dict):
            return None
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        taken, back = sum(as_count(usage.get(name)) for name in names), as_count(usage.get("output_tokens"))
        now, answer = TokenUsage(taken, back, taken + back), as_text(message.get("id")) or ""
        before = self._used[1] if self._used and answer and self._used[0] == answer else TokenUsage()
        self._used = (answer, TokenUsage(max(now.input, before.input), max(now.output, before.output), now.context))
        return TokenUsage(max(0, now.input - before.input), max(0, now.output - before.output), now.context)

    def _content(self, content: Any, record: Record) -> tuple[Block, ...]:
        if isinstance(content, str):
            return (Text(content),)
        return tuple(part for block in as_list(content) for part in self._blocks(block, record))

    def _blocks(self, block: Any, record: Record) -> list[Block]:
        match block:
            case {"type": "text", "text": str(text)}:
                return [Text(text)]
            case {"type": "thinking", "thinking": str(text)}:
                return [Thinking(text, as_text(block.get("signature")))]
            case {"type": "redacted_thinking"}:
                return [Thinking("", as_text(block.get("data")))]
            case {"type": "tool_use" | "server_tool_use", "id": str(call_id), "name": str(name)}:
                return [ToolCall(call_id, name, as_dict(block.get("input")))]
            case {"type": "tool_result"}:
                inner = self._content(block.get("content"), record)
                said = "\n".join(part.text for part in inner if isinstance(part, Text))
                call_id = as_text(block.get("tool_use_id")) or ""
                result = ToolResult(call_id, said, None, block.get("is_error") is True)
                return [result, *(part for part in inner if not isinstance(part, Text))]
            case {"type": "image" | "document" as kind}:
                return [self._file(kind, block, record)]
            case _:
                return [unknown_block(block)]

    def _file(self, kind: str, block: dict[str, Any], record: Record) -> Block:
        source = as_dict(block.get("source"))
        where = next((source[name] for name in ("data", "url", "file_id") if name in source), None)
        media = source.get("media_type") or ("image/*" if kind == "image" else None)
        return attachment(media, where, self.source, record, name=block.get("title"))
