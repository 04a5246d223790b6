"""Rollouts of Codex: records of a time, a type and a payload. Messages are items; events repeat them."""

from __future__ import annotations

import json
import os
from typing import Any

from kept.base.limits import as_dict, as_list
from kept.sessions.entries import (
    Block,
    CompactionEntry,
    Message,
    Role,
    Text,
    Thinking,
    ToolCall,
)
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_text,
    key_for,
    present_fields,
    read_blocks,
    read_time,
    result_blocks,
    short_text,
)
from kept.sessions.importers.source import Record, Source, load_json

FORMAT = "codex"
_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_SET_UP = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def read(source: Source, agent_id: str) -> list[Draft]:
    reader = _CodexReader(source)
    for record in source.records():
        reader.add(record)
    builder = reader.builder
    if builder is None:
        return []
    return [builder.finish(key_for(agent_id, FORMAT, builder.id))]


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
        builder = DraftBuilder(self.source, FORMAT, as_text(meta.get("id")) or file_stem or "session")
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
