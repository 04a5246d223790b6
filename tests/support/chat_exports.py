"""Build exports of ChatGPT and Claude.ai, in zip files as people download them."""

import json
import zipfile
from pathlib import Path
from typing import Any

# ChatGPT


def gpt_node(node_id, parent, role="user", text=None, *, content=None, minute=0, **more: Any) -> dict[str, Any]:
    """Return a node of a mapping. ``more`` replaces fields of its message."""
    message = {
        "id": node_id,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": 1_767_600_000.25 + 60 * minute,
        "update_time": None,
        "content": content or {"content_type": "text", "parts": [text or ""]},
        "status": "finished_successfully",
        "recipient": "all",
        "metadata": {},
        **more,
    }
    return {"id": node_id, "message": message, "parent": parent, "children": []}


def gpt_conversation(
    *nodes: dict[str, Any], conversation_id: str = "gpt-1", title: str = "Spare key", current: str | None = None
) -> dict[str, Any]:
    """Return a conversation that begins with a root and a hidden instruction, as each of ChatGPT does."""
    hidden = gpt_node("sys", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True})
    root = {"id": "root", "message": None, "parent": None, "children": ["sys"]}
    mapping = {node["id"]: node for node in (root, hidden, *nodes)}
    for node in mapping.values():
        node["children"] = [child["id"] for child in mapping.values() if child["parent"] == node["id"]]
    return {
        "title": title,
        "create_time": 1_767_600_000.25,
        "update_time": 1_767_700_000.5,
        "mapping": mapping,
        "current_node": current or [*mapping][-1],
        "conversation_id": conversation_id,
        "id": conversation_id,
        "default_model_slug": "gpt-5",
        "is_archived": False,
    }


def gpt_talk(conversation_id: str = "gpt-1", title: str = "Spare key") -> dict[str, Any]:
    """Return a conversation of one question and one answer."""
    return gpt_conversation(
        gpt_node("u1", "sys", text="Where is the spare key?"),
        gpt_node("a1", "u1", "assistant", "Under the blue pot.", minute=1, metadata={"model_slug": "gpt-5"}),
        conversation_id=conversation_id,
        title=title,
    )


def claude_message(uuid, sender, text="", *blocks: dict[str, Any], minute=0, **more: Any) -> dict[str, Any]:
    when = f"2026-03-04T09:{minute:02d}:00.123456Z"
    return {
        "uuid": uuid,
        "text": text,
        "content": list(blocks) or [{"type": "text", "text": text, "citations": []}],
        "sender": sender,
        **{"created_at": when, "updated_at": when, "attachments": [], "files": []},
        **more,
    }


def claude_conversation(*messages: dict[str, Any], uuid="cl-1", name="Bees", **more: Any) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "name": name,
        "created_at": "2026-03-04T09:00:00.123456Z",
        "updated_at": "2026-03-04T09:30:00.123456Z",
        "account": {"uuid": "account-1"},
        "chat_messages": list(messages),
        **more,
    }


def claude_talk(uuid: str = "cl-1", name: str = "Bees") -> dict[str, Any]:
    """Return a conversation of one question and one answer."""
    return claude_conversation(
        claude_message(f"{uuid}-1", "human", "How do bees find the hive?"),
        claude_message(f"{uuid}-2", "assistant", "By the sun, and by smell.", minute=1),
        uuid=uuid,
        name=name,
    )


def write_zip(path: Path, files: dict[str, Any], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write a zip file. Anything but bytes is written as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return path


def gpt_zip(path: Path, *conversations: dict[str, Any]) -> Path:
    """Write an export as ChatGPT does."""
    others = {"chat.html": b"<html>", "user.json": {"id": "user-1"}, "message_feedback.json": []}
    return write_zip(path, {"conversations.json": list(conversations), **others})


def claude_zip(path: Path, *conversations: dict[str, Any]) -> Path:
    """Write an export as Claude.ai does."""
    others = {"users.json": [{"uuid": "account-1"}], "projects.json": [], "memories.json": []}
    return write_zip(path, {"conversations.json": list(conversations), **others})
