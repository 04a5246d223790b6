"""Exports of ChatGPT and Claude.ai: conversations → drafts.

All branches are kept, with their parents; a session continues on the branch that the service shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from kept.base.limits import as_dict, as_list
from kept.sessions.entries import Attachment, Block, Message, Role, Text, Thinking, ToolCall, ToolResult
from kept.sessions.importers.draft import (
    OTHER_MEDIA,
    Draft,
    DraftBuilder,
    as_text,
    is_id,
    key_for,
    order_branches,
    read_blocks,
    read_time,
    short_text,
    text_of,
)
from kept.sessions.importers.reader import Reader
from kept.sessions.importers.source import (
    ExportRefused,
    ExportSource,
    Record,
    Source,
    find_members,
    fingerprint,
    is_conversations_name,
    load_json,
)

Tree = dict[str, Any]
Messages = Mapping[str, tuple[str | None, Tree]]
"""The messages of a conversation by their ids, each with the id of its parent."""


class ServiceReader(Reader):
    """Reader of exports of a service: zip files, or JSON files in a folder. A record is a conversation, which is a tree
    of messages, of which one is shown last."""

    id_fields: ClassVar[tuple[str, ...]]
    created: ClassVar[str]
    """Field with the time of a conversation or a message."""
    updated: ClassVar[str]
    title: ClassVar[str]
    leaf: ClassVar[str]
    """Field with the id of the message that is shown last."""

    def find_messages(self, tree: Tree, session_id: str) -> Messages | None:
        """Return the messages of a conversation, or None if it is of another service."""
        raise NotImplementedError

    def read_message(self, message_id: str, parent: str | None, message: Tree, place: str) -> list[Message]:
        """Return what a message says. Calls of tools and their results are messages of their own."""
        raise NotImplementedError

    def is_wanted(self, path: str, root: str) -> bool:
        return path.lower().endswith(".zip") or is_conversations_name(path)

    def read(self, path: str) -> Iterator[tuple[Source, Draft | None]]:
        try:
            members = find_members(path)
        except (ExportRefused, OSError) as exc:
            refused = Source(path)
            refused.is_unreadable = True
            refused.report(str(exc) if isinstance(exc, ExportRefused) else f"cannot be read ({exc.strerror})")
            yield refused, None
            return
        for member in members:
            source = ExportSource(path, member)
            yield source, None
            for record in source.records():
                yield source, self._read_conversation(record, source)

    def _read_conversation(self, record: Record, source: Source) -> Draft | None:
        tree = record.tree
        names = (as_text(tree.get(name)) for name in self.id_fields)
        builder = DraftBuilder(source, self.channel, next(filter(None, names), record.digest))
        messages = self.find_messages(tree, builder.id)
        if messages is None:
            return None
        builder.created = read_time(tree.get(self.created))
        parents = {own: parent if parent in messages else None for own, (parent, _) in messages.items()}
        message_ids, leaf = order_branches(parents, tree.get(self.leaf))
        for message_id in message_ids:
            self._add(builder, record, message_id, parents[message_id], messages[message_id][1])
        if title := short_text(tree.get(self.title)):
            builder.add_title(record, title, leaf=leaf, when=tree.get(self.updated))
        return builder.finish(key_for(self.agent_id, self.channel, builder.id), has_global_ids=True)

    def _add(self, builder: DraftBuilder, record: Record, message_id: str, parent: str | None, message: Tree) -> None:
        """Add a message. If it becomes several entries, the last of them has its id."""
        bodies = [body for body in self.read_message(message_id, parent, message, record.place) if body.content]
        for number, body in enumerate(bodies or [None], 1):
            own_id = message_id if number >= len(bodies) else f"{message_id[:100]}.{number}"
            digest = fingerprint(f"{builder.id}/{message_id}.{number}".encode("utf-8", "replace"))
            own = Record(record.line, message, digest, record.place)
            builder.add(own, body, own_id=own_id, parent=parent, when=message.get(self.created))
            parent = builder.last_id


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


class ChatGptReader(ServiceReader):
    """Reader of ChatGPT. Messages that ChatGPT hides are left out: its own instructions, and those of the user, which
    it repeats in every conversation."""

    channel = "chatgpt"
    id_fields = ("conversation_id", "id")
    created, updated, title, leaf = "create_time", "update_time", "title", "current_node"

    def find_messages(self, tree: Tree, session_id: str) -> Messages | None:
        nodes = tree.get("mapping")
        if not isinstance(nodes, dict):
            return None
        fields = {node_id: as_dict(node) for node_id, node in nodes.items()}
        return {
            node_id: (parent if is_id(parent := node.get("parent")) else None, as_dict(node.get("message")))
            for node_id, node in fields.items()
        }

    def read_message(self, message_id: str, parent: str | None, message: Tree, place: str) -> list[Message]:
        author, metadata = as_dict(message.get("author")), as_dict(message.get("metadata"))
        content = as_dict(message.get("content"))
        is_hidden = metadata.get("is_visually_hidden_from_conversation") is True
        blocks = None if is_hidden or content.get("content_type") in _NOT_SAID else _node_blocks(content, metadata)
        if blocks is None:
            return []
        for file in _listed_files(metadata):
            media = short_text(file.get("mime_type")) or short_text(file.get("mimeType")) or OTHER_MEDIA
            blocks.append(Attachment(media, short_text(file.get("name")), file["id"]))
        match author.get("role"):
            case "user" | "system" as role:
                return [Message(role, tuple(blocks))]
            case "assistant":
                recipient = short_text(message.get("recipient")) or "all"
                if recipient != "all":
                    blocks = _call(message_id, recipient, blocks)
                return [Message("assistant", tuple(blocks), model=short_text(metadata.get("model_slug")))]
            case "tool":
                return [Message("tool", tuple(_result(parent or "", short_text(author.get("name")), blocks, message)))]
            case _:
                return []


def _call(node_id: str, tool: str, blocks: list[Block]) -> list[Block]:
    """Return a tool call: a message of the assistant that is not for the user."""
    text = text_of(blocks)
    if not text:
        return []
    arguments = load_json(text.encode("utf-8", "replace")) if text.startswith("{") else None
    return [ToolCall(node_id, tool, arguments if isinstance(arguments, dict) else {"input": text})]


def _result(call_id: str, tool: str | None, blocks: list[Block], message: Tree) -> list[Block]:
    others: list[Block] = [block for block in blocks if not isinstance(block, Text)]
    text = text_of(blocks)
    is_error = as_dict(message.get("content")).get("content_type") == "system_error"
    return [ToolResult(call_id, text, tool, is_error), *others] if text else others


def _node_blocks(content: Tree, metadata: Tree) -> list[Block] | None:
    match content.get("content_type"):
        case "text" | "multimodal_text":
            read = (_part(part, metadata) for part in as_list(content.get("parts")))
            return [block for block in read if block is not None]
        case "thoughts":
            thoughts = map(as_dict, as_list(content.get("thoughts")))
            parts = (filter(None, (as_text(part.get(name)) for name in ("summary", "content"))) for part in thoughts)
            return [Thinking(text) for text in map("\n".join, parts) if text]
        case _:
            text = next((content[name] for name in _PLAIN_TEXT if isinstance(content.get(name), str)), None)
            return None if text is None else _nonempty(text)


def _part(part: Any, metadata: Tree) -> Block | None:
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


def _nonempty(text: str) -> list[Block]:
    return [Text(text)] if text.strip() else []


def _listed_files(metadata: Tree) -> list[Tree]:
    return [file for file in as_list(metadata.get("attachments")) if is_id(as_dict(file).get("id"))]


def _with_citations(text: str, metadata: Tree) -> str:
    """Return a text with its citations as people see them. In the export they are marks with private characters."""
    if _CITATION_MARK not in text:
        return text
    for reference in map(as_dict, as_list(metadata.get("content_references"))):
        mark, shown = reference.get("matched_text"), reference.get("alt")
        if isinstance(mark, str) and _CITATION_MARK in mark and isinstance(shown, str):
            text = text.replace(mark, shown)
    return text


_PASTED = (None, "paste.txt")
"""Names that Claude.ai gives to long text that was pasted into a message."""


class ClaudeAiReader(ServiceReader):
    """Reader of Claude.ai: messages of `human` and `assistant`, in order or as a tree. An answer that calls tools has
    calls and results in one message; here they become several entries, as in every other session."""

    channel = "claude-ai"
    id_fields = ("uuid",)
    created, updated, title, leaf = "created_at", "updated_at", "name", "current_leaf_message_uuid"

    def find_messages(self, tree: Tree, session_id: str) -> Messages | None:
        if not isinstance(tree.get("chat_messages"), list):
            return None
        messages = {
            own if is_id(own := message.get("uuid")) else f"{session_id[:100]}.{index}": message
            for index, message in enumerate(map(as_dict, tree["chat_messages"]))
        }
        parents = [as_text(message.get("parent_message_uuid")) for message in messages.values()]
        if not any(parent in messages for parent in parents):  # older exports name none
            parents = [None, *messages]
        return {own: (parent, message) for (own, message), parent in zip(messages.items(), parents, strict=False)}

    def read_message(self, message_id: str, parent: str | None, message: Tree, place: str) -> list[Message]:
        if message.get("sender") not in ("human", "assistant"):
            return []
        speaker: Role = "user" if message["sender"] == "human" else "assistant"
        bodies: list[Message] = []
        for block in (*_content(message, place), *_attachments(message)):
            role: Role = "tool" if isinstance(block, ToolResult) else speaker
            before = bodies.pop().content if bodies and bodies[-1].role == role else ()
            bodies.append(Message(role, (*before, block)))
        return bodies


def _content(message: Tree, place: str) -> list[Block]:
    """Return the blocks of a message. Its `text` repeats them, with a placeholder for each tool, or is all there is."""
    read = read_blocks(message.get("content"), place)
    blocks = [block for block in read if not isinstance(block, Text | Thinking) or block.text.strip()]
    if any(isinstance(block, Text | ToolCall) for block in blocks):
        return blocks
    return blocks + _nonempty(as_text(message.get("text")) or "")


def _attachments(message: Tree) -> list[Block]:
    """Return the text that was pasted into a message, and its files: each once, although several lists name it."""
    texts: list[Block] = []
    files: dict[str | None, Block] = {}
    listed = (file for name in ("attachments", "files", "files_v2") for file in as_list(message.get(name)))
    for raw in map(as_dict, listed):
        name, text = short_text(raw.get("file_name")), as_text(raw.get("extracted_content")) or ""
        if name in _PASTED and text.strip():
            texts.append(Text(text))
        elif raw:
            media = short_text(raw.get("file_type")) or OTHER_MEDIA
            files.setdefault(name, Attachment(media, name, short_text(raw.get("file_uuid"))))
    return [*texts, *files.values()]
