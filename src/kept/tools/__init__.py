"""The memory as tools for a model, independent of the transport.

tool_definitions   the tools: names, descriptions, arguments; checking a call
tool_outputs       schemas of their results
toolbox            running a call on the memory and the conversations; the tools as Python functions
record_json        results, and changes of notes, as data for a program
tool_text          results as text for a model, and how they cite a passage
forget_tool        memory_forget, the only tool that removes something

>>> toolbox = Toolbox(memory, sessions)
>>> outcome = toolbox.run("memory_search", {"query": "which port is staging on?"})
>>> outcome.text, outcome.data, outcome.is_error

`definitions("anthropic")` and `definitions("openai")` return the tools in the formats of those APIs, and
`plain_functions(toolbox)` returns Python functions, for frameworks that read signatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kept.tools.tool_definitions import TOOLS, Tool, definitions, get_tool
    from kept.tools.toolbox import Toolbox, ToolOutcome, plain_functions

__all__ = ["TOOLS", "Tool", "ToolOutcome", "Toolbox", "definitions", "get_tool", "plain_functions"]

_HOMES = {
    "TOOLS": "kept.tools.tool_definitions",
    "Tool": "kept.tools.tool_definitions",
    "definitions": "kept.tools.tool_definitions",
    "get_tool": "kept.tools.tool_definitions",
    "plain_functions": "kept.tools.toolbox",
    "ToolOutcome": "kept.tools.toolbox",
    "Toolbox": "kept.tools.toolbox",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the command line shares `record_json` and needs nothing else."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kept.tools' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
