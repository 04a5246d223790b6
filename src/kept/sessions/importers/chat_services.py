"""Exports of ChatGPT and Claude.ai: conversations → drafts.

All branches are kept, with their parents; a session continues on the branch that the service shows.
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
from kept.sessions.importers.source import Record, Source, fingerprint, load_json

# ChatGPT: a tree of messages (`mapping`), and the message that is shown last (`current_node`). Messages that ChatGPT
# hides are left out: its own instructions, and those of the user, which it repeats in every conversation.

CHATGPT = "chatgpt"
_NOT_SAID = ("user_editable_context", "model_editable_context", "reasoning_recap")
"""Types of instructions, and of a line about how long the model thought."""
_PLAIN_TEXT = ("text", "result", "content")
_CITATION_MARK = "\ue200"
"""First character of a citation inside of a text. The citations themselves are in the metadata."""
_MEDIA = {
    "image_asset_pointer": "image/*",
    "audio_asset_pointer": "audio/*",
    "real_time_user_audio_video_asset_pointer": "audio/*",
    "video_container_asset_pointer": "video/*",
}


def read_chatgpt(record: Record, source: Source, agent_id: str) -> Draft | None:
    """Return the session of a conversation, or None if this is not a conversation of ChatGPT."""
    tree = record.tree
    nodes = tree.get("mapping")
    if not isinstance(nodes, dict):
        return None
    session_id = as_text(tree.get("conversation_id")) or as_text(tree.get("id")) or record.digest
    builder = DraftBuilder(source, CHATGPT, session_id)
    builder.created = read_time(tree.get("create_time"))
    leaf = _add_nodes(builder, {node_id: as_dict(node) for node_id, node in nodes.items()}, record)
    if title := short_text(tree.get("title")):
        builder.add_title(record, title, leaf=leaf, when=tree.get("update_time"))
    return builder.finish(key_for(agent_id, CHATGPT, builder.id), has_global_ids=True)


def _add_nodes(builder: DraftBuilder, nodes: dict[str, dict[str, Any]], record: Record) -> str | None:
    """Add the messages of all branches. Return the last message of the branch that continues."""
    parents = {name: parent if is_id(parent := node.get("parent")) else None for name, node in nodes.items()}
    node_ids, leaf = order_branches(parents, record.tree.get("current_node"))
    for node_id in node_ids:
        _add_node(builder, record, node_id, parents[node_id] if parents[node_id] in nodes else None, nodes[node_id])
    return leaf


def _add_node(builder: DraftBuilder, record: Record, node_id: str, parent: str | None, node: dict[str, Any]) -> None:
    message = as_dict(node.get("message"))
    content, metadata = as_dict(message.get("content")), as_dict(message.get("metadata"))
    is_hidden = metadata.get("is_visually_hidden_from_conversation") is True
    body = None if is_hidden or content.get("content_type") in _NOT_SAID else _node_body(node_id, parent, message)
    if body is None or not body.content:
        builder.leave_out(node_id, parent)
        return
    digest = fingerprint(f"{builder.id}/{node_id}".encode("utf-8", "replace"))
    own = Record(record.line, message, digest)
    builder.add(own, body, own_id=node_id, parent=parent, when=message.get("create_time"))


def _node_body(node_id: str, parent: str | None, message: dict[str, Any]) -> Message | None:
    """Return what a message says, without content if it is empty, or None if its content is of an unknown type."""
    author, metadata = as_dict(message.get("author")), as_dict(message.get("metadata"))
    blocks = _node_blocks(as_dict(message.get("content")), metadata)
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


def _node_blocks(content: dict[str, Any], metadata: dict[str, Any]) -> list[Block] | None:
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
    if _CITATION_MARK not in text:
        return text
    for reference in map(as_dict, as_list(metadata.get("content_references"))):
        mark, shown = reference.get("matched_text"), reference.get("alt")
        if isinstance(mark, str) and _CITATION_MARK in mark and isinstance(shown, str):
            text = text.replace(mark, shown)
    return text


# Claude.ai: messages of `human` and `assistant`, in order or as a tree. An answer that calls tools has calls and
# results in one message. Here they become several entries, as in every other session; the last of them has the id of
# the message.

CLAUDE_AI = "claude-ai"
_PASTED = ("", "paste.txt")
"""Names that Claude.ai gives to long text that was pasted into a message."""


def read_claude_ai(record: Record, source: Source, agent_id: str) -> Draft | None:
    """Return the session of a conversation, or None if this is not a conversation of Claude.ai."""
    tree = record.tree
    if not isinstance(tree.get("chat_messages"), list):
        return None
    builder = DraftBuilder(source, CLAUDE_AI, as_text(tree.get("uuid")) or record.digest)
    builder.created = read_time(tree.get("created_at"))
    leaf = _add_messages(builder, record)
    if title := short_text(tree.get("name")):
        builder.add_title(record, title, leaf=leaf, when=tree.get("updated_at"))
    return builder.finish(key_for(agent_id, CLAUDE_AI, builder.id), has_global_ids=True)


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
        _add_message(builder, Record(record.line, messages[message_id], digest), message_id, parents[message_id])
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


def _add_message(builder: DraftBuilder, record: Record, message_id: str, parent: str | None) -> None:
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
