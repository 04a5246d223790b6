"""Conversations in an export of ChatGPT: a tree of messages (`mapping`), and the message that is shown last
(`current_node`).

All branches are kept, with their parents; the session continues on the branch that ChatGPT shows. Messages that ChatGPT
hides are left out: its own instructions, and those of the user, which it repeats in every conversation.
"""

from __future__ import annotations

from typing import Any

from kept.base.limits import as_dict, as_list
from kept.sessions.entries import Attachment, Block, Message, Text, Thinking, ToolCall, ToolResult
from kept.sessions.importers.draft import (
    Draft,
    DraftBuilder,
    as_text,
    is_id,
    key_for,
    order_branches,
    read_time,
    short_text,
)
from kept.sessions.importers.source import Record, Source, fingerprint, load_json

FORMAT = "chatgpt"
_NOT_SAID = ("user_editable_context", "model_editable_context", "reasoning_recap")
"""Types of instructions, and of a line about how long the model thought."""
_PLAIN_TEXT = ("text", "result", "content")
_MARK = "\ue200"
"""First character of a citation inside of a text. The citations themselves are in the metadata."""
_MEDIA = {
    "image_asset_pointer": "image/*",
    "audio_asset_pointer": "audio/*",
    "real_time_user_audio_video_asset_pointer": "audio/*",
    "video_container_asset_pointer": "video/*",
}


def read_conversation(record: Record, source: Source, agent_id: str) -> Draft | None:
    """Return the session of a conversation, or None if this is not a conversation of ChatGPT."""
    tree = record.tree
    nodes = tree.get("mapping")
    if not isinstance(nodes, dict):
        return None
    session_id = as_text(tree.get("conversation_id")) or as_text(tree.get("id")) or record.digest
    builder = DraftBuilder(source, FORMAT, session_id)
    builder.created = read_time(tree.get("create_time"))
    leaf = _add_nodes(builder, {node_id: as_dict(node) for node_id, node in nodes.items()}, record)
    if title := short_text(tree.get("title")):
        builder.add_title(record, title, leaf=leaf, when=tree.get("update_time"))
    return builder.finish(key_for(agent_id, FORMAT, builder.id), has_global_ids=True)


def _add_nodes(builder: DraftBuilder, nodes: dict[str, dict[str, Any]], record: Record) -> str | None:
    """Add the messages of all branches. Return the last message of the branch that continues."""
    parents = {name: parent if is_id(parent := node.get("parent")) else None for name, node in nodes.items()}
    node_ids, leaf = order_branches(parents, record.tree.get("current_node"))
    for node_id in node_ids:
        _add(builder, record, node_id, parents[node_id] if parents[node_id] in nodes else None, nodes[node_id])
    return leaf


def _add(builder: DraftBuilder, record: Record, node_id: str, parent: str | None, node: dict[str, Any]) -> None:
    message = as_dict(node.get("message"))
    content, metadata = as_dict(message.get("content")), as_dict(message.get("metadata"))
    is_hidden = metadata.get("is_visually_hidden_from_conversation") is True
    body = None if is_hidden or content.get("content_type") in _NOT_SAID else _body(node_id, parent, message)
    if body is None or not body.content:
        builder.leave_out(node_id, parent)
        return
    digest = fingerprint(f"{builder.id}/{node_id}".encode("utf-8", "replace"))
    own = Record(record.line, message, digest)
    builder.add(own, body, own_id=node_id, parent=parent, when=message.get("create_time"))


def _body(node_id: str, parent: str | None, message: dict[str, Any]) -> Message | None:
    """Return what a message says, without content if it is empty, or None if its content is of an unknown type."""
    author, metadata = as_dict(message.get("author")), as_dict(message.get("metadata"))
    blocks = _blocks(as_dict(message.get("content")), metadata)
    if blocks is None:
        return None
    blocks += _files(metadata)
    model = short_text(metadata.get("model_slug"))
    match author.get("role"):
        case "user":
            return Message("user", tuple(blocks))
        case "assistant":
            recipient = short_text(message.get("recipient")) or "all"
            if recipient != "all":
                blocks = _call(node_id, recipient, blocks)
            return Message("assistant", tuple(blocks), model=model)
        case "tool":
            call_id = parent if is_id(parent) else ""
            return Message("tool", tuple(_result(call_id, short_text(author.get("name")), blocks, message)))
        case "system":
            return Message("system", tuple(blocks))
        case _:
            return None


def _call(node_id: str, tool: str, blocks: list[Block]) -> list[Block]:
    """Return a tool call: a message of the assistant that is not for the user."""
    text = _text_of(blocks)
    if not text:
        return []
    arguments = load_json(text.encode("utf-8", "replace")) if text.startswith("{") else None
    return [ToolCall(node_id, tool, arguments if isinstance(arguments, dict) else {"input": text})]


def _result(call_id: str, tool: str | None, blocks: list[Block], message: dict[str, Any]) -> list[Block]:
    others: list[Block] = [block for block in blocks if not isinstance(block, Text)]
    text = _text_of(blocks)
    is_error = as_dict(message.get("content")).get("content_type") == "system_error"
    return [ToolResult(call_id, text, tool, is_error), *others] if text else others


def _text_of(blocks: list[Block]) -> str:
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text))


def _blocks(content: dict[str, Any], metadata: dict[str, Any]) -> list[Block] | None:
    match content.get("content_type"):
        case "text" | "multimodal_text":
            parts = (_part(part, metadata) for part in as_list(content.get("parts")))
            return [block for block in parts if block is not None]
        case "thoughts":
            thoughts = (_thought(as_dict(thought)) for thought in as_list(content.get("thoughts")))
            return [Thinking(thought) for thought in thoughts if thought]
        case _:
            text = next((content[name] for name in _PLAIN_TEXT if isinstance(content.get(name), str)), None)
            return None if text is None else _nonempty(text)


def _part(part: Any, metadata: dict[str, Any]) -> Block | None:
    match part:
        case str():
            return Text(_with_citations(part, metadata)) if part.strip() else None
        case {"content_type": "audio_transcription" | "text", "text": str(text)}:
            return Text(text) if text.strip() else None
        case {"content_type": str(kind)} if kind in _MEDIA:
            pointer = short_text(part.get("asset_pointer"))
            is_named = any(file["id"] in (pointer or "") for file in _listed_files(metadata))
            return None if is_named else Attachment(_MEDIA[kind], None, pointer)
        case _:
            return None


def _thought(thought: dict[str, Any]) -> str:
    return "\n".join(text for name in ("summary", "content") if (text := as_text(thought.get(name))))


def _nonempty(text: str) -> list[Block]:
    return [Text(text)] if text.strip() else []


def _files(metadata: dict[str, Any]) -> list[Block]:
    return [
        Attachment(
            short_text(file.get("mime_type")) or short_text(file.get("mimeType")) or "application/octet-stream",
            short_text(file.get("name")),
            file["id"],
        )
        for file in _listed_files(metadata)
    ]


def _listed_files(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    return [file for file in as_list(metadata.get("attachments")) if is_id(as_dict(file).get("id"))]


def _with_citations(text: str, metadata: dict[str, Any]) -> str:
    """Return a text with its citations as people see them. In the export they are marks with private characters."""
    if _MARK not in text:
        return text
    for reference in map(as_dict, as_list(metadata.get("content_references"))):
        mark, shown = reference.get("matched_text"), reference.get("alt")
        if isinstance(mark, str) and _MARK in mark and isinstance(shown, str):
            text = text.replace(mark, shown)
    return text
