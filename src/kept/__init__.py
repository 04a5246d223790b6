"""Kept: memory for AI agents.

from kept import Memory

with Memory.open(workspace="~/notes") as memory:
    memory.add("The staging database moved to port 5433.")
    for hit in memory.search("which port is staging on?"):
        print(hit.citation, hit.snippet)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kept.errors import KeptError
    from kept.live import LiveIndex
    from kept.memory import Memory
    from kept.records import Hit, Passage, Preview, SearchResult, Status, SyncReport, Written
    from kept.sessions.entries import Message
    from kept.sessions.record import SessionRecord
    from kept.sessions.store import SessionStore

__all__ = [
    "Hit",
    "KeptError",
    "LiveIndex",
    "Memory",
    "Message",
    "Passage",
    "Preview",
    "SearchResult",
    "SessionRecord",
    "SessionStore",
    "Status",
    "SyncReport",
    "Written",
    "__version__",
]

_HOMES = {
    "KeptError": "kept.errors",
    "LiveIndex": "kept.live",
    "Memory": "kept.memory",
    "Hit": "kept.records",
    "Passage": "kept.records",
    "Preview": "kept.records",
    "SearchResult": "kept.records",
    "Status": "kept.records",
    "SyncReport": "kept.records",
    "Written": "kept.records",
    "Message": "kept.sessions.entries",
    "SessionRecord": "kept.sessions.record",
    "SessionStore": "kept.sessions.store",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that the command line pays only for what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kept' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
