"""Transcripts of Claude Code and Codex: records → drafts."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from kept.base.limits import as_dict, as_list
from kept.sessions.entries import (
    TITLE,
    Block,
    CompactionEntry,
    Message,
    Role,
    StateEntry,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_count,
    as_text,
    is_id,
    key_for,
    present_fields,
    read_blocks,
    read_time,
    result_blocks,
    short_text,
)
from kept.sessions.importers.source import Record, Source, load_json

# Claude Code: records linked by uuid and parentUuid, one for each part of an answer. What subagents were told and
# answered is left out. A question that was asked again from an earlier point is a branch; several tool calls at once,
# which fork too, are not.

CLAUDE_CODE = "claude-code"
_SPEECH = ("user", "assistant")
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def read_claude_code(source: Source, agent_id: str) -> list[Draft]:
    reader: _ConversationReader | None = None
    early: list[Record] = []
    for record in source.records():
        tree = record.tree
        kind = tree.get("type")
        is_foreign = kind in _SPEECH and "uuid" not in tree and not isinstance(tree.get("sessionId"), str)
        if is_foreign or tree.get("isSidechain") is True:
            continue
        if reader is None and kind not in (*_SPEECH, "system"):
            early.append(record)  # the first message tells which conversation it belongs to
            continue
        if reader is None:
            reader = _ConversationReader(source, tree)
            for earlier in early:
                reader.add(earlier)
        reader.add(record)
    return [] if reader is None else [reader.builder.finish(key_for(agent_id, CLAUDE_CODE, reader.builder.id))]


def _session_id(path: str, first: dict[str, Any]) -> str:
    """Return the id in the file's name. A file that continues another starts with a copy of it, with the other's id."""
    match = _UUID.search(os.path.basename(path))
    stem = os.path.basename(path).partition(".jsonl")[0]
    return (match[0] if match else None) or as_text(first.get("sessionId")) or stem or "session"


class _ConversationReader:
    """Builds the session of the conversation in a file."""

    def __init__(self, source: Source, first: dict[str, Any]) -> None:
        self.source = source
        self.builder = DraftBuilder(source, CLAUDE_CODE, _session_id(source.path, first))
        self.builder.created = read_time(first.get("timestamp"))
        self.builder.metadata = present_fields(first, "cwd", "gitBranch")
        self._last_prompt = -1
        self._tokens_before: int | None = None
        self._custom_title: str | None = None

    def add(self, record: Record) -> None:
        tree, builder = record.tree, self.builder
        kind = short_text(tree.get("type")) or "unknown"
        own_id, parent = tree.get("uuid"), tree.get("parentUuid")
        if builder.is_repeated(record, own_id):
            return None
        if kind in _SPEECH and isinstance(tree.get("message"), dict):
            return self._speech(record, kind)
        if kind in _TITLES:
            return self._title(record, kind)
        if kind == "system":
            return self._system(record)
        if kind == "attachment":
            return self._attachment(record)
        return builder.leave_out(own_id, parent)

    def _title(self, record: Record, kind: str) -> None:
        """Add the title of the conversation. A file also has titles of the conversations it continues."""
        title, leaf = record.tree.get(_TITLES[kind]), record.tree.get("leafUuid")
        if not isinstance(title, str) or (kind == "summary" and self.builder.find_position(leaf) < 0):
            return
        if kind == "custom-title":
            self._custom_title = title
        self.builder.add(record, StateEntry(TITLE, self._custom_title or title))

    def _attachment(self, record: Record) -> None:
        """Add a message that the user sent while the agent worked. Leave out all other context for the model: files,
        hooks, lists of tools, skills and agents, prompts."""
        tree, inner = record.tree, as_dict(record.tree.get("attachment"))
        name = short_text(inner.get("type")) or "unknown"
        content = read_blocks(inner.get("prompt"), self.source, record) if name == "queued_command" else ()
        own_id, when = tree.get("uuid"), tree.get("timestamp")
        if not content:
            return self.builder.leave_out(own_id, tree.get("parentUuid"))
        is_prompt = inner.get("commandMode", "prompt") == "prompt"
        message = Message("user" if is_prompt else "system", content)
        self.builder.add(record, message, own_id=own_id, when=when)
        return None

    def _system(self, record: Record) -> None:
        tree = record.tree
        own_id, parent, when = tree.get("uuid"), tree.get("parentUuid"), tree.get("timestamp")
        name = short_text(tree.get("subtype"))
        if name == "compact_boundary":
            self._tokens_before = as_count(as_dict(tree.get("compactMetadata")).get("preTokens")) or None
            self.builder.leave_out(own_id, tree.get("logicalParentUuid") or parent)
        elif isinstance(tree.get("content"), str):
            metadata = present_fields(tree, "subtype", "level")
            body = Message.of("system", tree["content"], metadata=metadata)
            self.builder.add(record, body, own_id=own_id, when=when)
        else:
            self.builder.leave_out(own_id, parent)

    def _speech(self, record: Record, kind: str) -> None:
        tree, message = record.tree, record.tree["message"]
        own_id, when = tree.get("uuid"), tree.get("timestamp")
        content = read_blocks(message.get("content"), self.source, record)
        if tree.get("isCompactSummary") is True:
            summary = "\n\n".join(part.text for part in content if isinstance(part, Text))
            body = CompactionEntry(summary, tokens_before=self._tokens_before, source="model")
            self._tokens_before = None
            self.builder.add(record, body, own_id=own_id, when=when)
            return
        metadata = present_fields(tree, "isMeta")
        if kind == "assistant":
            answer = Message("assistant", content, model=as_text(message.get("model")), metadata=metadata)
            self.builder.add(record, answer, own_id=own_id, when=when)
            return
        self._user(record, content, metadata)

    def _user(self, record: Record, content: tuple[Block, ...], metadata: dict[str, Any]) -> None:
        tree = record.tree
        own_id, when = tree.get("uuid"), tree.get("timestamp")
        if any(isinstance(part, ToolResult) for part in content):
            self.builder.add(record, Message("tool", content, metadata=metadata), own_id=own_id, when=when)
            return
        if tree.get("isMeta") is True:
            self.builder.add(record, Message("system", content, metadata=metadata), own_id=own_id, when=when)
            return
        parent = tree.get("parentUuid")
        if not is_id(parent) or self.builder.find_position(parent) >= self._last_prompt:
            parent = ""  # not asked again from an earlier point, so it follows the last entry
        message = Message("user", content, metadata=metadata)
        entry_id = self.builder.add(record, message, own_id=own_id, parent=parent, when=when)
        self._last_prompt = self.builder.find_position(entry_id)


# Codex: records of a time, a type and a payload. Messages are items; events repeat them.

CODEX = "codex"
_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_SET_UP = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def read_codex(source: Source, agent_id: str) -> list[Draft]:
    reader = _CodexReader(source)
    for record in source.records():
        reader.add(record)
    builder = reader.builder
    return [] if builder is None else [builder.finish(key_for(agent_id, CODEX, builder.id))]


class _CodexReader:
    """Builds the session of one rollout."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.builder: DraftBuilder | None = None
        self._model: str | None = None

    def add(self, record: Record) -> None:
        tree = record.tree
        kind = as_text(tree.get("type"))
        if self.builder is None:
            self._begin(record, kind)
            return
        match kind:
            case "turn_context":
                self._model = short_text(as_dict(tree.get("payload")).get("model")) or self._model
            case "compacted":
                self._compacted(record)
            case "response_item":
                self._item(record, as_dict(tree.get("payload")))

    def _begin(self, record: Record, kind: str | None) -> None:
        if kind not in _TYPES:
            return
        tree = record.tree
        meta = as_dict(tree.get("payload")) if kind == "session_meta" else {}
        file_stem = os.path.basename(self.source.path).partition(".jsonl")[0]
        builder = DraftBuilder(self.source, CODEX, as_text(meta.get("id")) or file_stem or "session")
        builder.created = read_time(meta.get("timestamp")) or read_time(tree.get("timestamp"))
        builder.metadata = present_fields(meta, "cwd", "git")
        self.builder = builder
        if not meta:
            self.source.report("has no header; the session is named after the file", line=record.line)
            self.add(record)

    # items

    def _item(self, record: Record, payload: dict[str, Any]) -> None:
        assert self.builder is not None
        name = short_text(payload.get("type")) or "unknown"
        when, own_id = record.tree.get("timestamp"), payload.get("id")
        if self.builder.is_repeated(record, own_id):
            return
        body = self._body(record, payload, name)
        if body is None:
            self.builder.leave_out(own_id)
            return
        self.builder.add(record, body, own_id=own_id, when=when)

    def _body(self, record: Record, payload: dict[str, Any], name: str) -> Message | None:
        if name == "message":
            content = read_blocks(_parts(payload.get("content")), self.source, record)
            first = next((block.text for block in content if isinstance(block, Text)), "")
            role = _role(payload.get("role"), first)
            model = self._model if role == "assistant" else None
            return Message(role, content, model=model)
        if name == "reasoning":
            return self._reasoning(payload)
        call_id = short_text(payload.get("call_id")) or short_text(payload.get("id")) or record.digest
        if name in _CALLS:
            tool = short_text(payload.get("name")) or name.removesuffix("_call")
            return Message("assistant", (ToolCall(call_id, tool, _arguments(payload)),), model=self._model)
        if name in _OUTPUTS:
            return Message("tool", self._output(call_id, payload.get("output"), record))
        return None

    def _reasoning(self, payload: dict[str, Any]) -> Message:
        parts = [*as_list(payload.get("summary")), *_parts(payload.get("content"))]
        text = "\n\n".join(part["text"] for part in parts if isinstance(as_dict(part).get("text"), str))
        return Message("assistant", (Thinking(text),), model=self._model)

    def _output(self, call_id: str, output: Any, record: Record) -> tuple[Block, ...]:
        if isinstance(output, str):
            output = load_json(output.encode("utf-8", "replace")) if output.startswith('{"output"') else output
        inner = as_dict(output)
        exit_code = as_dict(inner.get("metadata")).get("exit_code")
        failed = inner.get("success") is False or exit_code not in (None, 0)
        content = next((inner[name] for name in ("output", "content", "body") if name in inner), output)
        return result_blocks(call_id, None, failed, read_blocks(_parts(content), self.source, record))

    def _compacted(self, record: Record) -> None:
        assert self.builder is not None
        payload, when = as_dict(record.tree.get("payload")), record.tree.get("timestamp")
        if (summary := as_text(payload.get("message"))) is not None:
            self.builder.add(record, CompactionEntry(summary, source="model"), when=when)


def _role(role: Any, text: str) -> Role:
    """Return the role of a message. Codex sends its own instructions to the model under the role of the user."""
    if role == "assistant":
        return "assistant"
    return "user" if role == "user" and not text.lstrip().startswith(_SET_UP) else "system"


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [] if content is None else [_as_block(content)]


def _as_block(content: Any) -> Any:
    if isinstance(content, str):
        return {"type": "text", "text": content}
    return {"type": "text", "text": json.dumps(content)} if isinstance(content, int | float) else content


def _arguments(payload: dict[str, Any]) -> dict[str, Any]:
    for name in ("arguments", "input", "action"):
        value = payload.get(name)
        if isinstance(value, dict):
            return value
        if isinstance(value, str):
            parsed = load_json(value.encode("utf-8", "replace"))
            return parsed if isinstance(parsed, dict) else {name: value}
    return {}
