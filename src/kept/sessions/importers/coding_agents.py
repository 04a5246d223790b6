"""Transcripts of Claude Code and Codex: records → drafts."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from kept.base.limits import as_dict, as_list, count_or_zero
from kept.sessions.entries import (
    TITLE,
    Block,
    Body,
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
    DraftBuilder,
    as_text,
    is_id,
    present_fields,
    read_blocks,
    read_time,
    result_blocks,
    short_text,
    text_of,
)
from kept.sessions.importers.reader import LineReader, Said
from kept.sessions.importers.source import Record, Source, load_json

_SPEECH = ("user", "assistant")
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SUBAGENT = "agent-"


class ClaudeCodeReader(LineReader):
    """Reader of Claude Code: records linked by uuid and parentUuid, one for each part of an answer.

    What subagents were told and answered is left out. A question that was asked again from an earlier point is a
    branch; several tool calls at once, which fork too, are not.
    """

    channel = "claude-code"
    header = ""
    kinds = (*_SPEECH, "system", "attachment", "custom-title", "ai-title")
    id_field = "uuid"

    def is_wanted(self, path: str, root: str) -> bool:
        return super().is_wanted(path, root) and not os.path.basename(path).startswith(_SUBAGENT)

    def begin(self, source: Source, record: Record) -> DraftBuilder | None:
        """Begin with the id in the file's name: a file that continues another starts with a copy of it, with the
        other's id."""
        tree = record.tree
        if tree.get("type") not in self.kinds or _is_foreign(tree):
            return None
        match = _UUID.search(os.path.basename(source.path))
        self._last_prompt = -1
        self._tokens_before: int | None = None
        self._custom_title: str | None = None
        return DraftBuilder(source, self.channel, match[0] if match else as_text(tree.get("sessionId")) or source.name)

    def read_record(self, builder: DraftBuilder, record: Record) -> Said:
        tree = record.tree
        kind, parent = as_text(tree.get("type")), tree.get("parentUuid")
        if _is_foreign(tree):
            return Said(None, parent)
        if kind in _TITLES:
            return Said(self._title(builder, tree, kind))
        if kind in (*_SPEECH, "system"):
            builder.created = builder.created or read_time(tree.get("timestamp"))
            builder.metadata = builder.metadata or present_fields(tree, "cwd", "gitBranch")
        if kind in _SPEECH and isinstance(tree.get("message"), dict):
            return self._speech(builder, record)
        if tree.get("subtype") == "compact_boundary":
            self._tokens_before = count_or_zero(as_dict(tree.get("compactMetadata")).get("preTokens")) or None
            return Said(None, tree.get("logicalParentUuid") or parent)
        if kind == "system" and isinstance(tree.get("content"), str):
            return Said(Message.of("system", tree["content"], metadata=present_fields(tree, "subtype", "level")))
        if kind == "attachment" and (queued := _queued_message(record)):
            return Said(queued)
        return Said(None, parent)

    def _title(self, builder: DraftBuilder, tree: dict[str, Any], kind: str) -> Body | None:
        """Return the title of the conversation. A file also has titles of the conversations it continues."""
        title = tree.get(_TITLES[kind])
        if not isinstance(title, str) or (kind == "summary" and builder.find_position(tree.get("leafUuid")) < 0):
            return None
        if kind == "custom-title":
            self._custom_title = title
        title = self._custom_title or title
        if builder.size:
            return StateEntry(TITLE, title)
        builder.title = title
        return None

    def _speech(self, builder: DraftBuilder, record: Record) -> Said:
        tree, message = record.tree, record.tree["message"]
        content, metadata = read_blocks(message.get("content"), record.place), present_fields(tree, "isMeta")
        if tree.get("isCompactSummary") is True:
            tokens, self._tokens_before = self._tokens_before, None
            return Said(CompactionEntry(text_of(content), tokens_before=tokens, source="model"))
        if tree["type"] == "assistant":
            return Said(Message("assistant", content, model=as_text(message.get("model")), metadata=metadata))
        if any(isinstance(part, ToolResult) for part in content):
            return Said(Message("tool", content, metadata=metadata))
        if tree.get("isMeta") is True:
            return Said(Message("system", content, metadata=metadata))
        parent = tree.get("parentUuid")
        if not is_id(parent) or builder.find_position(parent) >= self._last_prompt:
            parent = ""  # not asked again from an earlier point, so it follows the last entry
        self._last_prompt = builder.size
        return Said(Message("user", content, metadata=metadata), parent)


