"""Transcripts of pi, which OpenClaw uses too: a header, then a tree of entries by id and parentId.

All branches are kept, in the order of the file, with their parents. An entry without an id follows the previous one.
"""

from __future__ import annotations

import os
import re
from typing import Any

from kept.base.limits import as_dict
from kept.sessions.entries import (
    MODEL,
    TITLE,
    Body,
    CompactionEntry,
    Message,
    StateEntry,
    TokenUsage,
)
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_count,
    as_text,
    key_for,
    present_fields,
    read_blocks,
    read_time,
    result_blocks,
    short_text,
)
from kept.sessions.importers.source import Record, Source

FORMAT = "pi"
_KINDS = ("message", "compaction", "model_change", "thinking_level_change", "custom_message", "branch_summary")
_NAMED_FILE = re.compile(r"^[^_]+_(?P<id>.+)$")


def read(source: Source, agent_id: str) -> list[Draft]:
    builder = draft_records(source, FORMAT)
    if builder is None:
        return []
    return [builder.finish(key_for(agent_id, FORMAT, builder.id))]


def draft_records(source: Source, format_name: str) -> DraftBuilder | None:
    """Build a session from all records of a source. Return None if it has no header and no entries of this format."""
    builder: DraftBuilder | None = None
    for record in source.records():
        kind = as_text(record.tree.get("type"))
        if builder is None:
            if kind not in ("session", *_KINDS):
                continue
            builder = _begin(source, record, format_name)
            if kind == "session":
                continue
        _add(builder, record)
    return builder


def _begin(source: Source, record: Record, format_name: str) -> DraftBuilder:
    tree = record.tree if record.tree.get("type") == "session" else {}
    session_id = as_text(tree.get("id")) or _id_from_name(source.path)
    builder = DraftBuilder(source, format_name, session_id)
    builder.created = read_time(tree.get("timestamp"))
    builder.metadata = present_fields(tree, "cwd", "parentSession", "branchedFrom")
    if not tree:
        source.report("has no header; the session is named after the file", line=record.line)
    if isinstance(tree.get("modelId"), str):
        builder.metadata[MODEL] = tree["modelId"]
    return builder


def _id_from_name(path: str) -> str:
    stem = os.path.basename(path).partition(".jsonl")[0]
    match = _NAMED_FILE.match(stem)
    return match["id"] if match else stem or "session"


def _add(builder: DraftBuilder, record: Record) -> None:
    tree = record.tree
    own_id, when = tree.get("id"), tree.get("timestamp")
    parent = tree.get("parentId", "")
    if builder.is_repeated(record, own_id):
        return
    when = when if read_time(when) else as_dict(tree.get("message")).get("timestamp")
    body = _body(builder, record)
    if body is None:
        builder.leave_out(own_id, parent)
    else:
        builder.add(record, body, own_id=own_id, parent=parent, when=when)


def _body(builder: DraftBuilder, record: Record) -> Body | None:
    tree = record.tree
    match tree.get("type"):
        case "message":
            return _message(as_dict(tree.get("message")), builder.source, record)
        case "custom_message":
            content = read_blocks(tree.get("content"), builder.source, record)
            return Message("system", content)
        case "branch_summary" if isinstance(tree.get("summary"), str):
            return Message.of("system", tree["summary"])
        case "compaction" if isinstance(tree.get("summary"), str):
            return _compaction(tree)
        case "model_change" if isinstance(tree.get("modelId"), str):
            provider = short_text(tree.get("provider"))
            return StateEntry(MODEL, f"{provider}/{tree['modelId']}" if provider else tree["modelId"])
        case "session_info" if isinstance(tree.get("name"), str):
            return StateEntry(TITLE, tree["name"])
        case _:
            return None


def _compaction(tree: dict[str, Any]) -> CompactionEntry:
    return CompactionEntry(
        tree["summary"],
        first_kept_id=as_text(tree.get("firstKeptEntryId")),
        tokens_before=as_count(tree.get("tokensBefore")) or None,
        source="model",
    )


def _message(message: dict[str, Any], source: Source, record: Record) -> Message | None:
    content = read_blocks(message.get("content"), source, record)
    match message.get("role"):
        case "user":
            return Message("user", content)
        case "assistant":
            return Message("assistant", content, model=as_text(message.get("model")), usage=_usage(message))
        case "toolResult":
            is_error = message.get("isError") is True
            # Its details repeat the result and the arguments.
            return Message("tool", result_blocks(message.get("toolCallId"), message.get("toolName"), is_error, content))
        case "bashExecution":
            text = f"$ {as_text(message.get('command')) or ''}\n{as_text(message.get('output')) or ''}"
            return Message.of("user", text)
        case "branchSummary" | "compactionSummary":
            return Message.of("system", as_text(message.get("summary")) or "")
        case "custom" | "hookMessage" | "system" | "developer":
            return Message("system", content)
        case _:
            return None


def _usage(message: dict[str, Any]) -> TokenUsage | None:
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    tokens_in = sum(as_count(usage.get(name)) for name in ("input", "cacheRead", "cacheWrite"))
    tokens_out = as_count(usage.get("output"))
    return TokenUsage(tokens_in, tokens_out, as_count(usage.get("totalTokens")) or tokens_in + tokens_out)
