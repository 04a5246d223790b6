"""Names of machines, as they stand in commits, merged notes and conflict copies."""

from __future__ import annotations

import re
import socket

_HOST_CHARS = 60


def host_name(setting: str | None) -> str:
    """Return the name of this machine in commits and notes: the one of the settings, or its host name."""
    return plain_name(setting or socket.gethostname().partition(".")[0] or "host")


def plain_name(name: str) -> str:
    """Return a name without characters that could end a mark, a heading or a line of a commit."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_HOST_CHARS] or "host"
