"""The memory as tools for a model: what each is called, takes and gives back. No transport is known here.

>>> toolbox = Toolbox(memory, sessions)
>>> outcome = toolbox.run("memory_search", {"query": "which port is staging on?"})
>>> outcome.text, outcome.data, outcome.is_error

`definitions("anthropic")` and `definitions("openai")` are the tools as those APIs want to be told of them, and
`plain_functions(toolbox)` as Python functions, for frameworks that read signatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kept.tools.catalogue import TOOLS, Tool, definitions, get_tool
    from kept.tools.functions import plain_functions
    from kept.tools.toolbox import Toolbox, ToolOutcome

__all__ = ["TOOLS", "Tool", "ToolOutcome", "Toolbox", "definitions", "get_tool", "plain_functions"]

_HOMES = {
    "TOOLS": "kept.tools.catalogue",
    "Tool": "kept.tools.catalogue",
    "definitions": "kept.tools.catalogue",
    "get_tool": "kept.tools.catalogue",
    "plain_functions": "kept.tools.functions",
    "ToolOutcome": "kept.tools.toolbox",
    "Toolbox": "kept.tools.toolbox",
}


def __getattr__(name: str) -> Any:
    """Imported when they are first used: the command line shares the shapes in here and needs nothing else."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kept.tools' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
