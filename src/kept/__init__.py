"""Kept: memory for AI agents. The names in `__all__` are the public interface; every other module is private.

from kept import Memory

with Memory.open(workspace="~/notes", create=True) as memory:
    memory.add("The staging database moved to port 5433.")
    for hit in memory.search("which port is staging on?"):
        print(hit.citation, hit.snippet)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kept.agent.agent import Agent
    from kept.agent.events import (
        ApprovalAsked,
        ApprovalDecided,
        CompactionResult,
        Inbound,
        Notice,
        Reply,
        ReplyDelta,
        ToolEnded,
        ToolStarted,
    )
    from kept.agent.extra_tools import FunctionTool
    from kept.agent.tools.tool_definitions import TOOLS, definitions
    from kept.agent.tools.toolbox import Toolbox, ToolOutcome
    from kept.base.listings import BrokenLinks, FileSummary, Listing, NoteLink, NoteLinks, TagCount, TagList
    from kept.base.records import FactValidity, Hit, NearFact, Occurrence, Passage, SearchResult, Written
    from kept.base.reports import Status, SyncReport
    from kept.config import LoadedConfig, load_config
    from kept.errors import KeptError
    from kept.forgetting.plan import ForgetPlan, Place
    from kept.forgetting.receipt import ForgetReceipt
    from kept.gateway.app import open_model
    from kept.memory import Memory
    from kept.notes.history.note_history import Author, NoteChange
    from kept.notes.history.undo import UndoResult
    from kept.server.live import LiveIndex, LiveState
    from kept.sessions.entries import Message, StateEntry
    from kept.sessions.record import SessionRecord
    from kept.sessions.store import SessionStore

__all__ = [
    "TOOLS",
    "Agent",
    "ApprovalAsked",
    "ApprovalDecided",
    "Author",
    "BrokenLinks",
    "CompactionResult",
    "FactValidity",
    "FileSummary",
    "ForgetPlan",
    "ForgetReceipt",
    "FunctionTool",
    "Hit",
    "Inbound",
    "KeptError",
    "Listing",
    "LiveIndex",
    "LiveState",
    "LoadedConfig",
    "Memory",
    "Message",
    "NearFact",
    "NoteChange",
    "NoteLink",
    "NoteLinks",
    "Notice",
    "Occurrence",
    "Passage",
    "Place",
    "Reply",
    "ReplyDelta",
    "SearchResult",
    "SessionRecord",
    "SessionStore",
    "StateEntry",
    "Status",
    "SyncReport",
    "TagCount",
    "TagList",
    "ToolEnded",
    "ToolOutcome",
    "ToolStarted",
    "Toolbox",
    "UndoResult",
    "Written",
    "__version__",
    "definitions",
    "load_config",
    "open_model",
]

_HOMES = {
    "Agent": "kept.agent.agent",
    "ApprovalAsked": "kept.agent.events",
    "ApprovalDecided": "kept.agent.events",
    "CompactionResult": "kept.agent.events",
    "FunctionTool": "kept.agent.extra_tools",
    "Inbound": "kept.agent.events",
    "Notice": "kept.agent.events",
    "Reply": "kept.agent.events",
    "ReplyDelta": "kept.agent.events",
    "ToolEnded": "kept.agent.events",
    "ToolStarted": "kept.agent.events",
    "open_model": "kept.gateway.app",
    "LoadedConfig": "kept.config",
    "load_config": "kept.config",
    "KeptError": "kept.errors",
    "NoteChange": "kept.notes.history.note_history",
    "UndoResult": "kept.notes.history.undo",
    "LiveIndex": "kept.server.live",
    "LiveState": "kept.server.live",
    "Memory": "kept.memory",
    "BrokenLinks": "kept.base.listings",
    "FactValidity": "kept.base.records",
    "FileSummary": "kept.base.listings",
    "Hit": "kept.base.records",
    "Listing": "kept.base.listings",
    "NearFact": "kept.base.records",
    "NoteLink": "kept.base.listings",
    "ForgetPlan": "kept.forgetting.plan",
    "ForgetReceipt": "kept.forgetting.receipt",
    "Place": "kept.forgetting.plan",
    "NoteLinks": "kept.base.listings",
    "Occurrence": "kept.base.records",
    "Passage": "kept.base.records",
    "SearchResult": "kept.base.records",
    "Status": "kept.base.reports",
    "SyncReport": "kept.base.reports",
    "TagCount": "kept.base.listings",
    "TagList": "kept.base.listings",
    "Written": "kept.base.records",
    "Message": "kept.sessions.entries",
    "StateEntry": "kept.sessions.entries",
    "SessionRecord": "kept.sessions.record",
    "SessionStore": "kept.sessions.store",
    "TOOLS": "kept.agent.tools.tool_definitions",
    "ToolOutcome": "kept.agent.tools.toolbox",
    "Toolbox": "kept.agent.tools.toolbox",
    "definitions": "kept.agent.tools.tool_definitions",
    "Author": "kept.notes.history.note_history",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command line loads only what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kept' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES} - {"Any", "TYPE_CHECKING", "annotations", "_HOMES"})
