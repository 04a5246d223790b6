"""Files that came with messages: documents in the storage of the agent. The name of each is the hash of what it has."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any

from kept.errors import WorkspaceError
from kept.sessions.entries import Attachment, DamagedEntry, parse_block
from kept.storage.contract import Storage, Write

ATTACHMENTS = "attachments"
"""Metadata of a message of a channel: the files that came with it. Also the name of their folder."""
STORED_NAME = re.compile(r"([0-9a-f]{64})\.[a-z0-9]{1,8}")
_ENDINGS = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
}
STORED_TYPES = frozenset(_ENDINGS)
"""Types of files that models take. Others are only named."""


def save_attachment(storage: Storage, data: bytes, media_type: str, name: str | None) -> dict[str, Any]:
    """Store a file, and return what a message says about it. It is on disk when this returns."""
    digest = hashlib.sha256(data).hexdigest()
    path = f"{ATTACHMENTS}/{digest}.{_ENDINGS[media_type]}"
    storage.commit([Write(path, data)])
    return {"path": path, "sha256": digest, "mediaType": media_type, "name": name, "size": len(data)}


def load_attachment(storage: Storage, attachment: Attachment) -> bytes | None:
    """Return the content of a file, or None if it is gone or was changed."""
    name = os.path.basename(attachment.path or "")
    if not STORED_NAME.fullmatch(name) or attachment.sha256 != name[:64]:
        return None
    try:
        document = storage.documents.read(f"{ATTACHMENTS}/{name}")
    except WorkspaceError:
        return None
    return document.data if document.version == attachment.sha256 else None


def list_attachments(storage: Storage) -> Iterator[str]:
    """Yield the names of the files, without their folder."""
    for info in storage.documents.list(f"{ATTACHMENTS}/"):
        name = info.path.removeprefix(f"{ATTACHMENTS}/")
        if STORED_NAME.fullmatch(name):
            yield name


def read_attachments(described: Any) -> Iterator[Attachment]:
    """Yield the files that the metadata of a message describes. Skip a description that is not one."""
    for item in described if isinstance(described, list) else ():
        if not isinstance(item, dict) or item.get("mediaType") not in STORED_TYPES:
            continue
        try:
            attachment = parse_block({**item, "type": "attachment"})
        except DamagedEntry:
            continue
        if isinstance(attachment, Attachment) and attachment.path and attachment.sha256:
            yield attachment
