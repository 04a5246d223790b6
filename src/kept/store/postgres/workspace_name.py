"""The name of a workspace in the database of a team."""

from __future__ import annotations

import hashlib
import socket

from kept.config import Config

_MAX_BYTES = 1_000
"""An entry of a B-tree has 2,704 bytes at most; names of leases contain this one."""
_SHOWN_CHARS = 200


def name_workspace(config: Config, root: str) -> str:
    """Return the name of the workspace with this folder.

    Unless the settings have one, it is that of a workspace that only this machine has: another one may have other notes
    in a folder of the same name. Of a name that is too long, the end is replaced by a digest.
    """
    name = config.memory_search.store.workspace or f"{socket.gethostname()}:{config.agent_id}:{root}"
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) <= _MAX_BYTES:
        return name
    return f"{name[:_SHOWN_CHARS]}…{hashlib.sha256(raw).hexdigest()}"
