"""Files that came with messages: those that no message mentions are erased."""

from __future__ import annotations

import json
import os
import re
import time

from kept.config import Config
from kept.forgetting.order import ForgetOrder, ScrubResult, erase_files
from kept.forgetting.transcript_places import iter_transcript_files
from kept.sessions.attachments import AttachmentFolder

_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_GRACE_S = 10.0
"""Age below which a file may belong to a message that is about to be accepted."""


class AttachmentStore:
    """Erases files of messages that were forgotten or deleted. It comes after the conversations and the inbox."""

    name = "attachments"

    def __init__(self, config: Config) -> None:
        self.config = config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        folder = AttachmentFolder(self.config.paths.attachments)
        mentioned = find_mentioned(self.config)
        paths = (os.path.join(folder.path, name) for name in folder.names() if name[:64].encode() not in mentioned)
        return erase_files(path for path in paths if time.time() - os.stat(path).st_mtime >= _GRACE_S)


def find_mentioned(config: Config) -> frozenset[bytes]:
    """Return the hashes of files that transcripts mention, and messages in the inbox that still have their text."""
    digests: set[bytes] = set()
    for path in iter_transcript_files(config.paths.sessions):
        with open(path, "rb") as file:
            for line in file:
                if b'"attachment"' in line:
                    digests.update(_DIGEST.findall(line))
    try:
        with open(config.paths.inbox, "rb") as file:
            for line in file:
                if b'"attachments"' in line and _has_text(line):
                    digests.update(_DIGEST.findall(line))
    except FileNotFoundError:
        pass
    return frozenset(digests)


def _has_text(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return True  # it may be needed, once the line is repaired
    return not isinstance(record, dict) or bool(record.get("text"))
