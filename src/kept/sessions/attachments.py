"""Files that came with messages, stored beside the transcripts. The name of each is the hash of what it has."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any

from kept.base.durable import make_private_folder, write_atomic
from kept.base.values import frozen
from kept.sessions.entries import Attachment

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


@frozen
class AttachmentFolder:
    """Folder of the files of an agent: HOME/agents/NAME/attachments."""

    path: str

    def save(self, data: bytes, media_type: str, name: str | None) -> dict[str, Any]:
        """Store a file, and return what a message says about it. It is on disk when this returns."""
        digest = hashlib.sha256(data).hexdigest()
        file = f"{digest}.{_ENDINGS[media_type]}"
        make_private_folder(self.path)
        write_atomic(os.path.join(self.path, file), data)
        path = f"{ATTACHMENTS}/{file}"
        return {"path": path, "sha256": digest, "mediaType": media_type, "name": name, "size": len(data)}

    def load(self, attachment: Attachment) -> bytes | None:
        """Return the content of a file, or None if it is gone or was changed."""
        name = os.path.basename(attachment.path or "")
        if not STORED_NAME.fullmatch(name):
            return None
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                data = file.read()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == attachment.sha256 == name[:64] else None

    def is_intact(self, name: str, digest: str) -> bool:
        """Return whether a file still has what its name says."""
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError:
            return False

    def names(self) -> Iterator[str]:
        try:
            yield from sorted(name for name in os.listdir(self.path) if STORED_NAME.fullmatch(name))
        except FileNotFoundError:
            return


def read_attachments(described: Any) -> Iterator[Attachment]:
    """Yield the files that the metadata of a message describes. Skip a description that is not one."""
    for item in described if isinstance(described, list) else ():
        fields = item if isinstance(item, dict) else {}
        path, digest, media_type = fields.get("path"), fields.get("sha256"), fields.get("mediaType")
        if isinstance(path, str) and isinstance(digest, str) and media_type in STORED_TYPES:
            name, size = fields.get("name"), fields.get("size")
            yield Attachment(
                media_type,
                name if isinstance(name, str) else None,
                path,
                digest,
                size if isinstance(size, int) and not isinstance(size, bool) else None,
            )
