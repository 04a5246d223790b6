"""Conversations in an export of Claude.ai: messages of `human` and `assistant`, in order or as a tree.

An answer that calls tools has calls and results in one message. Here they become several entries, as in every other
session; the last of them has the id of the message.
"""

from __future__ import annotations

from typing import Any

from kept.base.limits import as_dict, as_list
from kept.sessions.entries import Attachment, Block, Message, Role, Text, Thinking, ToolCall, ToolResult
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_text,
    is_id,
    key_for,
    order_branches,
    read_blocks,
    read_time,
    short_text,
)
from kept.sessions.importers.source import Record, Source, fingerprint

FORMAT = "claude-ai"
_PASTED = ("", "paste.txt")
"""Names that Claude.ai gives to long text that was pasted into a message."""


def read_conversation(record: Record, source: Source, agent_id: str) -> Draft | None:
    """Return the session of a conversation, or None if this is not a conversation of Claude.ai."""
    tree = record.tree
    if not isinstance(tree.get("chat_messages"), list):
        return None
    builder = DraftBuilder(source, FORMAT, as_text(tree.get("uuid")) or record.digest)
    builder.created = read_time(tree.get("created_at"))
    leaf = _add_messages(builder, record)
    if title := short_text(tree.get("name")):
        builder.add_title(record, title, leaf=leaf, when=tree.get("updated_at"))
    return builder.finish(key_for(agent_id, FORMAT, builder.id), has_global_ids=True)


def _add_messages(builder: DraftBuilder, record: Record) -> str | None:
    """Add the messages of all branches. Return the last message of the branch that continues."""
    messages = {
        own if is_id(own := message.get("uuid")) else f"{builder.id[:100]}.{index}": message
        for index, message in enumerate(map(as_dict, record.tree["chat_messages"]))
    }
    parents = _parents(messages)
    message_ids, leaf = order_branches(parents, record.tree.get("current_leaf_message_uuid"))
    for message_id in message_ids:
        digest = fingerprint(f"{builder.id}/{message_id}".encode("utf-8", "replace"))
        _add(builder, Record(record.line, messages[message_id], digest), message_id, parents[message_id])
    return leaf


def _parents(messages: dict[str, dict[str, Any]]) -> dict[str, str | None]:
    """Return the parent of each message. Older exports name none: there each message follows the previous one."""
    named = {message_id: message.get("parent_message_uuid") for message_id, message in messages.items()}
    if any(isinstance(parent, str) and parent in messages for parent in named.values()):
        return {
            message_id: parent if isinstance(parent, str) and parent in messages else None
            for message_id, parent in named.items()
        }
    return dict(zip(messages, (None, *messages), strict=False))


def _add(builder: DraftBuilder, record: Record, message_id: str, parent: str | None) -> None:
    tree = record.tree
    bodies = _bodies(record, builder.source) if tree.get("sender") in ("human", "assistant") else []
    if not bodies:
        builder.leave_out(message_id, parent)
    for index, body in enumerate(bodies, 1):
        is_last = index == len(bodies)
        own_id = message_id if is_last else f"{message_id[:100]}.{index}"
        parent = builder.add(
            Record(record.line, tree, fingerprint(f"{record.digest}.{index}".encode())),
            body,
            own_id=own_id,
            parent=parent,
            when=tree.get("created_at"),
        )


def _bodies(record: Record, source: Source) -> list[Message]:
    """Return what a message says. Results of tools are messages of their own."""
    tree = record.tree
    speaker: Role = "user" if tree.get("sender") == "human" else "assistant"
    bodies: list[Message] = []
    for block in (*_content(record, source), *_attachments(tree)):
        role: Role = "tool" if isinstance(block, ToolResult) else speaker
        before = bodies.pop().content if bodies and bodies[-1].role == role else ()
        bodies.append(Message(role, (*before, block)))
    return bodies


def _content(record: Record, source: Source) -> list[Block]:
    """Return the blocks of a message. Its `text` repeats them, with a placeholder for each tool, or is all there is."""
    read = read_blocks(record.tree.get("content"), source, record)
    blocks = [block for block in read if not isinstance(block, Text | Thinking) or block.text.strip()]
    if not any(isinstance(block, Text | ToolCall) for block in blocks):
        text = as_text(record.tree.get("text")) or ""
        blocks += [Text(text)] if text.strip() else []
    return blocks


def _attachments(tree: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    for raw in map(as_dict, as_list(tree.get("attachments"))):
        name, text = as_text(raw.get("file_name")) or "", as_text(raw.get("extracted_content")) or ""
        if name in _PASTED and text.strip():
            blocks.append(Text(text))
        elif raw:
            blocks.append(Attachment(short_text(raw.get("file_type")) or "text/plain", short_text(name)))
    names = {block.name for block in blocks if isinstance(block, Attachment)}
    for file in (*as_list(tree.get("files")), *as_list(tree.get("files_v2"))):
        file_name = short_text(as_dict(file).get("file_name"))
        if file_name not in names:
            names.add(file_name)
            blocks.append(Attachment("application/octet-stream", file_name, short_text(as_dict(file).get("file_uuid"))))
    return blocks
