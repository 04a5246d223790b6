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

if TYPE_CHECKING:  # once more, for type checkers; a test compares them with `__all__`
    from kept.agent.agent import Agent as Agent
    from kept.agent.events import ApprovalAsked as ApprovalAsked
    from kept.agent.events import ApprovalDecided as ApprovalDecided
    from kept.agent.events import CompactionResult as CompactionResult
    from kept.agent.events import Inbound as Inbound
    from kept.agent.events import Notice as Notice
    from kept.agent.events import Reply as Reply
    from kept.agent.events import ReplyDelta as ReplyDelta
    from kept.agent.events import ToolEnded as ToolEnded
    from kept.agent.events import ToolStarted as ToolStarted
    from kept.agent.extra_tools import FunctionTool as FunctionTool
    from kept.agent.tools.tool_definitions import TOOLS as TOOLS
    from kept.agent.tools.tool_definitions import definitions as definitions
    from kept.agent.tools.toolbox import Toolbox as Toolbox
    from kept.agent.tools.toolbox import ToolOutcome as ToolOutcome
    from kept.base.listings import BrokenLinks as BrokenLinks
    from kept.base.listings import FileSummary as FileSummary
    from kept.base.listings import Listing as Listing
    from kept.base.listings import NoteLink as NoteLink
    from kept.base.listings import NoteLinks as NoteLinks
    from kept.base.listings import TagCount as TagCount
    from kept.base.listings import TagList as TagList
    from kept.base.records import FactValidity as FactValidity
    from kept.base.records import Hit as Hit
    from kept.base.records import NearFact as NearFact
    from kept.base.records import Occurrence as Occurrence
    from kept.base.records import Passage as Passage
    from kept.base.records import SearchResult as SearchResult
    from kept.base.records import Written as Written
    from kept.base.reports import Status as Status
    from kept.base.reports import SyncReport as SyncReport
    from kept.config import LoadedConfig as LoadedConfig
    from kept.config import load_config as load_config
    from kept.errors import KeptError as KeptError
    from kept.forgetting.plan import ForgetPlan as ForgetPlan
    from kept.forgetting.plan import Place as Place
    from kept.forgetting.receipt import ForgetReceipt as ForgetReceipt
    from kept.gateway.app import open_model as open_model
    from kept.memory import Memory as Memory
    from kept.notes.history.note_history import Author as Author
    from kept.notes.history.note_history import NoteChange as NoteChange
    from kept.notes.history.undo import UndoResult as UndoResult
    from kept.server.live import LiveIndex as LiveIndex
    from kept.server.live import LiveState as LiveState
    from kept.sessions.entries import Message as Message
    from kept.sessions.entries import StateEntry as StateEntry
    from kept.sessions.record import SessionRecord as SessionRecord
    from kept.sessions.store import SessionStore as SessionStore

_NAMES = {
    "kept.agent.agent": "Agent",
    "kept.agent.events": (
        "ApprovalAsked ApprovalDecided CompactionResult Inbound Notice Reply ReplyDelta ToolEnded ToolStarted"
    ),
    "kept.agent.extra_tools": "FunctionTool",
    "kept.agent.tools.tool_definitions": "TOOLS definitions",
    "kept.agent.tools.toolbox": "ToolOutcome Toolbox",
    "kept.base.listings": "BrokenLinks FileSummary Listing NoteLink NoteLinks TagCount TagList",
    "kept.base.records": "FactValidity Hit NearFact Occurrence Passage SearchResult Written",
    "kept.base.reports": "Status SyncReport",
    "kept.config": "LoadedConfig load_config",
    "kept.errors": "KeptError",
    "kept.forgetting.plan": "ForgetPlan Place",
    "kept.forgetting.receipt": "ForgetReceipt",
    "kept.gateway.app": "open_model",
    "kept.memory": "Memory",
    "kept.notes.history.note_history": "Author NoteChange",
    "kept.notes.history.undo": "UndoResult",
    "kept.server.live": "LiveIndex LiveState",
    "kept.sessions.entries": "Message StateEntry",
    "kept.sessions.record": "SessionRecord",
    "kept.sessions.store": "SessionStore",
}
"""Public names by the module that has them."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command line loads only what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kept' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES} - {"Any", "TYPE_CHECKING", "annotations", "_HOMES"})
