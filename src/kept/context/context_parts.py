"""Record of what a request consisted of: the memories in it, and the size of each part.

It is stored with the answer. Messages are named by their lines and memories by their citations, so the record stays
small whatever was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kept.limits import as_dict, as_list, is_count
from kept.sessions.echoes import RECALLED
from kept.sessions.entries import Message
from kept.values import frozen

CONTEXT = "context"
"""Metadata of an answer: the parts of the last request that led to it."""
PARTS = ("system", "files", "tools", "summary", "history", "recalled", "message")
"""Parts of a request, in the order in which a model reads them. ``message`` is the message that is answered, with all
that has followed it."""


@frozen
class ContextParts:
    """Sizes in estimated tokens."""

    system: int = 0
    """System prompt without the workspace files."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Workspace files in the system prompt, by name."""
    tools: int = 0
    summary: int = 0
    history: int = 0
    recalled: int = 0
    message: int = 0
    lines: tuple[int, int] | None = None
    """First and last line of the transcript that were sent as messages."""
    cut: tuple[str, ...] = ()
    """Names of the files that were sent in part."""

    @property
    def total(self) -> int:
        own = self.system + self.tools + self.summary + self.history + self.recalled + self.message
        return own + sum(self.files.values())

    def to_json(self) -> dict[str, Any]:
        tokens: dict[str, Any] = {
            "system": self.system,
            "files": dict(self.files),
            "tools": self.tools,
            "summary": self.summary,
            "history": self.history,
            "recalled": self.recalled,
            "message": self.message,
            "total": self.total,
        }
        optional = {"lines": list(self.lines) if self.lines else None, "cut": list(self.cut) or None}
        return {"tokens": tokens, **{name: value for name, value in optional.items() if value is not None}}


def read_context(message: Message) -> dict[str, Any] | None:
    """Return what an answer records about its context, for programs. None if it records nothing.

    A transcript may have been edited or imported, so only what has the right type is returned.
    """
    context = message.metadata.get(CONTEXT)
    recalled = read_recalled(message)
    if not isinstance(context, dict):
        return {"recalled": recalled} if recalled else None
    return {"recalled": recalled, **context, "tokens": _read_tokens(context.get("tokens"))}


def read_recalled(message: Message) -> list[dict[str, Any]]:
    """Return the memories that were recalled for an answer. Older transcripts have their citations alone."""
    items = message.metadata.get(RECALLED)
    passages = ({"citation": item} if isinstance(item, str) else item for item in as_list(items))
    return [item for item in passages if isinstance(item, dict) and isinstance(item.get("citation"), str)]


def _read_tokens(tokens: Any) -> dict[str, Any]:
    counts = as_dict(tokens)
    files = counts.get("files")
    known: dict[str, Any] = {name: counts[name] for name in (*PARTS, "total") if is_count(counts.get(name))}
    known["files"] = {name: size for name, size in files.items() if is_count(size)} if isinstance(files, dict) else {}
    return known