def _is_foreign(tree: dict[str, Any]) -> bool:
    """Return whether a record is of another program, or of a subagent."""
    is_speech = tree.get("type") in _SPEECH
    is_nobodys = is_speech and "uuid" not in tree and not isinstance(tree.get("sessionId"), str)
    return is_nobodys or tree.get("isSidechain") is True


def _queued_message(record: Record) -> Message | None:
    """Return a message that the user sent while the agent worked. All other context for the model is left out: files,
    hooks, lists of tools, skills and agents, prompts."""
    inner = as_dict(record.tree.get("attachment"))
    content = read_blocks(inner.get("prompt"), record.place) if inner.get("type") == "queued_command" else ()
    is_prompt = inner.get("commandMode", "prompt") == "prompt"
    return Message("user" if is_prompt else "system", content) if content else None


_SET_UP = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class CodexReader(LineReader):
    """Reader of Codex: records of a time, a type and a payload. Messages are items; events repeat them."""

    channel = "codex"
    header = "session_meta"
    kinds = ("response_item", "event_msg", "turn_context", "compacted")
    kept_fields = ("cwd", "git")

    def begin(self, source: Source, record: Record) -> DraftBuilder | None:
        self._model: str | None = None
        return super().begin(source, record)

    def fields_of(self, record: Record) -> dict[str, Any]:
        return as_dict(record.tree.get("payload"))

    def read_record(self, builder: DraftBuilder, record: Record) -> Said:
        payload = self.fields_of(record)
        match record.tree.get("type"):
            case "response_item":
                return Said(self._item(record, payload))
            case "compacted" if isinstance(payload.get("message"), str):
                return Said(CompactionEntry(payload["message"], source="model"))
            case "turn_context":
                self._model = short_text(payload.get("model")) or self._model
        return Said()

    def _item(self, record: Record, payload: dict[str, Any]) -> Message | None:
        name = short_text(payload.get("type")) or "unknown"
        call_id = short_text(payload.get("call_id")) or short_text(payload.get("id")) or record.digest
        if name == "message":
            content = read_blocks(_parts(payload.get("content")), record.place)
            first = next((block.text for block in content if isinstance(block, Text)), "")
            role = _role(payload.get("role"), first)
            return Message(role, content, model=self._model if role == "assistant" else None)
        if name == "reasoning":
            parts = [*as_list(payload.get("summary")), *_parts(payload.get("content"))]
            thoughts = Thinking(text_of(read_blocks(parts, record.place)))
            return Message("assistant", (thoughts,), model=self._model)
        if name in _CALLS:
            tool = short_text(payload.get("name")) or name.removesuffix("_call")
            return Message("assistant", (ToolCall(call_id, tool, _arguments(payload)),), model=self._model)
        return Message("tool", _output(call_id, payload.get("output"), record)) if name in _OUTPUTS else None


def _output(call_id: str, output: Any, record: Record) -> tuple[Block, ...]:
    if isinstance(output, str) and output.startswith('{"output"'):
        output = load_json(output.encode("utf-8", "replace"))
    inner = as_dict(output)
    exit_code = as_dict(inner.get("metadata")).get("exit_code")
    failed = inner.get("success") is False or exit_code not in (None, 0)
    content = next((inner[name] for name in ("output", "content", "body") if name in inner), output)
    return result_blocks(call_id, None, failed, read_blocks(_parts(content), record.place))


def _role(role: Any, text: str) -> Role:
    """Return the role of a message. Codex sends its own instructions to the model under the role of the user."""
    if role == "assistant":
        return "assistant"
    return "user" if role == "user" and not text.lstrip().startswith(_SET_UP) else "system"


def _parts(content: Any) -> list[Any]:
    if isinstance(content, int | float):
        content = json.dumps(content)
    return content if isinstance(content, list) else [] if content is None else [content]


def _arguments(payload: dict[str, Any]) -> dict[str, Any]:
    for name in ("arguments", "input", "action"):
        value = payload.get(name)
        if isinstance(value, dict):
            return value
        if isinstance(value, str):
            parsed = load_json(value.encode("utf-8", "replace"))
            return parsed if isinstance(parsed, dict) else {name: value}
    return {}
