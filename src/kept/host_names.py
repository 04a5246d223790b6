"""Names of machines: in commits, in merged notes, and of the folders with the conversations of other machines."""

from __future__ import annotations

import re

_HOST_CHARS = 60
_RESERVED = ("sessions",)
"""Name of the folder that those of the machines are in: the parent of a transcript tells whose it is."""


def host_name(setting: str | None) -> str:
    """Return the name of this machine: the one of the settings (`sync.git.host`), or else its host name."""
    import socket  # a search needs no name

    return plain_name(setting or socket.gethostname().partition(".")[0] or "host")


def plain_name(name: str) -> str:
    """Return a name without characters that could end a mark, a heading or a line of a commit."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_HOST_CHARS] or "host"


def is_host_name(name: str) -> bool:
    """Return whether a name, which may come from anybody, can be that of a folder and of a branch of git.

    A name that is also that of a lock, a temporary file or a transcript would be taken for one.
    """
    lower = name.lower()
    return (
        plain_name(name) == name
        and lower not in _RESERVED
        and ".." not in lower
        and ".jsonl" not in lower
        and not lower.endswith((".lock", ".tmp", ".torn"))
    )


def is_same_host(name: str, other: str) -> bool:
    """Return whether two names are the same where case does not count, as in the file names of some systems."""
    return name.casefold() == other.casefold()
