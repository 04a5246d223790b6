"""Codex rollouts: records of a time, a type and a payload. What is said comes as an item and often as an event too.

The first version of the format has the payloads alone.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

from kept.sessions.entries import (
    Attachment,
    Block,
    Body,
    CompactionEntry,
    Message,
    Role,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from kept.sessions.importers.draft import (
    Draft,
    Drafting,
    as_count,
    as_dict,
    as_list,
    as_text,
    attachment,
    given,
    key_for,
    read_time,
    short_text,
    unknown_block,
)
from kept.sessions.importers.source import Record, Source, load_json

FORMAT = "codex"
_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_BARE = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call")
_NOISE = ("task_started", "task_complete", "token_count", "turn_started", "turn_complete", "context_compacted")
_SET_UP = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def read(source: Source, agent_id: str) -> list[Draft]:
    reading = _CodexReader(source)
    for record in source.records():
        reading.take(record)
    drafting = reading.drafting
    if drafting is None:
        return []
    return [drafting.finish(key_for(agent_id, FORMAT, short_text(drafting.metadata.get("cwd"))))]


class _CodexReader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.drafting: Drafting | None = None
        self._said: Counter[tuple[str, str, str]] = Counter()
        self._model: str | None = None
        self._total = 0

    def take(self, record: Record) -> None:
        tree = record.tree
        kind = as_text(tree.get("type"))
        if self.drafting is None:
            self._begin(record, kind)
            return
        match kind:
            case "session_meta":
                self.drafting.leave_out("session_meta (repeated)")
            case "turn_context":
                self._model = short_text(as_dict(tree.get("payload")).get("model")) or self._model
                self.drafting.leave_out("turn_context")
            case "compacted":
                self._compacted(record)
            case "event_msg":
                self._event(record, as_dict(tree.get("payload")))
            case "response_item":
                self._item(record, as_dict(tree.get("payload")))
            case None if "record_type" in tree:
                self.drafting.leave_out("state")
            case _:
                self._item(record, tree)

    def _begin(self, record: Record, kind: str | None) -> None:
        tree = record.tree
        is_bare = kind is None and isinstance(tree.get("id"), str) and "timestamp" in tree
        if kind not in (*_TYPES, *_BARE) and not is_bare:
            return
        meta = as_dict(tree.get("payload")) if kind == "session_meta" else tree if is_bare else {}
        named = os.path.basename(self.source.path).partition(".jsonl")[0]
        drafting = Drafting(self.source, FORMAT, as_text(meta.get("id")) or named or "session")
        drafting.created = read_time(meta.get("timestamp")) or read_time(tree.get("timestamp"))
        names = ("cwd", "originator", "cli_version", "source", "model_provider", "git", "forked_from_id")
        drafting.metadata = given(meta, *names)
        self.drafting = drafting
        if meta:
            drafting.note("session_meta", "session")
        else:
            self.source.say("has no header; the session is named after the file", line=record.line)
            self.take(record)

    # events

    def _event(self, record: Record, payload: dict[str, Any]) -> None:
        assert self.drafting is not None
        name = short_text(payload.get("type")) or "unknown"
        kind, when = f"event_msg/{name}", record.tree.get("timestamp")
        body: Body | None = None
        match payload:
            case {"type": "user_message", "message": str(text)}:
                body = Message(_role("user", text), (Text(text), *self._images(record, payload)))
            case {"type": "agent_message", "message": str(text)}:
                body = Message.of("assistant", text, model=self._model)
            case {"type": "agent_reasoning" | "agent_reasoning_raw_content", "text": str(text)}:
                body = Message("assistant", (Thinking(text),), model=self._model)
            case {"type": "token_count"}:
                self._count(payload)
        if isinstance(body, Message):
            if self._is_said_already("event", body):
                return self.drafting.leave_out(f"{kind} (also an item)")
            self.drafting.add(record, kind, body, when=when)
        elif name in _NOISE:
            self.drafting.leave_out(kind)
        else:
            self.drafting.keep(record, kind, when=when)
        return None

    def _images(self, record: Record, payload: dict[str, Any]) -> list[Attachment]:
        found = [*as_list(payload.get("images")), *as_list(payload.get("local_images"))]
        return [attachment("image/*", one, self.source, record) for one in found]

    def _is_said_already(self, by: str, message: Message) -> bool:
        """An item and an event that say the same are one message; two items are two."""
        spoken = message.text + "".join(part.text for part in message.content if isinstance(part, Thinking))
        other = "item" if by == "event" else "event"
        role, text = message.role, spoken.strip()
        self._said[by, role, text] += 1
        return self._said[other, role, text] >= self._said[by, role, text]

    def _count(self, payload: dict[str, Any]) -> None:
        assert self.drafting is not None
        info = as_dict(payload.get("info"))
        last, total = as_dict(info.get("last_token_usage")), as_dict(info.get("total_token_usage"))
        so_far = as_count(total.get("total_tokens"))
        if not last or so_far == self._total:
            return  # the same count is told again whenever a limit changes
        self._total = so_far
        taken, back = as_count(last.get("input_tokens")), as_count(last.get("output_tokens"))
        self.drafting.give_usage(TokenUsage(taken, back, as_count(last.get("total_tokens")) or taken + back))

    # items

    def _item(self, record: Record, payload: dict[str, Any]) -> None:
        assert self.drafting is not None
        name = short_text(payload.get("type")) or "unknown"
        kind = f"response_item/{name}"
        when, own_id = record.tree.get("timestamp"), payload.get("id")
        if self.drafting.is_repeated(record, own_id):
            return self.drafting.leave_out(f"{kind} (repeated)")
        body = self._body(record, payload, name)
        if body is None:
            return self.drafting.keep(record, kind, own_id=own_id, when=when)
        is_speech = name in ("message", "reasoning")
        if is_speech and self._is_said_already("item", body):
            return self.drafting.leave_out(f"{kind} (also an event)", own_id)
        self.drafting.add(record, kind, body, own_id=own_id, when=when)
        return None

    def _body(self, record: Record, payload: dict[str, Any], name: str) -> Message | None:
        if name == "message":
            content = tuple(self._block(one, record) for one in _parts(payload.get("content")))
            first = next((one.text for one in content if isinstance(one, Text)), "")
            role = _role(payload.get("role"), first)
            model = self._model if role == "assistant" else None
            return Message(role, content, model=model, metadata=given(payload, "phase"))
        if name == "reasoning":
            return self._reasoning(payload)
        call_id = short_text(payload.get("call_id")) or short_text(payload.get("id")) or record.digest
        if name in _CALLS:
            called = short_text(payload.get("name")) or name.removesuffix("_call")
            return Message("assistant", (ToolCall(call_id, called, _arguments(payload)),), model=self._model)
        if name in _OUTPUTS:
            return Message("tool", tuple(self._output(call_id, payload.get("output"), record)))
        return None

    def _reasoning(self, payload: dict[str, Any]) -> Message:
        parts = [*as_list(payload.get("summary")), *_parts(payload.get("content"))]
        said = "\n\n".join(part["text"] for part in parts if isinstance(as_dict(part).get("text"), str))
        sealed = as_text(payload.get("encrypted_content"))
        told = {"encryptedBytes": len(sealed)} if sealed else {}
        return Message("assistant", (Thinking(said),), model=self._model, metadata=told)

    def _output(self, call_id: str, output: Any, record: Record) -> list[Block]:
        if isinstance(output, str):
            output = load_json(output.encode("utf-8", "replace")) if output.startswith('{"output"') else output
        inner = as_dict(output)
        exit_code = as_dict(inner.get("metadata")).get("exit_code")
        failed = inner.get("success") is False or exit_code not in (None, 0)
        content = next((inner[name] for name in ("output", "content", "body") if name in inner), output)
        blocks = [self._block(one, record) for one in _parts(content)]
        said = "\n".join(one.text for one in blocks if isinstance(one, Text))
        return [ToolResult(call_id, said, None, failed), *(one for one in blocks if not isinstance(one, Text))]

    def _block(self, block: Any, record: Record) -> Block:
        match block:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                return Text(text)
            case {"type": "input_image", **rest}:
                return attachment("image/*", rest.get("image_url"), self.source, record)
            case {"type": "input_file", **rest}:
                return attachment(None, rest.get("file_data"), self.source, record, name=rest.get("filename"))
            case _:
                return unknown_block(block)

    def _compacted(self, record: Record) -> None:
        assert self.drafting is not None
        payload, when = as_dict(record.tree.get("payload")), record.tree.get("timestamp")
        summary = as_text(payload.get("message"))
        if summary is None:
            return self.drafting.keep(record, "compacted", when=when)
        kept = as_list(payload.get("replacement_history"))
        told = {"replacementMessages": len(kept)} if kept else {}
        self.drafting.add(record, "compacted", CompactionEntry(summary, source="model", metadata=told), when=when)
        return None


def _role(role: Any, text: str) -> Role:
    """What the program itself tells the model comes in the name of the user."""
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
