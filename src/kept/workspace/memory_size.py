"""Tell when long-term memory has outgrown its share of a prompt."""

from __future__ import annotations

import os

from kept.limits import CHARS_PER_TOKEN, estimate_tokens
from kept.workspace.workspace import LONG_TERM, Workspace

_LEAST_BYTES_PER_TOKEN = 3
"""A character of a dense script is a token and has three bytes."""


def find_overgrowth(workspace: Workspace, *, limit_tokens: int) -> str:
    """Return what to tell about a MEMORY.md that does not fit into a prompt, or an empty text."""
    for name in LONG_TERM:
        path = os.path.join(workspace.root, name)
        try:
            if os.path.getsize(path) <= limit_tokens * min(_LEAST_BYTES_PER_TOKEN, CHARS_PER_TOKEN):
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                tokens = estimate_tokens(file.read().strip("\n"))
        except OSError:
            continue  # missing, or reported by the code that reads it
        if tokens > limit_tokens:
            return (
                f"{name} has about {tokens:,} tokens. The first {limit_tokens:,} are in every prompt of the agent; the "
                "rest is recalled where it fits. Move details into notes below memory/."
            )
    return ""
